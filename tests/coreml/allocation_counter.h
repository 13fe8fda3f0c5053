// Counts what this test program asks of operator new.
#pragma once

#include <cstdint>

namespace cmforge::coreml {

/// Sanitizers bring their own allocator: nothing is counted there.
extern const bool kCountsAllocations;
[[nodiscard]] int64_t Allocations();  // so far

}  // namespace cmforge::coreml
