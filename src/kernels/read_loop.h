// The plain read loop that kernels are measured against: what memory gives to a thread that does nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cmforge {

/// Reads every byte once, in four streams as the products of few tokens do, prefetched where this processor wants it.
/// Returns a sum, so that nothing is left out.
[[nodiscard]] uint64_t ReadAll(std::span<const std::byte> bytes);

}  // namespace cmforge
