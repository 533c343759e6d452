// A fence that completes when finish() is called.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "device/device.h"

namespace piton {

class SettableFence final : public Fence {
 public:
  bool complete() const override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }
  void then(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      if (!done_) return work_.push_back(std::move(work));
    }
    work();
  }
  void finish() {
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      work = std::move(work_);
    }
    changed_.notify_all();
    for (const auto& one : work) one();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> work_;
  bool done_ = false;
};

}  // namespace piton
