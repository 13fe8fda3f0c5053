// A task mask as JSON, for `mask list` and `info`.
#pragma once

#include "base/json.h"
#include "cmf/masks.h"

namespace cmforge::cli {

/// `layers`: what is on in each, or null to leave it out.
[[nodiscard]] Json MaskMetaJson(const cmf::TaskMask& mask, const cmf::MaskCatalog& catalog,
                                Json layers = nullptr);

}  // namespace cmforge::cli
