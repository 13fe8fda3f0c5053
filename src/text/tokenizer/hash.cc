// The seed of the hash tables.
#include "text/tokenizer/hash.h"

#include <random>

namespace cmforge {

uint64_t HashSeed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

}  // namespace cmforge
