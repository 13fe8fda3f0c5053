// Names of opsets and identifiers.
#include "mil/program.h"

#include <array>

namespace cmforge::mil {
namespace {

constexpr std::array kOpsets = {Opset::kIos15, Opset::kIos16, Opset::kIos17, Opset::kIos18, Opset::kIos26};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsFollower(char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '@'; }

}  // namespace

std::string OpsetCoreMlName(Opset opset) { return fmt::format("CoreML{}", static_cast<int>(opset)); }

std::string OpsetTag(Opset opset) {
  return fmt::format("ios{}", opset == Opset::kIos26 ? 26 : static_cast<int>(opset) + 10);
}

std::optional<Opset> OpsetFromName(std::string_view name) {
  for (const Opset opset : kOpsets) {
    if (name == OpsetCoreMlName(opset) || name == OpsetTag(opset)) return opset;
  }
  return std::nullopt;
}

bool IsIdentifier(std::string_view name) {
  if (name.empty() || !IsLetter(name[0])) return false;
  for (const char c : name) {
    if (!IsFollower(c)) return false;
  }
  return true;
}

std::string MakeIdentifier(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (!IsFollower(c)) c = '_';
  }
  if (out.empty() || !IsLetter(out[0])) out.insert(out.begin(), '_');
  return out;
}

}  // namespace cmforge::mil
