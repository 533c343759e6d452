// A thread that looks at pending operations and ends them if they cannot finish. Internal to this
// folder.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/nccl/library.h"
#include "comm/rendezvous/rendezvous.h"
#include "device/cuda/kept_failure.h"
#include "device/device.h"

namespace piton::nccl {

class Watch {
 public:
  struct Operation {
    std::string text;  // "group data: all-reduce number 12 of fp32 [1000]"
    Event ready;       // its input exists
    Event done;
  };

  // Also watches `rendezvous`, which has to live longer.
  Watch(const Library& library, Rendezvous& rendezvous, std::shared_ptr<cuda::KeptFailure> failure,
        double timeout_seconds);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  void add(Comm comm, const std::string& group);
  // Ends the watching of `comm` and destroys it; after a failure it is destroyed already.
  void destroy(Comm comm);
  void expect(Comm comm, Operation operation);

  // Keeps `why` as the failure of the device and aborts all communicators. The first call counts.
  void fail(const std::string& why);
  std::optional<std::string> failure() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::string group;
    std::deque<Operation> operations;
    std::optional<Clock::time_point> since;  // the first operation is ready
  };
  void run();
  // The reason why `watched` cannot continue, if there is one. Removes finished operations.
  std::optional<std::string> look(Comm comm, Watched& watched);

  const Library& library_;
  Rendezvous& rendezvous_;
  std::shared_ptr<cuda::KeptFailure> device_failure_;
  std::chrono::duration<double> timeout_;
  mutable std::mutex mutex_;  // guards the next two
  std::map<Comm, Watched> watched_;
  std::optional<std::string> failure_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace piton::nccl
