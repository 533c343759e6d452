#include "device/thread_stream.h"

#include <exception>
#include <utility>

#include "base/signals_blocked.h"
#include "device/settable_fence.h"

namespace piton {

// The first exception of a stream.
class ThreadStream::Failure {
 public:
  void keep(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  bool happened() const {
    const std::scoped_lock lock(mutex_);
    return failure_ != nullptr;
  }
  void rethrow() const {
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

class ThreadStream::RecordedFence final : public Fence {
 public:
  explicit RecordedFence(std::shared_ptr<const Failure> failure) : failure_(std::move(failure)) {}
  bool complete() const override { return reached_.complete(); }
  void wait() override {
    reached_.wait();
    failure_->rethrow();
  }
  void then(std::function<void()> work) override { reached_.then(std::move(work)); }
  void finish() { reached_.finish(); }

 private:
  SettableFence reached_;
  std::shared_ptr<const Failure> failure_;
};

ThreadStream::ThreadStream() : failure_(std::make_shared<Failure>()) {
  const SignalsBlocked for_thread;
  thread_ = std::thread([this] { serve(); });
}

ThreadStream::~ThreadStream() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Event ThreadStream::record() {
  failure_->rethrow();
  auto fence = std::make_shared<RecordedFence>(failure_);
  push({.fence = fence});
  return Event(std::move(fence));
}

void ThreadStream::enqueue(std::function<void()> work) { push({.work = std::move(work)}); }

void ThreadStream::follow(const Event& event) {
  push({.work = [event] { event.wait(); }});
}

void ThreadStream::push(Piece piece) {
  {
    const std::scoped_lock lock(mutex_);
    queue_.push_back(std::move(piece));
  }
  changed_.notify_all();
}

void ThreadStream::serve() {
  while (true) {
    Piece piece;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      piece = std::move(queue_.front());
      queue_.pop_front();
    }
    if (piece.fence) {
      piece.fence->finish();
    } else if (!failure_->happened()) {
      try {
        piece.work();
      } catch (...) {
        failure_->keep(std::current_exception());
      }
    }
  }
}

}  // namespace piton
