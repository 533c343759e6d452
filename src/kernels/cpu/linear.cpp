// Linear maps: chooses the implementation of each call.
#include "kernels/linear.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/experts.h"

namespace piton::cpu {

namespace {

LinearFunction product_of(const CpuContext& context, DType dtype) {
  if (uses_tiles(context, dtype)) return amx_product;
  return uses_dot(context, dtype) ? dot_product : panel_product;
}

void multiply(CpuContext& context, const LinearCall& call) {
  if (call.a.dim(0) == 0) return;
  const WeightView& weight = call.right.weight;
  const LinearFunction product = product_of(context, weight.dtype);
  if (weight.form == WeightForm::kCodes) return codes_product(context, call, product);
  uncoded_product(context, call, product);
}

LinearCall call_of(const LinearForward& call) {
  return {.y = call.y,
          .a = call.x,
          .right = {call.weight, false},
          .bias = call.bias,
          .epilogue = {call.residual, call.activation, call.preactivation}};
}

// Each expert that has rows. Those with few rows, as in decoding, are one division among the
// threads: a matrix is too small to be divided by itself at the speed of memory.
void multiply_experts(CpuContext& context, const LinearForward& call) {
  std::vector<LinearForward> parts;  // LinearCall refers to their weights
  parts.reserve(static_cast<std::size_t>(std::min(call.first_rows.dim(0), call.x.dim(0))));
  const auto* first = call.first_rows.data<std::int32_t>();
  for (std::int64_t i = 0; i + 1 < call.first_rows.dim(0); ++i) {
    PITON_ASSERT(first[i] >= 0 && first[i] <= first[i + 1] && first[i + 1] <= call.x.dim(0),
                 "linear forward: expert {} begins at row {}, the next at {} of {}", i, first[i],
                 first[i + 1], call.x.dim(0));
    if (first[i] < first[i + 1])
      parts.push_back(part_of(call, PartOfExpert{i, first[i], first[i + 1] - first[i]}));
  }
  std::vector<LinearCall> skinny, coded;
  for (const LinearForward& part : parts) {
    const LinearCall one = call_of(part);
    const DType dtype = part.weight.dtype;
    if (part.weight.form == WeightForm::kCodes && multiplies_by_codes(one)) {
      coded.push_back(one);
    } else if (part.weight.form != WeightForm::kCodes &&
               product_of(context, dtype) == dot_product && is_skinny(one)) {
      skinny.push_back(one);
    } else {
      multiply(context, one);
    }
  }
  if (!skinny.empty()) skinny_products(context, skinny);
  if (!coded.empty()) code_products(context, coded);
}

}  // namespace

std::int64_t row_tile() { return kRowTile; }

std::int64_t packed_bytes(const CpuContext& context, WeightForm form, std::int64_t out,
                          std::int64_t in, DType dtype) {
  if (form == WeightForm::kRows || dtype == DType::kF64 || out == 0 || in == 0) return 0;
  const std::int64_t n = form == WeightForm::kBackward ? in : out;
  const std::int64_t k = form == WeightForm::kBackward ? out : in;
  if (uses_tiles(context, dtype)) return amx_packed_bytes(n, k);
  return uses_dot(context, dtype) ? dot_packed_bytes(n, k)
                                  : panel_packed_bytes(context, n, k, dtype);
}

WeightForm forward_form(const CpuContext& context, std::int64_t rows, std::int64_t in,
                        DType dtype) {
  const bool few = uses_tiles(context, dtype) && is_few_rows(rows, in);
  return few ? WeightForm::kRows : WeightForm::kForward;
}

WeightForm frozen_form(const CpuContext& context, WeightForm form, DType dtype) {
  const bool panels = !uses_tiles(context, dtype) && !uses_dot(context, dtype);
  // Panels of fp32 are read where they are: from rows, products take 3 to 6 % longer.
  const bool widens = size_bytes(dtype) == 2;
  return panels && widens && context.panels.reads_rows ? WeightForm::kRows : form;
}

void execute(CpuContext& context, const PackWeight& call) {
  if (call.matrices > 1) {
    const std::int64_t rows = call.rows.dim(0) / call.matrices;
    const std::int64_t bytes = call.packed.dim(0) / call.matrices;
    for (std::int64_t i = 0; i < call.matrices; ++i) {
      execute(context, PackWeight{.packed = call.packed.slice(0, i * bytes, bytes),
                                  .rows = call.rows.slice(0, i * rows, rows),
                                  .form = call.form});
    }
    return;
  }
  const std::int64_t wanted =
      packed_bytes(context, call.form, call.rows.dim(0), call.rows.dim(1), call.rows.dtype());
  PITON_ASSERT(call.packed.bytes() == wanted, "pack weight: {} bytes, wanted {}",
               call.packed.bytes(), wanted);
  if (uses_tiles(context, call.rows.dtype())) return amx_pack(context, call);
  if (uses_dot(context, call.rows.dtype())) return dot_pack(context, call);
  panel_pack(context, call);
}

void execute(CpuContext& context, const LinearForward& call) {
  if (call.float8.given() && call.x.dim(0) > 0) return multiply_in_float8(context, call);
  if (call.first_rows.defined()) return multiply_experts(context, call);
  multiply(context, call_of(call));
}

void execute(CpuContext& context, const GatedLinear& call) {
  const Shape shape{call.x.dim(0), call.weight.out};
  if (shape.elements() == 0) return;
  const Tensor gate_up = memory_in(context.gate_up, call.x.dtype(), shape);
  execute(context, call.product(gate_up));
  execute(context, call.end(gate_up));
}

void execute(CpuContext& context, const LinearBackwardInput& call) {
  if (call.float8.given() && call.dy.dim(0) > 0) return multiply_in_float8(context, call);
  if (call.first_rows.defined()) {
    return for_each_expert(call, call.dy.dim(0),
                           [&](const LinearBackwardInput& part) { execute(context, part); });
  }
  multiply(context, {.y = call.dx,
                     .a = call.dy,
                     .right = {call.weight, true},
                     .epilogue = {.residual = call.residual}});
}

}  // namespace piton::cpu
