// Checks and operation counts of linear maps.
#include "kernels/linear.h"

#include <initializer_list>
#include <utility>

#include "kernels/expect.h"

namespace piton {
namespace {

void expect_codes(std::string_view call, const WeightCodes& codes, std::int64_t out,
                  std::int64_t in) {
  PITON_ASSERT(codes.group > 0, "{}: groups of {} columns", call, codes.group);
  const std::int64_t bytes = code_bytes(codes.kind, in);
  const std::int64_t groups = (in + codes.group - 1) / codes.group;
  Operand{call, "weight codes", codes.codes}.shape({out, bytes}).dtype(DType::kU8).contiguous();
  const bool nested = codes.block_scales.defined();
  const DType scales = codes.scales.dtype();
  PITON_ASSERT(nested ? scales == DType::kU8 : scales == DType::kF32 || scales == DType::kF16,
               "{}: weight scales are {}", call, name(scales));
  Operand{call, "weight scales", codes.scales}.shape({out, groups}).contiguous();
  PITON_ASSERT(!codes.zeros.defined() || !codes.minima.defined(), "{}: zero points and minima",
               call);
  PITON_ASSERT(codes.kind != CodeKind::kNf4 || (!codes.zeros.defined() && !codes.minima.defined()),
               "{}: NF4 has no zero points", call);
  const auto expect = [&](const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
    if (tensor.defined()) Operand{call, name, tensor}.shape(shape).dtype(dtype).contiguous();
  };
  expect("weight zeros", codes.zeros, {out, groups}, DType::kF32);
  expect("weight minima", codes.minima, {out, groups}, nested ? DType::kU8 : DType::kF32);
  PITON_ASSERT(codes.block_minima.defined() == (nested && codes.minima.defined()),
               "{}: block minima without block scales and minima, or these without them", call);
  if (!nested) return;
  PITON_ASSERT(in % kScaleBlock == 0 && kScaleBlock % codes.group == 0,
               "{}: {} columns in groups of {} and blocks of {}", call, in, codes.group,
               kScaleBlock);
  expect("weight block scales", codes.block_scales, {out, in / kScaleBlock}, DType::kF32);
  expect("weight block minima", codes.block_minima, {out, in / kScaleBlock}, DType::kF32);
}

void expect_weight(std::string_view call, const WeightView& weight, WeightForm packed,
                   DType dtype) {
  PITON_ASSERT(weight.dtype == dtype, "{}: the weight is {}, wanted {}", call, name(weight.dtype),
               name(dtype));
  const std::int64_t rows = weight.matrices * weight.out;
  if (weight.form == WeightForm::kCodes) return expect_codes(call, weight.codes, rows, weight.in);
  PITON_ASSERT(weight.form == WeightForm::kRows || weight.form == packed,
               "{}: the weight is packed for the other direction", call);
  PITON_ASSERT(!weight.codes.given(), "{}: codes and a weight in another form", call);
  const Operand operand{call, "weight", weight.tensor};
  if (weight.form == WeightForm::kRows) {
    operand.shape({rows, weight.in}).dtype(dtype).rows();
  } else {
    operand.dtype(DType::kU8).contiguous();
  }
}

void expect_experts(std::string_view call, const Tensor& first_rows, std::int64_t matrices) {
  if (!first_rows.defined()) {
    PITON_ASSERT(matrices == 1, "{}: {} matrices, and no rows of each", call, matrices);
    return;
  }
  Operand{call, "first rows", first_rows}.shape({matrices + 1}).dtype(DType::kI32).contiguous();
}

// `factors`: what the product reads.
void expect_float8(std::string_view call, const Float8Products& float8, const Tensor& first_rows,
                   std::initializer_list<DType> factors) {
  if (!float8.given()) return;
  PITON_ASSERT(!first_rows.defined(), "{}: experts in FP8", call);
  for (const DType factor : factors)
    PITON_ASSERT(factor == DType::kBF16, "{}: a factor in {} for FP8", call, name(factor));
}

void expect_float8_weight(std::string_view call, const Float8Products& float8,
                          const WeightView& weight) {
  PITON_ASSERT(!float8.given() || weight.form == WeightForm::kRows,
               "{}: FP8 of a weight that is not plain rows", call);
}

double matrix_flops(std::int64_t rows, std::int64_t out, std::int64_t in) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
}

}  // namespace

void LinearForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  const std::int64_t n = x.dim(0);
  Operand{kName, "x", x}.shape({n, weight.in});
  Operand{kName, "y", y}.shape({n, weight.out}).rows();
  PITON_ASSERT(y.dtype() == x.dtype() || y.dtype() == DType::kF32, "{}: y is {} for x {}", kName,
               to_string(y), to_string(x));
  expect_weight(kName, weight, WeightForm::kForward, x.dtype());
  expect_experts(kName, first_rows, weight.matrices);
  expect_float8(kName, float8, first_rows, {x.dtype()});
  expect_float8_weight(kName, float8, weight);
  if (bias.defined())
    Operand{kName, "bias", bias}
        .shape({weight.matrices * weight.out})
        .dtype(x.dtype())
        .contiguous();
  PITON_ASSERT(!preactivation.defined() || activation, "{}: a preactivation without an activation",
               kName);
  for (const auto& [name, tensor] :
       {std::pair{"residual", &residual}, {"preactivation", &preactivation}}) {
    if (tensor->defined())
      Operand{kName, name, *tensor}.shape({n, weight.out}).dtype(y.dtype()).rows();
  }
}

double LinearForward::flops() const { return matrix_flops(x.dim(0), weight.out, weight.in); }

void GatedLinear::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  Operand{kName, "x", x}.shape({x.dim(0), weight.in});
  PITON_ASSERT(weight.out % 2 == 0 && weight.matrices == 1, "{}: {} matrices of {} rows", kName,
               weight.matrices, weight.out);
  Operand{kName, "y", y}.shape({x.dim(0), weight.out / 2}).dtype(x.dtype()).rows();
  expect_weight(kName, weight, WeightForm::kForward, x.dtype());
  if (bias.defined())
    Operand{kName, "bias", bias}.shape({weight.out}).dtype(x.dtype()).contiguous();
  PITON_ASSERT(gate.bound >= 0, "{}: a bound of {}", kName, gate.bound);
}

double GatedLinear::flops() const { return matrix_flops(x.dim(0), weight.out, weight.in); }

LinearForward GatedLinear::product(const Tensor& gate_up) const {
  return {.y = gate_up, .x = x, .weight = weight, .bias = bias};
}

ActivationForward GatedLinear::end(const Tensor& gate_up) const {
  const std::int64_t width = weight.out / 2;
  return {.y = y,
          .x = gate_up.slice(1, 0, width),
          .up = gate_up.slice(1, width, width),
          .kind = kind,
          .gate = gate};
}

void LinearBackwardInput::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().rows();
  Operand{kName, "dx", dx}.floating().rows();
  const std::int64_t n = dy.dim(0);
  Operand{kName, "dy", dy}.shape({n, weight.out});
  Operand{kName, "dx", dx}.shape({n, weight.in});
  PITON_ASSERT(dy.dtype() == weight.dtype || dy.dtype() == DType::kF32,
               "{}: dy {} with a {} weight", kName, to_string(dy), name(weight.dtype));
  PITON_ASSERT(dx.dtype() == dy.dtype() || dx.dtype() == weight.dtype, "{}: dx is {}", kName,
               to_string(dx));
  expect_weight(kName, weight, WeightForm::kBackward, weight.dtype);
  expect_experts(kName, first_rows, weight.matrices);
  expect_float8(kName, float8, first_rows, {dy.dtype(), dx.dtype()});
  expect_float8_weight(kName, float8, weight);
  if (residual.defined())
    Operand{kName, "residual", residual}.shape({n, weight.in}).dtype(dx.dtype()).rows();
}

double LinearBackwardInput::flops() const { return matrix_flops(dy.dim(0), weight.out, weight.in); }

void LinearBackwardWeight::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().rows();
  Operand{kName, "x", x}.floating().rows();
  const std::int64_t n = x.dim(0);
  const std::int64_t out = dy.dim(-1);
  const std::int64_t in = x.dim(-1);
  Operand{kName, "x", x}.shape({n, in});
  Operand{kName, "dy", dy}.shape({n, out});
  PITON_ASSERT(dy.dtype() == x.dtype() || dy.dtype() == DType::kF32, "{}: dy {} with x {}", kName,
               to_string(dy), to_string(x));
  const DType sums = sum_dtype(x.dtype());
  const std::int64_t matrices = first_rows.defined() ? first_rows.dim(0) - 1 : 1;
  Operand{kName, "dweight", dweight}.shape({matrices * out, in}).dtype(sums).contiguous();
  expect_experts(kName, first_rows, matrices);
  expect_float8(kName, float8, first_rows, {dy.dtype(), x.dtype()});
  if (dbias.defined())
    Operand{kName, "dbias", dbias}.shape({matrices * out}).dtype(sums).contiguous();
}

double LinearBackwardWeight::flops() const { return matrix_flops(x.dim(0), dy.dim(-1), x.dim(-1)); }

void PackWeight::check() const {
  expect_one_place(*this);
  PITON_ASSERT(form == WeightForm::kForward || form == WeightForm::kBackward,
               "{}: not a packed form", kName);
  Operand{kName, "rows", rows}.floating().rows().shape({rows.dim(0), rows.dim(-1)});
  Operand{kName, "packed", packed}.dtype(DType::kU8).contiguous();
  PITON_ASSERT(packed.ndim() == 1, "{}: packed is {}", kName, to_string(packed));
  PITON_ASSERT(matrices > 0 && rows.dim(0) % matrices == 0, "{}: {} rows of {} matrices", kName,
               rows.dim(0), matrices);
}

void ExpandWeight::check() const {
  expect_one_place(*this);
  Operand{kName, "rows", rows}.floating().rows().shape({rows.dim(0), rows.dim(-1)});
  expect_codes(kName, codes, rows.dim(0), rows.dim(1));
}

}  // namespace piton
