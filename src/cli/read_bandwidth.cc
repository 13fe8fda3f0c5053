// The kernels' plain read loop over the weights, by all threads.
#include "cli/read_bandwidth.h"

#include <algorithm>
#include <chrono>

#include "kernels/read_loop.h"

namespace cmforge::cli {
namespace {

constexpr size_t kPiece = size_t{512} << 10;  // as long as a decode task's four streams together

}  // namespace

std::vector<TensorView> WeightPages(const TensorSource* source, uint64_t limit_bytes) {
  std::vector<const TensorInfo*> tensors;
  if (source != nullptr) {
    for (const TensorInfo& tensor : source->tensors()) tensors.push_back(&tensor);
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorInfo* a, const TensorInfo* b) { return a->nbytes > b->nbytes; });
  std::vector<TensorView> pages;
  uint64_t total = 0;
  for (const TensorInfo* tensor : tensors) {
    if (total >= limit_bytes) break;
    auto view = source->Read(tensor->name);
    if (!view || view->owner != nullptr) continue;
    total += view->bytes.size();
    pages.push_back(*std::move(view));
  }
  if (pages.empty()) {
    const auto memory = std::make_shared<std::vector<std::byte>>(size_t{512} << 20);
    TensorView view;
    view.bytes = *memory;
    view.owner = memory;
    pages.push_back(std::move(view));
  }
  return pages;
}

double MeasureReadBandwidth(ThreadPool& pool, const std::vector<TensorView>& pages, int passes) {
  std::vector<Bytes> pieces;
  size_t size = 0;
  for (const TensorView& view : pages) {
    for (size_t at = 0; at < view.bytes.size(); at += kPiece) {
      pieces.push_back(view.bytes.subspan(at, std::min(kPiece, view.bytes.size() - at)));
    }
    size += view.bytes.size();
  }
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const auto begun = std::chrono::steady_clock::now();
    pool.Run(static_cast<int64_t>(pieces.size()),
             [&](int64_t i, int) { sink += ReadAll(pieces[static_cast<size_t>(i)]); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    best = std::max(best, static_cast<double>(size) / seconds / 1e9);
  }
  return best;
}

}  // namespace cmforge::cli
