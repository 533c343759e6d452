// Groups of value heads of texts are divided among threads. What the heads of a group share is
// computed once: rows of queries and keys, and their products.
#include "kernels/cpu/recurrent/state_space.h"

#include "kernels/cpu/recurrent/delta_chunk.h"
#include "kernels/cpu/recurrent/delta_rows.h"

namespace piton::cpu {
namespace {

class ForwardOfHeads {
 public:
  ForwardOfHeads(CpuContext& context, const DeltaRuleForward& call, std::int64_t rows)
      : context_(context),
        call_(call),
        groups_(call.in),
        sizes_{.rows = rows,
               .keys = padded(call.in.q.dim(2), context.vector.lanes),
               .columns = padded(call.in.v.dim(2), context.vector.lanes)} {}

  const HeadGroups& groups() const { return groups_; }

  void run(const TextPart& part, std::int64_t group) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    const std::int64_t key_head = groups_.key_head(group);
    read_rows(context_, memory.q, sizes_.keys, in.q, key_head, part);
    read_rows(context_, memory.k, sizes_.keys, in.k, key_head, part);
    const std::vector<ChunkRows> all = chunks_of(part, in.segments);
    for (const ChunkRows& one : all) memory.chunks.multiply_scores(chunk_of(one, memory));
    for (std::int64_t head = groups_.begin(group); head < groups_.end(group); ++head)
      run_head(part, all, head, memory);
  }

 private:
  struct Memory {
    Memory(const ForwardOfHeads& of, CpuContext& context)
        : chunks(context, /*corrects=*/false, of.sizes_.keys, of.sizes_.columns) {
      place_in_scratch(context, [&](Stretches& from) { place(of, from); });
    }
    void place(const ForwardOfHeads& of, Stretches& from) {
      const auto& [rows, keys, columns] = of.sizes_;
      for (float** one : {&q, &k}) *one = from.take(rows * keys);
      scores = from.take(rows * kDeltaChunk);
      for (float** one : {&keep, &step}) *one = from.take(rows);
      for (float** one : {&v, &d, &out}) *one = from.take(kDeltaChunk * columns);
      state = from.take(keys * columns);
      chunks.place(from.take(chunks.floats()));
    }
    DeltaChunks chunks;
    float *q, *k, *scores, *keep, *step;
    float *v, *d, *out;  // of a chunk
    float* state;        // [keys, columns]
    float skip = 0;
  };

  DeltaChunk chunk_of(const ChunkRows& of, const Memory& memory) const {
    return {.rows = of.rows,
            .q = memory.q + of.row * sizes_.keys,
            .k = memory.k + of.row * sizes_.keys,
            .keep = memory.keep + of.row,
            .strength = memory.step + of.row,
            .e = memory.v,
            .d = memory.d,
            .state = of.state < 0 ? nullptr : memory.state,
            .skip = memory.skip,
            .scores = memory.scores + of.row * kDeltaChunk,
            .out = memory.out};
  }

  void run_head(const TextPart& part, const std::vector<ChunkRows>& all, std::int64_t head,
                Memory& memory) const {
    const DeltaRuleInput& in = call_.in;
    Gates{memory.keep, memory.step}.read(in, head, part);
    memory.skip = number(in.skip, head);
    if (part.continues) read_state(part, head, memory.state);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const TextPart rows{.begin = part.begin + all[i].row, .rows = all[i].rows};
      read_rows(context_, memory.v, sizes_.columns, in.v, head, rows);
      for (std::int64_t row = 0; i + 1 < all.size() && row < all[i + 1].rows; ++row) {
        fetch_row<false>(in.v, part.begin + all[i + 1].row + row, head);
        fetch_row<true>(call_.out, part.begin + all[i + 1].row + row, head);
      }
      const bool continues = i + 1 < all.size() ? all[i + 1].state >= 0 : part.slot >= 0;
      memory.chunks.forward(chunk_of(all[i], memory), continues ? memory.state : nullptr);
      for (std::int64_t row = 0; row < rows.rows; ++row) {
        context_.vector.convert(row_of(call_.out, rows.begin + row, head),
                                type_of(call_.out.dtype()), memory.out + row * sizes_.columns,
                                Type::kF32, in.v.dim(2));
      }
    }
    if (part.slot >= 0) write_state(part, head, memory.state);
  }

  float* stored(const TextPart& part, std::int64_t head) const {
    return call_.state.data<float>() + part.slot * call_.state.stride(0) +
           head * call_.state.stride(1);
  }
  void read_state(const TextPart& part, std::int64_t head, float* state) const {
    const std::int64_t columns = call_.in.v.dim(2);
    std::fill_n(state, sizes_.keys * sizes_.columns, 0.0F);
    for (std::int64_t i = 0; i < call_.in.q.dim(2); ++i)
      std::copy_n(stored(part, head) + i * columns, columns, state + i * sizes_.columns);
  }
  void write_state(const TextPart& part, std::int64_t head, const float* state) const {
    const std::int64_t columns = call_.in.v.dim(2);
    for (std::int64_t i = 0; i < call_.in.q.dim(2); ++i)
      std::copy_n(state + i * sizes_.columns, columns, stored(part, head) + i * columns);
  }

  CpuContext& context_;
  const DeltaRuleForward& call_;
  HeadGroups groups_;
  DeltaSizes sizes_;
};

}  // namespace

void state_space_forward(CpuContext& context, const DeltaRuleForward& call,
                         const std::vector<TextPart>& parts) {
  const ForwardOfHeads forward(context, call, longest(parts));
  const std::int64_t groups = forward.groups().all();
  context.threads.run(std::ssize(parts) * groups, [&](std::int64_t index) {
    forward.run(parts[static_cast<std::size_t>(index / groups)], index % groups);
  });
}

}  // namespace piton::cpu
