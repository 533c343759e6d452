#include "kernels/measured/timed_kernels.h"

#include <chrono>

namespace piton {

std::string describe(const KernelCall& call) {
  std::string text(name(call));
  std::string_view separator = "  ";
  for_each_tensor(call, [&](std::string_view tensor_name, const Tensor& tensor, Access) {
    text += separator;
    text += tensor_name;
    text += ' ';
    text += to_string(tensor);
    separator = ", ";
  });
  return text;
}

std::map<std::string, CallTime, std::less<>> TimedKernels::by_name() const {
  std::map<std::string, CallTime, std::less<>> sums;
  for (const auto& [description, time] : times_) {
    CallTime& sum = sums[time.name];
    sum.name = time.name;
    sum.calls += time.calls;
    sum.seconds += time.seconds;
    sum.flops += time.flops;
    sum.bytes_moved += time.bytes_moved;
  }
  return sums;
}

double TimedKernels::seconds() const {
  double sum = 0;
  for (const auto& [description, time] : times_) sum += time.seconds;
  return sum;
}

void TimedKernels::submit(const KernelCall& call, Stream& stream) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  inner_.run(call, stream);
  stream.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  CallTime& time = times_[describe(call)];
  time.name = piton::name(call);
  time.calls += 1;
  time.seconds += seconds;
  time.flops += flops(call);
  time.bytes_moved += bytes_moved(call);
}

}  // namespace piton
