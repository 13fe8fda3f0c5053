// CheckedSource.
#include "cmf/checked_source.h"

#include "cmf/hash64.h"
#include "cmf/verify.h"

namespace cmforge::cmf {

Result<void> CheckPayload(const File& file, const TensorInfo& tensor, Bytes payload) {
  const TensorPlace& place = file.PlaceOf(tensor);
  const uint64_t actual = Hash64(payload);
  if (actual == place.hash) return {};
  return Fail(ErrorKind::kCorrupt,
              fmt::format("{}: tensor '{}': its hash is {}, {} is recorded: these bytes were changed",
                          file.parts()[static_cast<size_t>(place.part)].path, tensor.name, Hash64Hex(actual),
                          Hash64Hex(place.hash)));
}

Result<CheckedSource> CheckedSource::Of(const File& file) {
  for (const Part& part : file.parts()) CMF_CHECK(CheckSections(part));
  return CheckedSource(file);
}

Result<TensorView> CheckedSource::Read(std::string_view name) const {
  CMF_TRY(TensorView view, file_->Read(name));
  const TensorInfo* tensor = file_->Find(name);
  std::atomic<bool>& is_right = is_right_[static_cast<size_t>(tensor - file_->tensors().data())];
  if (!is_right) {
    CMF_CHECK(CheckPayload(*file_, *tensor, view.bytes));
    is_right = true;
  }
  return view;
}

}  // namespace cmforge::cmf
