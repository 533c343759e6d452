// Attention: chooses the implementation of each call.
#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/attention/attention_tiles.h"

namespace piton::cpu {
namespace {

// bf16 products read pairs of channels. Their softmax has neither a triangle form, nor a soft cap,
// nor a bias.
template <typename Call>
bool uses_dot(const CpuContext& context, const Call& call) {
  return context.dot != nullptr && call.q.dtype() == DType::kBF16 && call.q.dim(3) % 2 == 0 &&
         call.block_rows == 0 && call.soft_cap == 0 && !call.mask.bias.defined();
}

// Checks those rules of kernels/attention.h for key positions that depend on their values.
template <typename Call>
void expect_key_positions(const Call& call) {
  if (!call.mask.key_positions.defined()) return;
  const bool drops = call.dropout.probability > 0;
  const bool straight = drops || call.mask.slopes.defined();
  const std::int64_t keys = call.k.dim(1);
  for (std::int64_t sample = 0; sample < call.k.dim(0); ++sample) {
    const auto* position = call.mask.key_positions.template data<std::int32_t>() + sample * keys;
    PITON_ASSERT(!drops || keys == 0 || position[0] % 4 == 0,
                 "{}: the first key of sample {} is at position {}", Call::kName, sample,
                 position[0]);
    for (std::int64_t key = 1; key < keys; ++key) {
      const std::int64_t step = position[key] - position[key - 1];
      PITON_ASSERT(step > 0 && (step == 1 || !straight),
                   "{}: key {} of sample {} is at position {}, after one at {}", Call::kName, key,
                   sample, position[key], position[key - 1]);
    }
  }
}

// With fewer queries than a tile has rows, most of it would be empty.
template <typename Call>
bool uses_tiles(const CpuContext& context, const Call& call) {
  return context.tiles != nullptr && uses_dot(context, call) && call.q.dim(1) >= kTileEdge;
}

ForwardParts forward_parts(CpuContext& context, const ForwardWork& work) {
  if (uses_tiles(context, work.call)) return forward_parts_amx(context, work);
  if (uses_dot(context, work.call)) return forward_parts_dot(context, work);
  return forward_parts_fp32(context, work);
}

// One sample of a call: its queries as [1, n, a, d], its keys in pages.
ForwardWork work_of_sample(const CachedAttention& call, std::int64_t sample) {
  const auto* begins = call.begins.data<std::int32_t>();
  const std::int64_t begin = begins[sample];
  const std::int64_t rows = begins[sample + 1] - begin;
  const std::int64_t keys = call.lengths.data<std::int32_t>()[sample];
  const std::int64_t pages = call.table.dim(1);
  PITON_ASSERT(
      !call.bias.defined() || (call.bias_origin >= keys - 1 && call.bias_origin < call.bias.dim(1)),
      "{}: {} keys of sample {}, and a bias of {} columns", CachedAttention::kName, keys, sample,
      call.bias.dim(1));
  PITON_ASSERT(rows > 0 && rows <= keys && keys <= pages * kCachePage,
               "{}: {} rows of sample {} with {} tokens in {} pages", CachedAttention::kName, rows,
               sample, keys, pages);
  const auto rows_of = [&](const Tensor& all) {
    return all.slice(0, begin, rows).split_dim(0, rows);
  };
  const Tensor lse =
      call.lse.defined() ? call.lse.slice(1, begin, rows).split_dim(0, call.lse.dim(0)) : Tensor();
  return {.call = {.out = rows_of(call.out),
                   .lse = lse,
                   .q = rows_of(call.q),
                   .k = call.keys,
                   .v = call.values,
                   .mask = call.mask_of(rows, keys),
                   .scale = call.scale,
                   .soft_cap = call.soft_cap},
          .keys = keys,
          .pages = call.table.data<std::int32_t>() + sample * pages,
          .key_scales = call.key_scales,
          .value_scales = call.value_scales};
}

}  // namespace

void execute(CpuContext& context, const AttentionForward& call) {
  if (call.q.elements() == 0) return;
  expect_key_positions(call);
  const ForwardWork work{.call = call, .keys = call.k.dim(1)};
  const ForwardParts parts = forward_parts(context, work);
  context.threads.run(parts.count, parts.run);
}

void execute(CpuContext& context, const AttentionBackward& call) {
  if (call.k.elements() == 0 && call.q.elements() == 0) return;
  expect_key_positions(call);
  if (uses_tiles(context, call)) return attention_backward_amx(context, call);
  if (uses_dot(context, call)) return attention_backward_dot(context, call);
  attention_backward_fp32(context, call);
}

// Each sample is computed by what suits its number of queries; the parts of all are divided among
// the threads together.
void execute(CpuContext& context, const CachedAttention& call) {
  const std::int64_t samples = call.lengths.elements();
  std::vector<ForwardWork> works;
  works.reserve(static_cast<std::size_t>(samples));
  std::vector<ForwardParts> all;
  std::vector<std::int64_t> ends;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    works.push_back(work_of_sample(call, sample));
    all.push_back(forward_parts(context, works.back()));
    ends.push_back((ends.empty() ? 0 : ends.back()) + all.back().count);
  }
  if (samples == 0) return;
  context.threads.run(ends.back(), [&](std::int64_t part) {
    const auto sample =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), part) - ends.begin());
    all[sample].run(part - (sample > 0 ? ends[sample - 1] : 0));
  });
}

}  // namespace piton::cpu
