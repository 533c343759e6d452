// Used-up buffers that other threads fill again: their memory is in the process already, and asking
// the system for a megabyte and giving it back costs more than writing it.
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
  // One that was given, or a new one. Its contents are what they were.
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
  // What one reader, some workers and a writer have in their hands; more would only hold memory.
  static constexpr std::size_t kMost = 8;
  std::mutex mutex_;
  std::vector<T> kept_;
};

}  // namespace piton
