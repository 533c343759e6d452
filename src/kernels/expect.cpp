// Assertions used by check() of every call.
#include "kernels/expect.h"

namespace piton {

const Operand& Operand::given() const {
  PITON_ASSERT(tensor.defined(), "{}: {} is missing", call, name);
  return *this;
}

const Operand& Operand::shape(const Shape& wanted) const {
  given();
  PITON_ASSERT(tensor.shape() == wanted, "{}: {} is {}, wanted {}", call, name, to_string(tensor),
               to_string(wanted));
  return *this;
}

const Operand& Operand::dtype(DType wanted) const {
  given();
  PITON_ASSERT(tensor.dtype() == wanted, "{}: {} is {}, wanted {}", call, name, to_string(tensor),
               piton::name(wanted));
  return *this;
}

const Operand& Operand::floating() const {
  given();
  const DType dtype = tensor.dtype();
  PITON_ASSERT(
      dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16,
      "{}: {} is {}, wanted a floating type", call, name, to_string(tensor));
  return *this;
}

const Operand& Operand::contiguous() const {
  given();
  PITON_ASSERT(tensor.contiguous(), "{}: {} {} has gaps", call, name, to_string(tensor));
  return *this;
}

const Operand& Operand::rows() const {
  given();
  PITON_ASSERT(tensor.ndim() > 0 && (tensor.elements() == 0 || tensor.dim(-1) == 1 ||
                                     tensor.stride(tensor.ndim() - 1) == 1),
               "{}: columns of {} {} are not next to each other", call, name, to_string(tensor));
  return *this;
}

DType sum_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

void expect_used(std::string_view call, const Tensor& used) {
  if (used.defined()) Operand{call, "used", used}.shape({1}).dtype(DType::kI32);
}

void expect_drawn_rows(std::string_view call, const MaskRows& rows) {
  Operand{call, "consumed_samples", rows.consumed_samples}.shape({1}).dtype(DType::kI64);
  PITON_ASSERT(rows.sequence > 0, "{}: {} rows a sample", call, rows.sequence);
}

void expect_dropout(std::string_view call, const Dropout& dropout) {
  PITON_ASSERT(dropout.probability >= 0 && dropout.probability < 1, "{}: probability {}", call,
               dropout.probability);
  if (dropout.probability > 0) expect_drawn_rows(call, dropout.rows);
}

void expect_wider(std::string_view call, const Tensor& wide, const Tensor& rest) {
  PITON_ASSERT(wide.dtype() == rest.dtype() ||
                   (wide.dtype() == DType::kF32 && size_bytes(rest.dtype()) == 2),
               "{}: {} next to {}", call, name(wide.dtype()), name(rest.dtype()));
}

}  // namespace piton
