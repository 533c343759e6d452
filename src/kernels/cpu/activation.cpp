// Activations: rows are divided among threads and never cut.
#include "kernels/activation.h"

#include <limits>

#include "kernels/cpu/context.h"

namespace piton::cpu {

Activation kind_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kGeluTanh:
      return Activation::kGeluTanh;
    case ActivationKind::kGeluErf:
      return Activation::kGeluErf;
    case ActivationKind::kGeluFast:
      return Activation::kGeluFast;
    case ActivationKind::kSilu:
      return Activation::kSilu;
    case ActivationKind::kRelu:
      return Activation::kRelu;
    case ActivationKind::kSquaredRelu:
      return Activation::kSquaredRelu;
    case ActivationKind::kSigmoid:
      return Activation::kSigmoid;
    case ActivationKind::kIdentity:
      break;
  }
  return Activation::kIdentity;
}

namespace {

void set_gate(ActivationArguments& arguments, const GateRule& gate) {
  arguments.bounded = gate.given();
  arguments.bound =
      gate.bound == 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(gate.bound);
  arguments.offset = static_cast<float>(gate.offset);
}

}  // namespace

void execute(CpuContext& context, const ActivationForward& call) {
  ActivationArguments arguments{.y = matrix_of(call.y),
                                .x = matrix_of(call.x),
                                .up = matrix_of(call.up),
                                .columns = call.x.dim(1),
                                .kind = kind_of(call.kind)};
  set_gate(arguments, call.gate);
  context.ranges(rows_used(call.used, call.x.dim(0)), grain_of(call.x.dim(1) * 4),
                 [&](std::int64_t begin, std::int64_t end) {
                   context.vector.activation_forward(arguments, begin, end);
                 });
}

void execute(CpuContext& context, const ActivationBackward& call) {
  ActivationArguments arguments{.y = matrix_of(call.dx),
                                .dup = matrix_of(call.dup),
                                .dy = matrix_of(call.dy),
                                .x = matrix_of(call.x),
                                .up = matrix_of(call.up),
                                .columns = call.x.dim(1),
                                .kind = kind_of(call.kind)};
  set_gate(arguments, call.gate);
  context.ranges(rows_used(call.used, call.x.dim(0)), grain_of(call.x.dim(1) * 4),
                 [&](std::int64_t begin, std::int64_t end) {
                   context.vector.activation_backward(arguments, begin, end);
                 });
}

}  // namespace piton::cpu
