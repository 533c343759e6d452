// Pool of working memory that is borrowed for one call. A thread gets what it used last, if that is
// free: its table of seen words is in the cache of its core, and fetching a table from another core
// costs more than tokenizing a document.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace piton {

template <typename Scratch>
class ScratchPool {
 public:
  class Loan {
   public:
    // `make` gives a new Scratch when all are in use.
    template <typename Make>
    Loan(ScratchPool& pool, const Make& make) : pool_(&pool), scratch_(pool.take()) {
      if (scratch_ == nullptr) scratch_ = make();
    }
    ~Loan() { pool_->give(std::move(scratch_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool* pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  struct Resting {
    std::thread::id last;
    std::unique_ptr<Scratch> scratch;
  };

  // A thread without one gets the one unused longest: its thread may have ended.
  std::unique_ptr<Scratch> take() {
    const auto me = std::this_thread::get_id();
    const std::lock_guard lock(mutex_);
    if (resting_.empty()) return nullptr;
    auto found = std::find_if(resting_.begin(), resting_.end(),
                              [&](const Resting& one) { return one.last == me; });
    if (found == resting_.end()) found = resting_.begin();
    std::unique_ptr<Scratch> scratch = std::move(found->scratch);
    resting_.erase(found);
    return scratch;
  }

  void give(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    resting_.push_back({std::this_thread::get_id(), std::move(scratch)});
  }

  std::mutex mutex_;
  std::vector<Resting> resting_;  // unused longest first
};

}  // namespace piton
