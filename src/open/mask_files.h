// Task masks from NumPy files: keep-sets of neurons, heads and layers, as training and pruning tools leave them.
#pragma once

#include <filesystem>
#include <string>

#include "cmf/masks.h"

namespace cmforge {

/// Paths; an empty one leaves that part unrestricted. An element is kept when it is not 0.
struct MaskFiles {
  std::filesystem::path keep;   // [layers, neurons]; of a looped model also [visits, neurons]
  std::filesystem::path heads;  // [layers, heads]
  std::filesystem::path gates;  // [layers]
};

/// `sparsity` is the share of neurons that are off in the layers that are on (of heads, where no neurons are
/// restricted). task_id, priority and quality are the caller's.
/// Fails: kUsage (nothing given, a shape that is not the model's: both named; a mask that keeps nothing), as ReadNpy.
Result<cmf::TaskMask> ReadMaskFiles(std::string name, const MaskFiles& files,
                                    const cmf::MaskGeometry& geometry);

/// Every NAME.npy of a folder as mask NAME, in the order of their names, with NAME.heads.npy and NAME.gates.npy for
/// its heads and layers, and NAME.quality.json for its held-out figure where they lie beside it.
/// The first is the fallback; the default task is "general" where there is one, else the first.
/// Fails: kNotFound (no folder, no mask in it), kUsage (as above; a figure without its evidence).
Result<cmf::MaskCatalog> ReadMaskFolder(const std::filesystem::path& folder,
                                        const cmf::MaskGeometry& geometry);

/// A free task id, and a name that is not taken. Fails: kUsage naming the masks there are.
Result<void> AddToCatalog(cmf::MaskCatalog& catalog, cmf::TaskMask mask);

}  // namespace cmforge
