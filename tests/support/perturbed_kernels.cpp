// Scales one output of one kind of call. Ids, and what routing counts, are one too large.
#include "support/perturbed_kernels.h"

namespace piton {

void PerturbedKernels::submit(const KernelCall& call, Stream& stream) {
  Tensor target;
  Access access = Access::kRead;
  if (piton::name(call) == call_) {
    for_each_tensor(call, [&](std::string_view name, const Tensor& tensor, Access how) {
      if (name != tensor_ || how == Access::kRead) return;
      target = tensor;
      access = how;
    });
  }
  const bool integers = target.defined() && !std::holds_alternative<PackWeight>(call) &&
                        (target.dtype() == DType::kI32 || target.dtype() == DType::kI64 ||
                         target.dtype() == DType::kU8);
  const bool numbers =
      std::holds_alternative<LargestLogits>(call) || std::holds_alternative<DrawTokens>(call) ||
      std::holds_alternative<RouteTokens>(call) || std::holds_alternative<SortByExpert>(call) ||
      std::holds_alternative<SortByRank>(call) || std::holds_alternative<LimitChoices>(call);
  if (integers && numbers) {
    inner_.run(call, stream);
    for (std::int64_t i = 0; i < target.elements(); ++i) target.data<std::int32_t>()[i] += 1;
    ++perturbed_;
    return;
  }
  if (!target.defined() || integers) {
    inner_.run(call, stream);
    return;
  }
  ++perturbed_;
  run_perturbed(call, target, access, stream);
}

void PerturbedKernels::run_perturbed(const KernelCall& call, const Tensor& tensor, Access access,
                                     Stream& stream) {
  const auto widened = [&](const Tensor& from) {
    Tensor wide = host_tensor(DType::kF64, from.shape());
    inner_.run(Copy{.dst = wide, .src = from}, stream);
    return wide;
  };
  if (const auto* pack = std::get_if<PackWeight>(&call)) {
    const Tensor wide = widened(pack->rows);
    for (std::int64_t i = 0; i < wide.elements(); ++i) wide.data<double>()[i] *= factor_;
    PackWeight scaled = *pack;
    scaled.rows = host_tensor(pack->rows.dtype(), pack->rows.shape());
    inner_.run(Copy{.dst = scaled.rows, .src = wide}, stream);
    inner_.run(scaled, stream);
    return;
  }
  const Tensor before =
      access == Access::kUpdate ? widened(tensor) : host_tensor(DType::kF64, tensor.shape());
  inner_.run(call, stream);
  const Tensor after = widened(tensor);
  for (std::int64_t i = 0; i < after.elements(); ++i) {
    const double base = before.data<double>()[i];
    double& value = after.data<double>()[i];
    value = base + factor_ * (value - base);
  }
  inner_.run(Copy{.dst = tensor, .src = after}, stream);
}

}  // namespace piton
