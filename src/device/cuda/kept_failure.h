// The first exception of work that runs where nobody can catch it, for those who wait for the work.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace piton {
class Device;
}

namespace piton::cuda {

// Thread-safe.
class KeptFailure {
 public:
  void keep(std::exception_ptr failure) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  void rethrow() const {
    const std::scoped_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

// The failure of all streams of `device`, which make_device() made. What is kept there is thrown by
// the next call on any stream, and by all waits: a communicator keeps there that a rank is lost,
// since results on any stream may depend on it.
std::shared_ptr<KeptFailure> failure_of(Device& device);

}  // namespace piton::cuda
