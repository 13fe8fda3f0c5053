// Weight files by name.
#include "mil/weights.h"

namespace cmforge::mil {

Result<const BlobFile*> Weights::File(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second.get();
  constexpr std::string_view kPrefix = "@model_path/";
  const std::filesystem::path inside(std::string_view(name).starts_with(kPrefix) ? name.substr(kPrefix.size())
                                                                                 : name);
  bool is_inside = !inside.empty() && inside.is_relative();
  for (const auto& part : inside) is_inside = is_inside && part != "..";
  if (!is_inside || name.find('\0') != std::string::npos) {
    return Fail(ErrorKind::kCorrupt, fmt::format("weight file '{}' leaves the model's folder", name));
  }
  std::error_code ignored;
  if (const auto path = model_path_ / inside; !std::filesystem::exists(path, ignored))
    return Fail(ErrorKind::kNotFound, fmt::format("{}: the weight file is not there", path.string()));
  CMF_TRY(BlobFile file, BlobFile::Open(model_path_ / inside, mode_));
  return (files_[name] = std::make_unique<BlobFile>(std::move(file))).get();
}

Result<Bytes> Weights::Data(const Value& value) const {
  if (const TensorData* data = value.tensor()) return Bytes(data->bytes);
  const BlobRef* blob = value.blob();
  if (!blob || !value.type.is_tensor())
    return Fail(ErrorKind::kCorrupt, fmt::format("{} has no bytes", TypeText(value.type)));
  CMF_TRY(const BlobFile* file, File(blob->file));
  return file->Tensor(blob->offset, value.type.tensor);
}

Result<Value> Weights::Immediate(const Value& value, uint64_t max_bytes) const {
  if (!value.blob()) return value;
  CMF_TRY(const Bytes bytes, Data(value));
  if (bytes.size() > max_bytes) {
    return Fail(ErrorKind::kLimit, fmt::format("{} bytes where a small constant is wanted", bytes.size()));
  }
  return Raw(value.type.tensor, std::vector<std::byte>(bytes.begin(), bytes.end()));
}

}  // namespace cmforge::mil
