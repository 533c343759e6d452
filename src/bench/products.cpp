#include "bench/products.h"

#include <cstring>

#include "kernels/measured/timed_kernels.h"

namespace piton {
namespace {

bool on_host(const KernelCall& call) {
  bool host = true;
  for_each_tensor(call, [&](std::string_view, const Tensor& tensor, Access) {
    host = host && tensor.place().kind == DeviceKind::kHost;
  });
  return host;
}

// A copy of the call and its tensors. A contiguous tensor is copied alone (the buffer of a weight
// holds all weights); a strided one with its whole slot, so that views of one slot still share one.
KernelCall copy_of(KernelCall call) {
  std::map<const Storage*, std::shared_ptr<Storage>> slots;
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
    if (tensor.contiguous()) {
      const Tensor copy = host_tensor(tensor.dtype(), tensor.shape());
      std::memcpy(copy.raw(), tensor.raw(), static_cast<std::size_t>(tensor.bytes()));
      tensor = copy;
      return;
    }
    std::shared_ptr<Storage>& slot = slots[tensor.storage().get()];
    if (!slot) {
      const std::int64_t bytes = tensor.storage()->bytes();
      slot = host_tensor(DType::kU8, {bytes}).storage();
      std::memcpy(slot->data(), tensor.storage()->data(), static_cast<std::size_t>(bytes));
    }
    tensor = tensor.with_storage(slot);
  });
  return call;
}

}  // namespace

bool is_product(const KernelCall& call) {
  return std::holds_alternative<LinearForward>(call) ||
         std::holds_alternative<LinearBackwardInput>(call) ||
         std::holds_alternative<LinearBackwardWeight>(call) ||
         std::holds_alternative<AttentionForward>(call) ||
         std::holds_alternative<AttentionBackward>(call);
}

void RecordedProducts::submit(const KernelCall& call, Stream& stream) {
  inner_.run(call, stream);
  if (!is_product(call) || !on_host(call)) return;
  stream.synchronize();
  const std::string description = describe(call);
  const auto found = kept_.find(description);
  if (found != kept_.end()) {
    found->second.figure.calls += 1;
    return;
  }
  kept_.emplace(description,
                Kept{copy_of(call), {.what = description, .calls = 1, .flops = flops(call)}});
}

void RecordedProducts::sample(const Machine& machine) {
  for (auto& [description, kept] : kept_) {
    piton::sample(kept.figure.samples, [&, &call = kept.call] { run_alone(machine, call); });
  }
}

std::vector<CallFigure> RecordedProducts::figures() const {
  std::vector<CallFigure> figures;
  for (const auto& [description, kept] : kept_) figures.push_back(kept.figure);
  return figures;
}

double RecordedProducts::seconds() const {
  double sum = 0;
  for (const auto& [description, kept] : kept_) {
    if (kept.figure.samples.seconds.empty()) continue;
    sum += static_cast<double>(kept.figure.calls) * kept.figure.samples.best();
  }
  return sum;
}

}  // namespace piton
