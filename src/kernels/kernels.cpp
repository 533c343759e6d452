// Functions that are derived from tensors() of a call.
#include "kernels/kernels.h"

namespace piton {

KernelCall::KernelCall(const KernelCall& other) = default;
KernelCall::KernelCall(KernelCall&& other) noexcept = default;
KernelCall& KernelCall::operator=(const KernelCall& other) = default;
KernelCall& KernelCall::operator=(KernelCall&& other) noexcept = default;
KernelCall::~KernelCall() = default;

std::string_view name(const KernelCall& call) {
  return std::visit([](const auto& one) { return std::string_view(one.kName); }, call);
}

void check(const KernelCall& call) {
  std::visit([](const auto& one) { one.check(); }, call);
}

double flops(const KernelCall& call) {
  return std::visit([](const auto& one) -> double { return one.flops(); }, call);
}

std::int64_t bytes_moved(const KernelCall& call) {
  std::int64_t bytes = 0;
  for_each_tensor(call, [&](std::string_view, const Tensor& tensor, Access access) {
    bytes += tensor.bytes() * (access == Access::kUpdate ? 2 : 1);
  });
  return bytes;
}

}  // namespace piton
