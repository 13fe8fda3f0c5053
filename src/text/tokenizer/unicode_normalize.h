// The four Unicode normal forms as the reference library computes them (its tables are of about Unicode 10).
#pragma once

#include <string>
#include <string_view>

namespace cmforge {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// True when `text` certainly is in the form (a quick look; false means "perhaps not").
[[nodiscard]] bool IsSurelyNormal(std::string_view text, NormalForm form);

/// Appends the normal form of `text` (well-formed) to `out`.
void AppendNormalized(std::string_view text, NormalForm form, std::string& out);

}  // namespace cmforge
