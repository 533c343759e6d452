// Attention: chooses the implementation of each call.
#include "kernels/attention.h"

#include <algorithm>
#include <utility>
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

// Of latents, queries of all heads are rows of one head: row i * a + A is head A of row i. The keys
// of few of them are divided into stretches, so that every thread has a part. How many there are
// depends on the sizes of the sample alone, and so do its bits; their sums are at most 8 MiB for
// latents of 512 channels.
constexpr std::int64_t kFewestStretchKeys = 512;
constexpr std::int64_t kMostStretches = 16;
constexpr std::int64_t kMostStretchRows = 4096;

std::int64_t stretch_of(std::int64_t rows, std::int64_t keys) {
  const std::int64_t stretches =
      std::min({keys / kFewestStretchKeys, kMostStretches, kMostStretchRows / rows});
  return stretches < 2 ? 0 : padded((keys + stretches - 1) / stretches, kKeyBlock);
}

// Memory for the rows of latents: positions of queries, and log-sum-exps in their order.
struct RowMemory {
  Tensor positions;  // int32 [n a], or empty: not of latents
  Tensor lse;        // fp32 [n a], or empty
};

RowMemory row_memory(CpuContext& context, const CachedAttention& call) {
  if (!call.of_latents()) return {};
  const std::int64_t rows = call.q.dim(0) * call.q.dim(1);
  const Tensor memory = memory_in(context.latent_rows, DType::kU8, {8 * rows});
  const Tensor lse(memory.storage(), 4 * rows, DType::kF32, {rows});
  return {.positions = Tensor(memory.storage(), 0, DType::kI32, {rows}),
          .lse = call.lse.defined() ? lse : Tensor()};
}

// Sample `begin` .. of a call: the same rows as [1, n a, 1, d].
ForwardWork work_of_latents(const CachedAttention& call, const ForwardWork& sample,
                            const RowMemory& memory, std::int64_t begin) {
  const std::int64_t a = call.q.dim(1);
  const std::int64_t rows = sample.call.q.dim(1) * a;
  const auto rows_of = [&](const Tensor& all) {
    return all.slice(0, begin, rows / a).reshape({1, rows, 1, all.dim(2)});
  };
  ForwardWork work = sample;
  work.of_latents = true;
  work.call.q = rows_of(call.q);
  work.call.out = rows_of(call.out);
  work.call.v = call.keys.slice(3, 0, call.out.dim(2));
  work.call.mask.query_positions = memory.positions.slice(0, begin * a, rows).reshape({1, rows});
  auto* positions = work.call.mask.query_positions.data<std::int32_t>();
  for (std::int64_t row = 0; row < rows; ++row)
    positions[row] = static_cast<std::int32_t>(work.call.mask.query_begin + row / a);
  if (memory.lse.defined())
    work.call.lse = memory.lse.slice(0, begin * a, rows).reshape({1, 1, rows});
  work.stretch_keys = stretch_of(rows, work.keys);
  return work;
}

// One sample of a call: its queries as [1, n, a, d], its keys in pages.
ForwardWork work_of_sample(const CachedAttention& call, const RowMemory& latents,
                           std::int64_t sample) {
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
  const ForwardWork work{.call = {.out = rows_of(call.out),
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
  return call.of_latents() ? work_of_latents(call, work, latents, begin) : work;
}

// The rows of samples whose keys are in stretches.
void merge(CpuContext& context, const std::vector<ForwardWork>& works,
           const std::vector<ForwardParts>& parts) {
  std::vector<std::pair<std::size_t, std::int64_t>> rows;
  for (std::size_t sample = 0; sample < works.size(); ++sample) {
    if (works[sample].stretch_keys == 0) continue;
    for (std::int64_t row = 0; row < works[sample].call.q.dim(1); ++row)
      rows.emplace_back(sample, row);
  }
  constexpr std::int64_t kRows = 4;  // of a part: 128 KiB of 16 stretches of 512 channels
  context.ranges(std::ssize(rows), kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto& [sample, row] = rows[static_cast<std::size_t>(i)];
      parts[sample].merge(row);
    }
  });
}

// `rows` [n a] as lse [a, n].
void write_lse(const CachedAttention& call, const Tensor& rows) {
  const std::int64_t a = call.q.dim(1);
  const auto* begins = call.begins.data<std::int32_t>();
  for (std::int64_t row = begins[0]; row < begins[call.lengths.elements()]; ++row) {
    for (std::int64_t head = 0; head < a; ++head)
      call.lse.data<float>()[head * call.lse.dim(1) + row] = rows.data<float>()[row * a + head];
  }
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
  const RowMemory latents = row_memory(context, call);
  std::vector<ForwardWork> works;
  works.reserve(static_cast<std::size_t>(samples));
  std::vector<ForwardParts> all;
  std::vector<std::int64_t> ends;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    works.push_back(work_of_sample(call, latents, sample));
    all.push_back(forward_parts(context, works.back()));
    ends.push_back((ends.empty() ? 0 : ends.back()) + all.back().count);
  }
  if (samples == 0) return;
  std::int64_t floats = 0;
  for (const ForwardWork& work : works) floats += work.partial_floats();
  auto* partial = reinterpret_cast<float*>(context.scratch.shared(floats * 4));
  for (ForwardWork& work : works)
    work.partial = std::exchange(partial, partial + work.partial_floats());
  context.threads.run(ends.back(), [&](std::int64_t part) {
    const auto sample =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), part) - ends.begin());
    all[sample].run(part - (sample > 0 ? ends[sample - 1] : 0));
  });
  merge(context, works, all);
  if (latents.lse.defined()) write_lse(call, latents.lse);
}

}  // namespace piton::cpu
