// Just enough of the CMF container to get at the tensors of a fixture file: envelope, directory, hash64. The
// product's own reader is a higher room, so this one trusts its input.
#pragma once

#include <string>
#include <vector>

#include "quant/cases.h"

namespace cmforge {

inline uint64_t Hash64(Bytes bytes) {
  const auto mix = [](uint64_t x) {
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
    return x ^ x >> 33;
  };
  uint64_t sum = 0, i = 0;
  for (size_t at = 0; at < bytes.size(); at += 8, ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    sum ^= mix(word) ^ i * 0x9E3779B97F4A7C15u;
  }
  return mix(sum ^ bytes.size());
}

inline std::string Hash64Hex(Bytes bytes) { return fmt::format("{:016x}", Hash64(bytes)); }

inline std::string FloatHash(const std::vector<float>& values) {
  return Hash64Hex(std::as_bytes(std::span(values)));
}

struct NamedTensor {
  std::string name;
  TensorView view;
};

inline std::vector<NamedTensor> ReadCmfTensors(const std::string& path) {
  const std::string text = ReadText(path);
  auto file = std::make_shared<ByteVector>(AsBytes(text).begin(), AsBytes(text).end());
  std::vector<NamedTensor> tensors;
  if (file->size() < 128) {
    ADD_FAILURE() << path << " is no CMF file";
    return tensors;
  }
  const std::byte* directory = file->data() + LoadLe<uint64_t>(file->data() + 0x20);
  const auto data_offset = LoadLe<uint64_t>(file->data() + 0x30);
  const std::byte* pool = directory + LoadLe<uint64_t>(directory + 8);
  for (uint64_t i = 0; i < LoadLe<uint64_t>(directory); ++i) {
    const std::byte* record = directory + 16 + i * 56;
    NamedTensor tensor;
    tensor.name = AsText({pool + LoadLe<uint32_t>(record), LoadLe<uint16_t>(record + 4)});
    tensor.view.dtype = static_cast<DType>(record[6]);
    for (int d = 0; d < std::to_integer<int>(record[7]); ++d)
      tensor.view.shape.push_back(LoadLe<uint32_t>(record + 8 + 4 * d));
    tensor.view.bytes =
        Bytes(*file).subspan(data_offset + LoadLe<uint64_t>(record + 32), LoadLe<uint64_t>(record + 40));
    tensor.view.owner = file;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// The tensors of a bf16 safetensors file.
inline std::vector<NamedTensor> ReadBf16Safetensors(const std::string& path) {
  const std::string text = ReadText(path);
  auto file = std::make_shared<ByteVector>(AsBytes(text).begin(), AsBytes(text).end());
  const auto header_size = LoadLe<uint64_t>(file->data());
  const auto header = ParseJson(text.substr(8, header_size), path);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry["dtype"], "BF16") << name;
    const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
    tensors.push_back({name,
                       {DType::kBF16, entry["shape"].get<Shape>(),
                        Bytes(*file).subspan(8 + header_size + begin, end - begin), file}});
  }
  return tensors;
}

}  // namespace cmforge
