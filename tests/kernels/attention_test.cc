// Attention over cache pages: against f64 softmax, for every cache type and instruction set, and bit-equal
// however queries are grouped.
#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/elementwise.h"

namespace cmforge {
namespace {

struct Problem {
  KvPageLayout layout;
  int64_t positions = 0, queries = 0;
  std::vector<std::vector<std::byte>> pages;
  std::vector<const std::byte*> page_pointers;
  std::vector<float> q;
  std::vector<int64_t> first, last;

  Problem(KvType type, int64_t key_dim, int64_t value_dim, int64_t positions_in, int64_t queries_in,
          int64_t window)
      : layout(type, key_dim, value_dim), positions(positions_in), queries(queries_in) {
    std::mt19937 rng(static_cast<unsigned>(positions * 7 + key_dim));
    std::normal_distribution<float> normal;
    for (int64_t p = 0; p < positions; ++p) {
      if (p % kPagePositions == 0) pages.emplace_back(static_cast<size_t>(layout.bytes));
      std::vector<float> key(static_cast<size_t>(key_dim)), value(static_cast<size_t>(value_dim));
      for (auto& x : key) x = normal(rng);
      for (auto& x : value) x = normal(rng);
      FloatKernelsThatRun().front()->store_kv(layout, pages.back().data(), p % kPagePositions, 1, key.data(),
                                              0, value.data(), 0);
    }
    for (const auto& page : pages) page_pointers.push_back(page.data());
    q.resize(static_cast<size_t>(queries * key_dim));
    for (auto& x : q) x = normal(rng);
    for (int64_t n = 0; n < queries; ++n) {
      last.push_back(positions - queries + n);
      first.push_back(window > 0 ? std::max<int64_t>(0, last.back() - window + 1) : 0);
    }
  }

  /// The kernel over all positions, in calls of `group` queries and key ranges of `range` positions.
  std::vector<float> Run(const FloatKernels& kernels, int64_t group, int64_t range, float softcap) const {
    std::vector<float> out(static_cast<size_t>(queries * layout.value_dim)), acc(out.size()),
        part(out.size());
    std::vector<float> room(static_cast<size_t>(UnpackedFloats(layout)));
    std::vector<AttendQuery> whole(static_cast<size_t>(queries));
    for (int64_t n = 0; n < queries; ++n) {
      auto& query = whole[static_cast<size_t>(n)];
      query.q = q.data() + n * layout.key_dim;
      query.first = first[static_cast<size_t>(n)];
      query.last = last[static_cast<size_t>(n)];
      query.acc = acc.data() + n * layout.value_dim;
      AttendBegin(query, layout.value_dim);
    }
    for (int64_t begin = 0; begin < positions; begin += range) {
      for (int64_t n = 0; n < queries; n += group) {
        const int64_t count = std::min(group, queries - n);
        std::vector<AttendQuery> some(whole.begin() + n, whole.begin() + n + count);
        for (int64_t i = 0; i < count; ++i) {
          some[static_cast<size_t>(i)].acc = part.data() + (n + i) * layout.value_dim;
          AttendBegin(some[static_cast<size_t>(i)], layout.value_dim);
        }
        AttendArgs args;
        args.layout = &layout;
        args.scale = 0.3f;
        args.softcap = softcap;
        args.queries = some.data();
        args.count = count;
        args.pages = page_pointers.data();
        args.begin = begin;
        if (group > 4) args.unpacked = room.data();
        args.end = std::min(positions, begin + range);
        kernels.attend(args);
        for (int64_t i = 0; i < count; ++i) {
          AttendMerge(whole[static_cast<size_t>(n + i)], some[static_cast<size_t>(i)], layout.value_dim);
        }
      }
    }
    for (int64_t n = 0; n < queries; ++n) {
      AttendFinish(whole[static_cast<size_t>(n)], layout.value_dim, out.data() + n * layout.value_dim);
    }
    return out;
  }

  std::vector<double> Want(float softcap) const {
    std::vector<double> out;
    std::vector<float> key(static_cast<size_t>(layout.key_dim)), value(static_cast<size_t>(layout.value_dim));
    for (int64_t n = 0; n < queries; ++n) {
      double sum = 0;
      std::vector<double> acc(value.size());
      for (int64_t p = first[static_cast<size_t>(n)]; p <= last[static_cast<size_t>(n)]; ++p) {
        layout.Load(pages[static_cast<size_t>(p / kPagePositions)].data(), p % kPagePositions, key.data(),
                    value.data());
        double score = 0;
        for (size_t d = 0; d < key.size(); ++d) {
          score +=
              static_cast<double>(key[d]) * static_cast<double>(q[static_cast<size_t>(n) * key.size() + d]);
        }
        score *= static_cast<double>(0.3f);
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        const double weight = std::exp(score);
        sum += weight;
        for (size_t d = 0; d < value.size(); ++d) acc[d] += weight * static_cast<double>(value[d]);
      }
      for (const double a : acc) out.push_back(a / sum);
    }
    return out;
  }
};

TEST(Attention, MatchesSoftmaxForEveryCacheTypeShapeAndInstructionSet) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair<int64_t, int64_t>{16, 16}, {32, 32}, {80, 80}, {20, 33}, {128, 128}}) {
      for (const int64_t window : {0, 1, 8, 100}) {
        for (const int64_t positions : {1, 15, 64, 65, 200}) {
          const int64_t queries = std::min<int64_t>(positions, 11);
          const Problem problem(type, key_dim, value_dim, positions, queries, window);
          for (const float softcap : {0.0f, 2.0f}) {
            const auto want = problem.Want(softcap);
            std::vector<float> first;
            for (const auto* kernels : FloatKernelsThatRun()) {
              const auto got = problem.Run(*kernels, queries, 1024, softcap);
              for (size_t i = 0; i < want.size(); ++i) {
                ASSERT_NEAR(want[i], got[i], 1e-5) << kernels->isa << " dims " << key_dim << " window "
                                                   << window << " positions " << positions;
              }
              if (first.empty()) first = got;
              ASSERT_EQ(0, std::memcmp(first.data(), got.data(), got.size() * sizeof(float))) << kernels->isa;
            }
          }
        }
      }
    }
  }
}

TEST(Attention, GroupingOfQueriesChangesNoBitAndKeyRangesMerge) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const Problem problem(type, 48, 48, 300, 75, 0);
    const auto& kernels = *FloatKernelsThatRun().back();
    const auto want = problem.Run(kernels, 1, 1024, 0);
    for (const int64_t group : {2, 3, 4, 7, 11, 75}) {
      const auto got = problem.Run(kernels, group, 1024, 0);
      EXPECT_EQ(0, std::memcmp(want.data(), got.data(), got.size() * sizeof(float))) << group;
    }
    const auto merged = problem.Run(kernels, 3, 128, 0);
    for (size_t i = 0; i < merged.size(); ++i) EXPECT_NEAR(want[i], merged[i], 2e-6);
  }
}

TEST(Attention, CachesGiveBackWhatWasStoredWithinTheirPrecision) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const KvPageLayout layout(type, 50, 70);
    std::vector<std::byte> page(static_cast<size_t>(layout.bytes));
    std::vector<float> key(50), value(70), key_back(50), value_back(70);
    for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<float>(i) - 20.5f;
    for (size_t i = 0; i < value.size(); ++i) value[i] = i == 3 ? 0 : 1.0f / static_cast<float>(i + 1);
    for (int64_t slot = 0; slot < kPagePositions; ++slot)
      FloatKernelsThatRun().front()->store_kv(layout, page.data(), slot, 1, key.data(), 0, value.data(), 0);
    for (const auto* kernels : FloatKernelsThatRun()) {
      std::vector<std::byte> other(page.size());
      for (int64_t slot = 0; slot < kPagePositions; ++slot)
        kernels->store_kv(layout, other.data(), slot, 1, key.data(), 0, value.data(), 0);
      EXPECT_EQ(page, other) << kernels->isa;
    }
    const float step = type == KvType::kF32 ? 0 : type == KvType::kF16 ? 0x1p-11f : 0.5f / 127;
    for (const int64_t slot : {0, 17, 63}) {
      layout.Load(page.data(), slot, key_back.data(), value_back.data());
      for (size_t i = 0; i < key.size(); ++i) EXPECT_NEAR(key[i], key_back[i], step * 30);
      for (size_t i = 0; i < value.size(); ++i) EXPECT_NEAR(value[i], value_back[i], step);
    }
  }
}

TEST(Attention, PositionsStoredTogetherAreThoseStoredOneByOne) {
  constexpr int64_t kKeyStride = 130, kValueStride = 75;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> keys(kPagePositions * kKeyStride), values(kPagePositions * kValueStride);
  for (auto& x : keys) x = normal(rng);
  for (auto& x : values) x = normal(rng);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (const int64_t key_dim : {16, 20, 48, 128}) {
      const KvPageLayout layout(type, key_dim, 70);
      std::vector<std::byte> want(static_cast<size_t>(layout.bytes));
      for (int64_t slot = 0; slot < kPagePositions; ++slot) {
        FloatKernelsThatRun().front()->store_kv(layout, want.data(), slot, 1, keys.data() + slot * kKeyStride,
                                                0, values.data() + slot * kValueStride, 0);
      }
      for (const auto* kernels : FloatKernelsThatRun()) {
        for (const int64_t piece : {1, 5, 16, 24, 64}) {
          std::vector<std::byte> got(want.size());
          for (int64_t slot = 0; slot < kPagePositions; slot += piece) {
            kernels->store_kv(layout, got.data(), slot, std::min(piece, kPagePositions - slot),
                              keys.data() + slot * kKeyStride, kKeyStride,
                              values.data() + slot * kValueStride, kValueStride);
          }
          EXPECT_EQ(want, got) << kernels->isa << " dims " << key_dim << " by " << piece;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cmforge
