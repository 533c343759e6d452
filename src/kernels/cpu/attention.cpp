// Attention: which way each call goes.
#include "kernels/attention.h"

#include "kernels/cpu/attention_tiles.h"

namespace piton::cpu {
namespace {

// bf16 products read pairs of channels, and their softmax takes one tile.
template <typename Call>
bool uses_dot(const Context& context, const Call& call) {
  return context.dot != nullptr && call.q.dtype() == DType::kBF16 && call.q.dim(3) % 2 == 0 &&
         call.block_rows == 0;
}

// Fewer queries than a tile has rows leave most of it empty.
template <typename Call>
bool uses_tiles(const Context& context, const Call& call) {
  return context.tiles != nullptr && uses_dot(context, call) && call.q.dim(1) >= kTileEdge;
}

}  // namespace

void execute(Context& context, const AttentionForward& call) {
  if (call.q.elements() == 0) return;
  if (uses_tiles(context, call)) return attention_forward_amx(context, call);
  if (uses_dot(context, call)) return attention_forward_dot(context, call);
  attention_forward_fp32(context, call);
}

void execute(Context& context, const AttentionBackward& call) {
  if (call.k.elements() == 0 && call.q.elements() == 0) return;
  if (uses_tiles(context, call)) return attention_backward_amx(context, call);
  if (uses_dot(context, call)) return attention_backward_dot(context, call);
  attention_backward_fp32(context, call);
}

void execute(Context& context, const CacheAppend& call) {
  execute(context,
          Copy{.dst = call.cache.slice(1, call.begin, call.rows.dim(1)), .src = call.rows});
}

}  // namespace piton::cpu
