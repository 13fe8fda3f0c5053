// Range checks and UTF-8 validation for untrusted bytes.
#include "base/bytes.h"

namespace cmforge {

Result<ByteRange> ByteRange::Checked(uint64_t offset, uint64_t size, uint64_t limit, std::string_view what) {
  if (offset > limit || size > limit - offset) {
    return Fail(ErrorKind::kCorrupt,
                fmt::format("{}: bytes {} + {} leave the {} that are there", what, offset, size, limit),
                "Bounds");
  }
  return ByteRange{offset, size};
}

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = p + text.size();
  while (p < end) {
    const unsigned char lead = *p++;
    if (lead < 0x80) continue;
    int follow = 0;
    unsigned char low = 0x80, high = 0xBF;  // allowed range of the first continuation byte
    if (lead >= 0xC2 && lead <= 0xDF) {
      follow = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      follow = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      follow = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    if (end - p < follow || *p < low || *p > high) return false;
    for (++p; --follow > 0; ++p) {
      if (*p < 0x80 || *p > 0xBF) return false;
    }
  }
  return true;
}

}  // namespace cmforge
