// A buffer to read a file into. It begins on a page: where a block of malloc begins (16 bytes into a page), the
// copy out of the page cache runs at a quarter of its rate on Zen 3 (`rep movsb`, whose target lies less than a
// cache line behind its source in their pages).
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace cmforge {

class PageBuffer {
 public:
  PageBuffer() = default;
  explicit PageBuffer(size_t size) : data_(new (kPage) std::byte[size]), size_(size) {}  // contents undefined

  [[nodiscard]] std::span<std::byte> first(size_t count) {
    return std::span(data_.get(), size_).first(count);
  }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* data) const { ::operator delete[](data, kPage); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

}  // namespace cmforge
