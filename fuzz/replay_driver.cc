// Stands in for libFuzzer where the compiler has none: runs the target on every file of the given folders
// and, for a few seconds, on mutations of them from a fixed seed, so that sanitizer builds test hostile bytes
// too. CMFORGE_FUZZ_SECONDS bounds the time (default 3).
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

void Mutate(Input& input, std::mt19937& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % (n ? n : 1)); };
  for (size_t edits = 1 + below(4); edits-- > 0;) {
    switch (below(7)) {
      case 0:  // flip a bit
        if (!input.empty()) input[below(input.size())] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:  // an interesting byte
        if (!input.empty())
          input[below(input.size())] = std::to_array<uint8_t>({0, 1, 127, 128, 255})[below(5)];
        break;
      case 2:  // cut
        input.resize(below(input.size() + 1));
        break;
      case 3: {  // overwrite eight bytes with a hostile number
        const uint64_t value =
            std::to_array<uint64_t>({0, 1, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32, 0x7FFFFFFF,
                                     ~uint64_t{0} - 63})[below(7)];
        if (input.size() >= 8) {
          const size_t at = below(input.size() - 7);
          for (int i = 0; i < 8; ++i)
            input[at + static_cast<size_t>(i)] = static_cast<uint8_t>(value >> (8 * i));
        }
        break;
      }
      case 4:  // drop one byte
        if (!input.empty()) input.erase(input.begin() + static_cast<std::ptrdiff_t>(below(input.size())));
        break;
      case 5:  // insert one
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)),
                     static_cast<uint8_t>(random()));
        break;
      case 6: {  // repeat a piece
        if (input.empty() || input.size() > (1u << 20)) break;
        const size_t from = below(input.size());
        const Input piece(
            input.begin() + static_cast<std::ptrdiff_t>(from),
            input.begin() + static_cast<std::ptrdiff_t>(std::min(input.size(), from + 1 + below(64))));
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)), piece.begin(),
                     piece.end());
        break;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Input> seeds;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::exists(argv[i])) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  seeds.emplace_back();
  for (const Input& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());

  const char* wanted = std::getenv("CMFORGE_FUZZ_SECONDS");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(wanted ? std::atoi(wanted) : 3);
  std::mt19937 random(1);
  int64_t runs = 0;
  while (std::chrono::steady_clock::now() < until) {
    Input input = seeds[random() % seeds.size()];
    Mutate(input, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  std::printf("%zu seeds, %lld mutations\n", seeds.size(), static_cast<long long>(runs));
  return 0;
}
