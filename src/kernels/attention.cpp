// Checks and operation counts of attention and of merging its parts.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/attention_merge.h"
#include "kernels/attention_sink.h"
#include "kernels/expect.h"

namespace piton {
namespace {

struct Sizes {
  std::int64_t b, sq, sk, a, g, d;
};

Sizes expect_inputs(std::string_view call, const Tensor& q, const Tensor& k, const Tensor& v) {
  Operand{call, "q", q}.floating().rows();
  Operand{call, "k", k}.given();
  PITON_ASSERT(q.ndim() == 4 && k.ndim() == 4, "{}: q is {}, k is {}", call, to_string(q),
               to_string(k));
  const Sizes sizes{q.dim(0), q.dim(1), k.dim(1), q.dim(2), k.dim(2), q.dim(3)};
  const Shape keys{sizes.b, sizes.sk, sizes.g, sizes.d};
  Operand{call, "k", k}.shape(keys).dtype(q.dtype()).rows();
  Operand{call, "v", v}.shape(keys).dtype(q.dtype()).rows();
  PITON_ASSERT(sizes.g > 0 && sizes.a % sizes.g == 0, "{}: {} query heads on {} key heads", call,
               sizes.a, sizes.g);
  return sizes;
}

void expect_mask(std::string_view call, const AttentionMask& mask, const Sizes& sizes) {
  const Shape queries{sizes.b, sizes.sq};
  if (mask.query_positions.defined()) {
    Operand{call, "query_positions", mask.query_positions}
        .shape(queries)
        .dtype(DType::kI32)
        .contiguous();
  }
  if (mask.key_positions.defined()) {
    Operand{call, "key_positions", mask.key_positions}
        .shape({sizes.b, sizes.sk})
        .dtype(DType::kI32)
        .contiguous();
  }
  if (mask.query_reach.defined()) {
    PITON_ASSERT(mask.causal, "{}: a reach of queries that see all keys", call);
    Operand{call, "query_reach", mask.query_reach}.shape(queries).dtype(DType::kI32).contiguous();
  }
  if (mask.key_lengths.defined()) {
    Operand{call, "key_lengths", mask.key_lengths}.shape({sizes.b}).dtype(DType::kI32).contiguous();
  }
  PITON_ASSERT(mask.query_segments.defined() == mask.key_segments.defined(),
               "{}: segments of queries without segments of keys, or the reverse", call);
  if (mask.query_segments.defined()) {
    Operand{call, "query_segments", mask.query_segments}
        .shape(queries)
        .dtype(DType::kI32)
        .contiguous();
    Operand{call, "key_segments", mask.key_segments}
        .shape({sizes.b, sizes.sk})
        .dtype(DType::kI32)
        .contiguous();
  }
  if (mask.slopes.defined()) {
    Operand{call, "slopes", mask.slopes}.shape({sizes.a}).dtype(DType::kF32).contiguous();
  }
}

// That every visible pair has a column in the bias.
void expect_bias(std::string_view call, const AttentionMask& mask, const Tensor& q,
                 const Sizes& sizes, std::int64_t block_rows) {
  if (!mask.bias.defined()) return;
  const std::int64_t width = mask.bias.dim(-1);
  Operand{call, "bias", mask.bias}.shape({sizes.a, width}).dtype(sum_dtype(q.dtype())).contiguous();
  PITON_ASSERT(!mask.query_positions.defined() && !mask.key_positions.defined() && block_rows == 0,
               "{}: a bias together with positions or blocks of rows", call);
  if (sizes.sq == 0 || sizes.sk == 0) return;
  const std::int64_t lowest = -(mask.query_begin + sizes.sq - 1);
  const std::int64_t highest = sizes.sk - 1 - mask.query_begin;
  const bool bounded = mask.causal && !mask.query_reach.defined();
  const std::int64_t last = bounded ? std::min<std::int64_t>(highest, 0) : highest;
  PITON_ASSERT(mask.bias_origin + lowest >= 0 && mask.bias_origin + last < width,
               "{}: distances {} to {} in a bias of {} columns, of which {} is that of distance 0",
               call, lowest, last, width, mask.bias_origin);
}

void expect_cap(std::string_view call, double cap) {
  PITON_ASSERT(cap >= 0, "{}: a soft cap of {}", call, cap);
}

void expect_blocks(std::string_view call, const AttentionMask& mask, std::int64_t block_rows) {
  PITON_ASSERT(block_rows >= 0, "{}: blocks of {} rows", call, block_rows);
  PITON_ASSERT(
      block_rows == 0 || (mask.causal && mask.query_begin == 0 && !mask.query_positions.defined() &&
                          !mask.key_positions.defined() && !mask.query_reach.defined()),
      "{}: keys behind a block of the triangle are not read, so the mask must be causal, from "
      "position 0 on",
      call);
}

// Query-key pairs that the mask allows, computed from host values only: segments, lengths,
// reaches and positions on the device are ignored.
double visible_pairs(const AttentionMask& mask, std::int64_t sq, std::int64_t sk) {
  const auto all = static_cast<double>(sq) * static_cast<double>(sk);
  if (mask.query_positions.defined() || mask.key_positions.defined())
    return mask.causal && sq > 1 ? all / 2 : all;
  const bool window = mask.window_before.has_value() || mask.window_after.has_value();
  if (mask.causal && !window && mask.query_begin == 0 && sq == sk) return all / 2;
  double pairs = 0;
  for (std::int64_t row = 0; row < sq; ++row) {
    const std::int64_t i = mask.query_begin + row;
    std::int64_t first = 0;
    std::int64_t last = sk - 1;
    if (mask.causal) last = std::min(last, i);
    if (mask.window_before) first = std::max(first, i - std::min(*mask.window_before, i));
    if (mask.window_after) last = std::min(last, i + std::min(*mask.window_after, sk));
    pairs += static_cast<double>(std::max<std::int64_t>(last - first + 1, 0));
  }
  return pairs;
}

double heads_flops(const Tensor& q, const Tensor& k, const AttentionMask& mask, int products) {
  const double one = 2.0 * static_cast<double>(q.dim(0) * q.dim(2) * q.dim(3));
  return products * one * visible_pairs(mask, q.dim(1), k.dim(1));
}

}  // namespace

void AttentionForward::check() const {
  expect_one_place(*this);
  const Sizes sizes = expect_inputs(kName, q, k, v);
  Operand{kName, "out", out}.shape(q.shape()).dtype(q.dtype()).rows();
  Operand{kName, "lse", lse}
      .shape({sizes.b, sizes.a, sizes.sq})
      .dtype(sum_dtype(q.dtype()))
      .contiguous();
  expect_mask(kName, mask, sizes);
  expect_blocks(kName, mask, block_rows);
  expect_bias(kName, mask, q, sizes, block_rows);
  expect_cap(kName, soft_cap);
  expect_dropout(kName, dropout);
}

double AttentionForward::flops() const { return heads_flops(q, k, mask, 2); }

void AttentionBackward::check() const {
  expect_one_place(*this);
  const Sizes sizes = expect_inputs(kName, q, k, v);
  const DType dtype = q.dtype();
  Operand{kName, "dq", dq}.shape(q.shape()).dtype(dtype).rows();
  Operand{kName, "dk", dk}.shape(k.shape()).dtype(dtype).rows();
  Operand{kName, "dv", dv}.shape(k.shape()).dtype(dtype).rows();
  PITON_ASSERT(!dbias.defined() || mask.bias.defined(), "{}: dbias without a bias", kName);
  if (dbias.defined()) {
    Operand{kName, "dbias", dbias}
        .shape({sizes.b, sizes.a, mask.bias.dim(1)})
        .dtype(mask.bias.dtype())
        .contiguous();
  }
  Operand{kName, "dout", dout}.shape(q.shape()).dtype(dtype).rows();
  Operand{kName, "out", out}.shape(q.shape()).dtype(dtype).rows();
  Operand{kName, "lse", lse}
      .shape({sizes.b, sizes.a, sizes.sq})
      .dtype(sum_dtype(dtype))
      .contiguous();
  expect_mask(kName, mask, sizes);
  expect_blocks(kName, mask, block_rows);
  expect_bias(kName, mask, q, sizes, block_rows);
  expect_cap(kName, soft_cap);
  expect_dropout(kName, dropout);
}

double AttentionBackward::flops() const { return heads_flops(q, k, mask, 4); }

void AttentionMerge::check() const {
  expect_one_place(*this);
  Operand{kName, "part", part}.floating().contiguous();
  PITON_ASSERT(part.ndim() == 4, "{}: part is {}", kName, to_string(part));
  const DType sums = sum_dtype(part.dtype());
  const Shape rows{part.dim(0), part.dim(2), part.dim(1)};
  Operand{kName, "out", out}.shape(part.shape()).dtype(sums).contiguous();
  Operand{kName, "lse", lse}.shape(rows).dtype(sums).contiguous();
  Operand{kName, "part_lse", part_lse}.shape(rows).dtype(sums).contiguous();
}

namespace {

// `out` as of attention, and what is of each of its rows and heads.
void expect_sinks(std::string_view call, const Tensor& out, const Tensor& lse) {
  Operand{call, "out", out}.floating().rows();
  PITON_ASSERT(out.ndim() == 4, "{}: out is {}", call, to_string(out));
  Operand{call, "lse", lse}
      .shape({out.dim(0), out.dim(2), out.dim(1)})
      .dtype(sum_dtype(out.dtype()))
      .contiguous();
}

}  // namespace

void AttentionSink::check() const {
  expect_one_place(*this);
  expect_sinks(kName, out, lse);
  if (!sinks.defined()) return;
  Operand{kName, "sinks", sinks}.shape({out.dim(2)}).floating().contiguous();
  PITON_ASSERT(sinks.dtype() == out.dtype() ||
                   (out.dtype() == DType::kF32 && size_bytes(sinks.dtype()) == 2),
               "{}: sinks are {}, out is {}", kName, to_string(sinks), to_string(out));
}

void AttentionSinkBackward::check() const {
  expect_one_place(*this);
  expect_sinks(kName, out, lse);
  Operand{kName, "dout", dout}.shape(out.shape()).dtype(out.dtype()).rows();
  Operand{kName, "sinks", sinks}.shape({out.dim(2)}).dtype(out.dtype()).contiguous();
  Operand{kName, "dsinks", dsinks}.shape({out.dim(2)}).dtype(sum_dtype(out.dtype())).contiguous();
}

double AttentionSinkBackward::flops() const { return 2.0 * static_cast<double>(out.elements()); }

}  // namespace piton
