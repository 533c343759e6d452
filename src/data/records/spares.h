// Pool of reusable buffers. Their memory is already mapped; allocating and freeing a megabyte costs
// more than writing it.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace piton {

// T is movable and default-constructible.
template <typename T>
class Spares {
 public:
  // Returns a pooled buffer with its old contents, or a new one.
  T take() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty()) return T();
    T one = std::move(kept_.back());
    kept_.pop_back();
    return one;
  }
  void give(T one) {
    const std::lock_guard lock(mutex_);
    if (kept_.size() < kMost) kept_.push_back(std::move(one));
  }

 private:
  // As many as a reader, some workers and a writer use; more would only occupy memory.
  static constexpr std::size_t kMost = 8;
  std::mutex mutex_;
  std::vector<T> kept_;
};

}  // namespace piton
