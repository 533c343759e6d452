// The gated delta rule, and that of a state space for texts of few rows: heads of texts are divided
// among threads. A part goes through the rows of a text in order, with columns of the state that
// stay in the first-level cache.
#include "kernels/recurrent/delta_rule.h"

#include "kernels/cpu/recurrent/delta_rows.h"
#include "kernels/cpu/recurrent/state_space.h"

namespace piton::cpu {
namespace {

// Columns of the value rows [rows, from_width], from `first` on.
void take_columns(float* to, std::int64_t to_width, const float* from, std::int64_t from_width,
                  std::int64_t first, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_width + first, to_width, to + row * to_width);
}
void put_columns(float* to, std::int64_t to_width, const float* from, std::int64_t from_width,
                 std::int64_t first, std::int64_t rows) {
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(from + row * from_width, from_width, to + row * to_width + first);
}

class Forward {
 public:
  Forward(CpuContext& context, const DeltaRuleForward& call, std::int64_t rows)
      : context_(context),
        call_(call),
        block_(std::int64_t{kDeltaVectors} * context.vector.lanes),
        sizes_{
            .rows = rows, .keys = call.in.q.dim(2), .columns = padded(call.in.v.dim(2), block_)} {}

  void run(const TextPart& part, std::int64_t head) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    const std::int64_t key_head = head / (in.v.dim(1) / in.q.dim(1));
    read_key_rows(context_, memory.q, memory.lengths, sizes_, in, in.q, key_head, part,
                  query_factor(in));
    read_key_rows(context_, memory.k, memory.lengths, sizes_, in, in.k, key_head, part, 1);
    read_rows(context_, memory.v, sizes_.columns, in.v, head, part);
    const Gates gates{memory.keep, memory.strength};
    gates.read(in, head, part);
    const float skip = corrects(in) ? 0 : number(in.skip, head);
    for (std::int64_t first = 0; first < sizes_.columns; first += block_) {
      take_columns(memory.values, block_, memory.v, sizes_.columns, first, part.rows);
      std::fill_n(memory.state, sizes_.keys * block_, 0.0F);
      if (part.continues) move_state(part, head, first, memory.state, /*stores=*/false);
      context_.vector.delta_forward({.rows = part.rows,
                                     .keys = sizes_.keys,
                                     .q = memory.q,
                                     .k = memory.k,
                                     .v = memory.values,
                                     .keep = memory.keep,
                                     .strength = memory.strength,
                                     .corrects = corrects(in),
                                     .skip = skip,
                                     .state = memory.state,
                                     .out = memory.values});
      put_columns(memory.v, sizes_.columns, memory.values, block_, first, part.rows);
      if (part.slot >= 0) move_state(part, head, first, memory.state, /*stores=*/true);
    }
    for (std::int64_t row = 0; row < part.rows; ++row) {
      context_.vector.convert(row_of(call_.out, part.begin + row, head), type_of(call_.out.dtype()),
                              memory.v + row * sizes_.columns, Type::kF32, in.v.dim(2));
    }
  }

 private:
  struct Memory {
    Memory(const Forward& of, CpuContext& context) {
      place_in_scratch(context, [&](Stretches& from) { place(of, from); });
    }
    void place(const Forward& of, Stretches& from) {
      const auto& [rows, keys, columns] = of.sizes_;
      q = from.take(rows * keys);
      k = from.take(rows * keys);
      v = from.take(rows * columns);
      values = from.take(rows * of.block_);
      state = from.take(keys * of.block_);
      keep = from.take(rows);
      strength = from.take(rows);
      lengths = from.take(rows);
    }
    float *q, *k, *v, *values, *state, *keep, *strength, *lengths;
  };

  // Columns of the state of a text, between its tensor and the block.
  void move_state(const TextPart& part, std::int64_t head, std::int64_t first, float* block,
                  bool stores) const {
    const std::int64_t columns = call_.in.v.dim(2);
    const std::int64_t some = std::min(block_, columns - first);
    float* all = call_.state.data<float>() + part.slot * call_.state.stride(0) +
                 head * call_.state.stride(1) + first;
    for (std::int64_t i = 0; i < sizes_.keys; ++i) {
      if (stores) {
        std::copy_n(block + i * block_, some, all + i * columns);
      } else {
        std::copy_n(all + i * columns, some, block + i * block_);
      }
    }
  }

  CpuContext& context_;
  const DeltaRuleForward& call_;
  std::int64_t block_;
  DeltaSizes sizes_;
};

}  // namespace

void execute(CpuContext& context, const DeltaRuleForward& call) {
  const std::int64_t heads = call.in.v.dim(1);
  std::vector<TextPart> parts = text_parts(call.texts, call.in.samples, call.in.q.dim(0));
  if (!corrects(call.in)) {
    const auto chunked = std::stable_partition(parts.begin(), parts.end(), [](const auto& part) {
      return part.slot >= 0 && part.rows < kDeltaChunk;
    });
    if (chunked != parts.end()) state_space_forward(context, call, {chunked, parts.end()});
    parts.erase(chunked, parts.end());
  }
  const Forward forward(context, call, longest(parts));
  context.threads.run(std::ssize(parts) * heads, [&](std::int64_t index) {
    forward.run(parts[static_cast<std::size_t>(index / heads)], index % heads);
  });
}

}  // namespace piton::cpu
