// Attention: chooses the implementation of each call.
#include "kernels/attention.h"

#include "kernels/cpu/attention/attention_tiles.h"

namespace piton::cpu {
namespace {

// bf16 products read pairs of channels. Their softmax has neither a triangle form nor a soft cap.
template <typename Call>
bool uses_dot(const CpuContext& context, const Call& call) {
  return context.dot != nullptr && call.q.dtype() == DType::kBF16 && call.q.dim(3) % 2 == 0 &&
         call.block_rows == 0 && call.soft_cap == 0;
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

}  // namespace

void execute(CpuContext& context, const AttentionForward& call) {
  if (call.q.elements() == 0) return;
  expect_key_positions(call);
  if (uses_tiles(context, call)) return attention_forward_amx(context, call);
  if (uses_dot(context, call)) return attention_forward_dot(context, call);
  attention_forward_fp32(context, call);
}

void execute(CpuContext& context, const AttentionBackward& call) {
  if (call.k.elements() == 0 && call.q.elements() == 0) return;
  expect_key_positions(call);
  if (uses_tiles(context, call)) return attention_backward_amx(context, call);
  if (uses_dot(context, call)) return attention_backward_dot(context, call);
  attention_backward_fp32(context, call);
}

void execute(CpuContext& context, const CacheAppend& call) {
  const auto* begins = call.begins.data<std::int32_t>();
  for (std::int64_t sample = 0; sample < call.rows.dim(0); ++sample) {
    execute(context,
            Copy{.dst = call.cache.slice(0, sample, 1).slice(1, begins[sample], call.rows.dim(1)),
                 .src = call.rows.slice(0, sample, 1)});
  }
}

}  // namespace piton::cpu
