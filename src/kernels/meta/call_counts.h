// How often each kernel call ran, its multiply-adds and its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "kernels/kernels.h"

namespace piton {

struct CallCount {
  std::int64_t calls = 0;
  double flops = 0;              // as flops(call) says
  std::int64_t bytes_moved = 0;  // as bytes_moved(call) says
};

// Not thread-safe: one for each host thread that submits calls.
class CallCounts {
 public:
  void add(const KernelCall& call);
  void clear() { counts_.clear(); }

  // Zeros for a name that never ran.
  CallCount of(std::string_view name) const;
  CallCount total() const;
  // By kName of the call.
  const std::map<std::string, CallCount, std::less<>>& by_name() const { return counts_; }

 private:
  std::map<std::string, CallCount, std::less<>> counts_;
};

}  // namespace piton
