// Measures the wall time of each kernel call of another back end.
//
// Waits for every call, so times that a device would overlap are added up. On the host, where a
// call is complete when it returns, the timer adds well under a microsecond per call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "kernels/measured/forwarding_kernels.h"

namespace piton {

struct CallTime {
  std::string name;  // kName of the call
  std::int64_t calls = 0;
  double seconds = 0;            // wall time, summed
  double flops = 0;              // as flops(call) says, summed
  std::int64_t bytes_moved = 0;  // as bytes_moved(call) says, summed
};

// "linear forward y bf16 [1024, 768], x bf16 [1024, 3072], ...": the same text for calls with the
// same work.
std::string describe(const KernelCall& call);

// Not thread-safe: one for each host thread that submits calls.
class TimedKernels final : public ForwardingKernels {
 public:
  // `inner` must outlive it.
  explicit TimedKernels(Kernels& inner) : ForwardingKernels(inner) {}

  // By describe() of the call.
  const std::map<std::string, CallTime, std::less<>>& by_call() const { return times_; }
  // The same, summed by name of the call.
  std::map<std::string, CallTime, std::less<>> by_name() const;
  double seconds() const;  // of all calls
  void clear() { times_.clear(); }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  std::map<std::string, CallTime, std::less<>> times_;
};

}  // namespace piton
