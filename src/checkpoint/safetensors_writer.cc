// Header first, from the sizes that the source announces; then the payloads.
#include "checkpoint/safetensors_writer.h"

#include <algorithm>

#include "base/json.h"

namespace cmforge {
namespace {

std::string_view DTypeWord(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kU8:
      return "U8";
    default:
      return {};
  }
}

}  // namespace

Result<void> WriteSafetensors(const TensorSource& source, std::span<const std::string> names,
                              AtomicFile& file, const RunControl& run,
                              const std::function<void(uint64_t)>& done) {
  std::vector<const TensorInfo*> infos;
  for (const std::string& name : names) infos.push_back(source.Find(name));
  std::stable_sort(infos.begin(), infos.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return ElementBytes(a->dtype) > ElementBytes(b->dtype);
  });
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t end = 0;
  for (const TensorInfo* info : infos) {
    const std::string_view word = DTypeWord(info->dtype);
    if (word.empty()) {
      return Fail(ErrorKind::kUsage, fmt::format("tensor '{}': {} is not a dtype of safetensors", info->name,
                                                 DTypeName(info->dtype)));
    }
    header[info->name] = {
        {"dtype", word}, {"shape", info->shape}, {"data_offsets", {end, end + info->nbytes}}};
    end += info->nbytes;
  }
  std::string text = DumpJson(header);
  text.resize(AlignUp(text.size(), 8), ' ');
  const Le<uint64_t> length(text.size());
  CMF_CHECK(file.Write(std::as_bytes(std::span(&length, 1))));
  CMF_CHECK(file.Write(AsBytes(text)));
  for (const TensorInfo* info : infos) {
    CMF_CHECK(run.CheckCancelled());
    CMF_TRY(const TensorView view, source.Read(info->name));
    CMF_CHECK(file.Write(view.bytes));
    done(view.bytes.size());
  }
  return {};
}

}  // namespace cmforge
