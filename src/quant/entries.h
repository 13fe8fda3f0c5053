// Every entry of the table of encodings, each defined in the file of its name.
#pragma once

#include "quant/encoding.h"

namespace cmforge {

extern const Encoding kF32Encoding;
extern const Encoding kF16Encoding;
extern const Encoding kBf16Encoding;
extern const Encoding kU8Encoding;
extern const Encoding kQ8RowEncoding;
extern const Encoding kQ4BlockEncoding;
extern const Encoding kQ4TiledEncoding;

}  // namespace cmforge
