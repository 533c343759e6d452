// Address translation at submission, computation in stream order.
#include "support/delayed_kernels.h"

namespace piton {
namespace {

// The same bytes at the address that host code may use. It owns nothing: as on a GPU, a caller that
// lets a tensor go before the work on it is done has made a mistake, and must see it.
std::shared_ptr<Storage> host_view(const Tensor& tensor, const Device& device) {
  const std::int64_t offset = tensor.raw() - tensor.storage()->data();
  return std::make_shared<Storage>(device.host_address(tensor) - offset, tensor.storage()->bytes(),
                                   Place{DeviceKind::kHost, 0});
}

}  // namespace

DelayedKernels::DelayedKernels(Kernels& inner, const Device& device)
    : ForwardingKernels(inner), device_(device), inline_stream_(host_.make_stream()) {}

void DelayedKernels::submit(const KernelCall& call, Stream& stream) {
  KernelCall translated = call;
  for_each_tensor(translated, [&](std::string_view tensor_name, Tensor& tensor, Access) {
    PITON_ASSERT(tensor.place() == device_.place(), "{}: {} is not on the {}", piton::name(call),
                 tensor_name, device_.name());
    tensor = tensor.with_storage(host_view(tensor, device_));
  });
  stream.enqueue([this, translated = std::move(translated)] {
    const std::scoped_lock lock(mutex_);
    inner_.run(translated, *inline_stream_);
  });
}

}  // namespace piton
