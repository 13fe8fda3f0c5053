// A hash map from names, asked with string_views without making strings of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace cmforge {

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};

template <class T>
using NameTable = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

}  // namespace cmforge
