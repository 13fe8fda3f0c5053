// Products that skip groups of columns, against the products over all columns with zeros in those places.
#include "kernels/live_groups.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "random_weight.h"

namespace cmforge {
namespace {

constexpr int64_t kGroupColumns = 32;

std::vector<float> MultiplyLive(KernelContext& context, const LinearWeight& weight,
                                const std::vector<float>& x, int64_t tokens, ComputeMode mode,
                                std::span<const int32_t> groups, std::span<const int32_t> which = {}) {
  const int64_t count = which.empty() ? tokens : static_cast<int64_t>(which.size());
  std::vector<float> y(static_cast<size_t>(count * weight.rows()), NAN);
  Activations input;
  input.Set(x.data(), tokens, weight.cols());
  MatMulJob job;
  job.weight = &weight;
  job.input = &input;
  job.out = y.data();
  job.out_stride = weight.rows();
  job.groups = groups;
  job.tokens = which;
  MatMul(context, std::span(&job, 1), mode);
  return y;
}

std::vector<int32_t> SomeGroups(int64_t cols, unsigned seed) {
  std::vector<int32_t> groups;
  for (int64_t g = 0; g * kGroupColumns < cols; ++g) {
    seed = seed * 1103515245 + 12345;
    if ((seed >> 20 & 1) != 0) groups.push_back(static_cast<int32_t>(g));
  }
  if (groups.empty()) groups.push_back(0);
  return groups;
}

/// Zero outside the groups.
std::vector<float> Zeroed(std::vector<float> x, int64_t cols, const std::vector<int32_t>& groups) {
  for (size_t i = 0; i < x.size(); ++i) {
    const auto g = static_cast<int32_t>(static_cast<int64_t>(i) % cols / kGroupColumns);
    if (!std::binary_search(groups.begin(), groups.end(), g)) x[i] = 0;
  }
  return x;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LiveGroups, GiveWhatZerosGiveForEveryEncoding) {
  ThreadPool pool(1);
  for (const Isa isa : IsasThatRun()) {
    KernelContext context(pool, isa);
    for (const DType dtype : kMatrixTypes) {
      for (const int64_t cols : {32, 100, 160, 1056}) {
        const int64_t rows = 13;
        if (!IsStorable(dtype, rows, cols)) continue;
        const LinearWeight weight =
            MakeWeight(WeightMaker(static_cast<uint64_t>(cols)).Make(dtype, rows, cols));
        for (const ComputeMode mode : {ComputeMode::kFast, ComputeMode::kExact}) {
          if (!CanSkipGroups(weight, mode)) continue;
          for (const int64_t tokens : {1, 9}) {
            SCOPED_TRACE(
                fmt::format("{} {} [{}, {}] {} tokens", IsaName(isa), DTypeName(dtype), rows, cols, tokens));
            const auto groups = SomeGroups(cols, static_cast<unsigned>(cols + tokens));
            const auto x = Zeroed(WeightMaker(5).Floats(tokens * cols), cols, groups);
            const auto dense = Multiply(context, weight, x, tokens, mode);
            const auto live = MultiplyLive(context, weight, x, tokens, mode, groups);
            double largest = 0;
            for (const float v : dense) largest = std::max(largest, std::fabs(static_cast<double>(v)));
            for (size_t i = 0; i < dense.size(); ++i)
              ASSERT_NEAR(live[i], dense[i], 4e-6 * (largest + 1)) << i;
          }
        }
      }
    }
  }
}

TEST(LiveGroups, EveryEncodingCanSkipInFastMode) {
  for (const DType dtype : kMatrixTypes) {
    const LinearWeight weight = MakeWeight(WeightMaker(1).Make(dtype, 4, 64));
    EXPECT_TRUE(CanSkipGroups(weight, ComputeMode::kFast)) << DTypeName(dtype);
  }
}

TEST(LiveGroups, InstructionSetsAgreeAndNoSplitChangesABit) {
  ThreadPool one(1), three(3);
  KernelContext reference(one, Isa::kReference);
  for (const DType dtype : kMatrixTypes) {
    const int64_t rows = 151, cols = 416, tokens = 11;
    const LinearWeight weight = MakeWeight(WeightMaker(3).Make(dtype, rows, cols));
    const auto groups = SomeGroups(cols, 9);
    const auto x = WeightMaker(4).Floats(tokens * cols);
    SCOPED_TRACE(DTypeName(dtype));
    const auto want = MultiplyLive(reference, weight, x, tokens, ComputeMode::kFast, groups);
    for (const Isa isa : IsasThatRun()) {
      KernelContext context(three, isa);
      EXPECT_TRUE(SameBits(MultiplyLive(context, weight, x, tokens, ComputeMode::kFast, groups), want))
          << IsaName(isa);
      const std::vector<int32_t> some = {7, 0, 10};
      const auto part = MultiplyLive(context, weight, x, tokens, ComputeMode::kFast, groups, some);
      for (size_t i = 0; i < some.size(); ++i) {
        EXPECT_TRUE(std::equal(part.begin() + static_cast<int64_t>(i) * rows,
                               part.begin() + static_cast<int64_t>(i + 1) * rows,
                               want.begin() + some[i] * rows))
            << IsaName(isa);
      }
    }
  }
}

// What lies in a dead group does not matter, even where multiplying it by zero would: it is not looked at.
TEST(LiveGroups, DeadGroupsAreNotRead) {
  ThreadPool pool(1);
  for (const auto& [dtype, group_bytes] : {std::pair{DType::kF32, 128},
                                           {DType::kF16, 64},
                                           {DType::kBF16, 64},
                                           {DType::kQ4Tiled, 18},
                                           {DType::kQ1, 6}}) {
    const int64_t rows = 5, cols = 256;
    TensorView view = WeightMaker(2).Make(dtype, rows, cols);
    const std::vector<int32_t> groups = {1, 2, 6};
    auto poisoned = std::make_shared<Payload>(view.bytes.begin(), view.bytes.end());
    for (int64_t g = 0; g < rows * cols / 32; ++g) {
      if (std::binary_search(groups.begin(), groups.end(), static_cast<int32_t>(g % (cols / 32)))) continue;
      std::fill_n(poisoned->begin() + g * group_bytes, group_bytes,
                  std::byte{0xFF});  // NaN scales, NaN weights
    }
    TensorView bad = view;
    bad.bytes = *poisoned;
    bad.owner = poisoned;
    const auto x = WeightMaker(6).Floats(2 * cols);
    for (const Isa isa : IsasThatRun()) {
      KernelContext context(pool, isa);
      EXPECT_TRUE(SameBits(MultiplyLive(context, MakeWeight(view), x, 2, ComputeMode::kFast, groups),
                           MultiplyLive(context, MakeWeight(bad), x, 2, ComputeMode::kFast, groups)))
          << DTypeName(dtype) << " " << IsaName(isa);
    }
  }
}

}  // namespace
}  // namespace cmforge
