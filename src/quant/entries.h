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
extern const Encoding kVbitEncoding;
extern const Encoding kQ8TwoFieldEncoding;
extern const Encoding kVbitRoEncoding;
extern const Encoding kQ4TiledEncoding;
extern const Encoding kQ1Encoding;
extern const Encoding kQ1sEncoding;
extern const Encoding kQ1tEncoding;
extern const Encoding kQ4tpEncoding;
extern const Encoding kQ2tpEncoding;

}  // namespace cmforge
