// A TensorSource in memory, for tests: names, shapes, and bytes that count up (as 16-bit integers) from
// `first`.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/tensor_source.h"

namespace cmforge {

class FakeSource : public TensorSource {
 public:
  void Add(const std::string& name, Shape shape, uint16_t first = 0, DType dtype = DType::kBF16) {
    const auto count = static_cast<size_t>(ElementCount(shape).value());
    const auto size = static_cast<size_t>(ElementBytes(dtype));
    std::vector<std::byte> bytes(count * size);
    for (size_t i = 0; i < count && size == 2; ++i) StoreLe(&bytes[2 * i], static_cast<uint16_t>(first + i));
    infos_.push_back({name, dtype, std::move(shape), bytes.size()});
    bytes_[name] = std::move(bytes);
  }
  void Remove(const std::string& name) {
    std::erase_if(infos_, [&](const TensorInfo& info) { return info.name == name; });
  }

  [[nodiscard]] std::span<const TensorInfo> tensors() const override { return infos_; }
  [[nodiscard]] const TensorInfo* Find(std::string_view name) const override {
    const auto found =
        std::find_if(infos_.begin(), infos_.end(), [&](const TensorInfo& info) { return info.name == name; });
    return found == infos_.end() ? nullptr : &*found;
  }
  Result<TensorView> Read(std::string_view name) const override {
    const TensorInfo* info = Find(name);
    if (info == nullptr) return Fail(ErrorKind::kNotFound, "no such tensor");
    return TensorView{info->dtype, info->shape, bytes_.at(info->name), nullptr};
  }
  [[nodiscard]] std::string_view path() const override { return "fake"; }

 private:
  std::vector<TensorInfo> infos_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

/// A tensor's 16-bit numbers.
inline std::vector<int> Numbers(const TensorView& view) {
  std::vector<int> numbers;
  for (size_t i = 0; i + 1 < view.bytes.size(); i += 2) numbers.push_back(LoadLe<uint16_t>(&view.bytes[i]));
  return numbers;
}

}  // namespace cmforge
