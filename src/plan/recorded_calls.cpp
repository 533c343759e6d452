#include "plan/recorded_calls.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "base/seconds.h"
#include "kernels/measured/timed_kernels.h"

namespace piton {
namespace {

constexpr int kRounds = 3;

KernelCall without_memory(KernelCall call) {
  std::map<const Storage*, std::shared_ptr<Storage>> ghosts;
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
    std::shared_ptr<Storage>& ghost = ghosts[tensor.storage().get()];
    if (!ghost) {
      ghost = std::make_shared<Storage>(nullptr, tensor.storage()->bytes(), tensor.place());
    }
    tensor = tensor.with_storage(ghost);
  });
  return call;
}

// A contiguous tensor gets separate memory (the buffer of a weight has all weights), a strided
// one its whole slot, which views share.
KernelCall with_memory(KernelCall call, Arena& arena, const Machine& machine) {
  std::map<const Storage*, std::shared_ptr<Storage>> slots;
  const auto zeros = [&](DType dtype, const Shape& shape) {
    Tensor tensor = arena.allocate(dtype, shape, MemoryKind::kWorkspace);
    machine.device.zero(tensor, machine.stream);
    return tensor;
  };
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
    if (tensor.contiguous()) {
      tensor = zeros(tensor.dtype(), tensor.shape());
      return;
    }
    std::shared_ptr<Storage>& slot = slots[tensor.storage().get()];
    if (!slot) slot = zeros(DType::kU8, {tensor.storage()->bytes()}).storage();
    tensor = tensor.with_storage(slot);
  });
  return call;
}

}  // namespace

void RecordedCalls::submit(const KernelCall& call, Stream& stream) {
  inner_.run(call, stream);
  PlannedCall& one = calls_[describe(call)];
  if (one.count++ == 0) one.call = without_memory(call);
}

double seconds_of_call(const KernelCall& call, const Machine& machine) {
  Arena arena(machine.device);
  const KernelCall real = with_memory(call, arena, machine);
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {
    machine.stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    machine.kernels.run(real, machine.stream);
    machine.stream.synchronize();
    if (round > 0) best = std::min(best, seconds_since(begin));
  }
  return best;
}

}  // namespace piton
