// Backward of the gated delta rule: key heads of samples are divided among threads. The states
// before each chunk of rows are computed once more from the beginning, with what the chunk adds;
// then gradients from the last chunk to the first. A chunk has rows of one segment.
#include "kernels/cpu/recurrent/delta_chunk.h"
#include "kernels/cpu/recurrent/delta_rows.h"

namespace piton::cpu {
namespace {

class BackwardOfHeads {
 public:
  BackwardOfHeads(CpuContext& context, const DeltaRuleBackward& call, std::int64_t rows)
      : context_(context),
        call_(call),
        sizes_{.rows = rows,
               .keys = padded(call.in.q.dim(2), context.vector.lanes),
               .columns = padded(call.in.v.dim(2), context.vector.lanes)} {}

  // One key head and its value heads. `sums`: [2, hv], what is added to the gradients of rate and
  // bias.
  void run(const TextPart& part, std::int64_t key_head, float* sums) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    read_unit_rows(context_, memory.q, memory.q_lengths, sizes_, in.q, key_head, part,
                   query_factor(in));
    read_unit_rows(context_, memory.k, memory.k_lengths, sizes_, in.k, key_head, part, 1);
    std::fill_n(memory.dq, part.rows * sizes_.keys, 0.0F);
    std::fill_n(memory.dk, part.rows * sizes_.keys, 0.0F);
    const std::int64_t shared = in.v.dim(1) / in.q.dim(1);
    for (std::int64_t head = key_head * shared; head < (key_head + 1) * shared; ++head)
      run_head(part, head, memory, sums);
    write_unit_gradient(call_.dq, key_head, part, memory.q, memory.q_lengths, memory.dq,
                        query_factor(in));
    write_unit_gradient(call_.dk, key_head, part, memory.k, memory.k_lengths, memory.dk, 1);
  }

 private:
  struct Memory {
    Memory(const BackwardOfHeads& of, CpuContext& context)
        : chunks(context, of.sizes_.keys, of.sizes_.columns) {
      Stretches stretches;
      place(of, stretches);
      stretches.begin(context.scratch.own(stretches.bytes()));
      place(of, stretches);
    }
    void place(const BackwardOfHeads& of, Stretches& from) {
      const auto& [rows, keys, columns] = of.sizes_;
      for (float** one : {&q, &k, &dq, &dk}) *one = from.take(rows * keys);
      for (float** one : {&e, &d, &dout, &dv}) *one = from.take(rows * columns);
      for (float** one : {&q_lengths, &k_lengths, &keep, &strength, &dlog_keep, &dstrength})
        *one = from.take(rows);
      states = from.take(rows / kDeltaChunk * keys * columns);
      dstate = from.take(keys * columns);
      chunks.place(from.take(chunks.floats()));
    }
    DeltaChunks chunks;
    float *q, *k, *dq, *dk, *e, *d, *dout, *dv;
    float *q_lengths, *k_lengths, *keep, *strength, *dlog_keep, *dstrength;
    float* states;  // [rows / kDeltaChunk, keys, columns]
    float* dstate;  // [keys, columns]
  };

  // The rows of a chunk, and which state is before it; -1: none.
  struct Stretch {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    std::int64_t state = -1;
  };

  std::vector<Stretch> stretches_of(const TextPart& part) const {
    std::vector<Stretch> all;
    std::int64_t states = 0;
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const bool begins = begins_segment(part, call_.in.segments, row);
      if (begins || all.back().rows == kDeltaChunk)
        all.push_back({.row = row, .state = begins ? -1 : states++});
      ++all.back().rows;
    }
    return all;
  }

  DeltaChunk chunk_of(const Stretch& stretch, bool continues, const Memory& memory) const {
    const auto& [rows, keys, columns] = sizes_;
    const std::int64_t row = stretch.row;
    return {.rows = stretch.rows,
            .q = memory.q + row * keys,
            .k = memory.k + row * keys,
            .keep = memory.keep + row,
            .strength = memory.strength + row,
            .e = memory.e + row * columns,
            .d = memory.d + row * columns,
            .state = stretch.state < 0 ? nullptr : memory.states + stretch.state * keys * columns,
            .dout = memory.dout + row * columns,
            .dq = memory.dq + row * keys,
            .dk = memory.dk + row * keys,
            .dv = memory.dv + row * columns,
            .continues = continues,
            .dstate = memory.dstate,
            .dlog_keep = memory.dlog_keep + row,
            .dstrength = memory.dstrength + row};
  }

  void run_head(const TextPart& part, std::int64_t head, Memory& memory, float* sums) const {
    read_rows(context_, memory.e, sizes_.columns, call_.in.v, head, part);
    read_rows(context_, memory.dout, sizes_.columns, call_.dout, head, part);
    Gates{memory.keep, memory.strength}.read(context_, call_.in, head, part);
    const std::vector<Stretch> all = stretches_of(part);
    const auto state_after = [&](std::size_t i) -> float* {
      if (i + 1 == all.size() || all[i + 1].state < 0) return nullptr;
      return memory.states + all[i + 1].state * sizes_.keys * sizes_.columns;
    };
    for (std::size_t i = 0; i < all.size(); ++i)
      memory.chunks.forward(chunk_of(all[i], false, memory), state_after(i));
    for (std::size_t i = all.size(); i-- > 0;)
      memory.chunks.backward(chunk_of(all[i], state_after(i) != nullptr, memory));
    for (std::int64_t row = 0; row < part.rows; ++row) {
      context_.vector.convert(row_of(call_.dv, part.begin + row, head), type_of(call_.dv.dtype()),
                              memory.dv + row * sizes_.columns, Type::kF32, call_.in.v.dim(2));
    }
    write_gates(part, head, memory, sums);
  }

  void write_gates(const TextPart& part, std::int64_t head, const Memory& memory,
                   float* sums) const {
    const DeltaRuleInput& in = call_.in;
    const double speed = std::exp(static_cast<double>(number(context_, in.rate, head)));
    const double bias = number(context_, in.bias, head);
    const auto write = [&](const Tensor& to, std::int64_t row, double value) {
      const auto one = static_cast<float>(value);
      context_.vector.convert(row_of(to, part.begin + row, head), type_of(to.dtype()), &one,
                              Type::kF32, 1);
    };
    double of_rate = 0;
    double of_bias = 0;
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double x = bias + number(context_, in.decay, part.begin + row, head);
      const double softplus = softplus_of(x);
      const double dlog = memory.dlog_keep[row];
      const double ddecay = -dlog * speed * sigmoid_of(x);
      of_rate -= dlog * speed * softplus;
      of_bias += ddecay;
      write(call_.ddecay, row, ddecay);
      const double strength = sigmoid_of(number(context_, in.strength, part.begin + row, head));
      write(call_.dstrength, row, memory.dstrength[row] * strength * (1 - strength));
    }
    sums[head] = static_cast<float>(of_rate);
    sums[in.v.dim(1) + head] = static_cast<float>(of_bias);
  }

  // From the gradient `d` of unit rows x times `factor`; changes d.
  void write_unit_gradient(const Tensor& to, std::int64_t head, const TextPart& part,
                           const float* x, const float* inverse, float* d, float factor) const {
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const float* unit = x + row * sizes_.keys;
      float* one = d + row * sizes_.keys;
      const float along =
          context_.vector.dot(unit, Type::kF32, one, Type::kF32, sizes_.keys) / (factor * factor);
      for (std::int64_t i = 0; i < sizes_.keys; ++i)
        one[i] = inverse[row] * factor * (one[i] - unit[i] * along);
      context_.vector.convert(row_of(to, part.begin + row, head), type_of(to.dtype()), one,
                              Type::kF32, to.dim(2));
    }
  }

  CpuContext& context_;
  const DeltaRuleBackward& call_;
  DeltaSizes sizes_;
};

}  // namespace

void execute(CpuContext& context, const DeltaRuleBackward& call) {
  const std::int64_t key_heads = call.in.q.dim(1);
  const std::int64_t heads = call.in.v.dim(1);
  const std::vector<TextPart> parts = text_parts({}, call.in.samples, call.in.q.dim(0));
  const BackwardOfHeads backward(context, call, longest(parts));
  auto* sums = reinterpret_cast<float*>(context.scratch.shared(std::ssize(parts) * 2 * heads * 4));
  context.threads.run(std::ssize(parts) * key_heads, [&](std::int64_t index) {
    const std::int64_t part = index / key_heads;
    backward.run(parts[static_cast<std::size_t>(part)], index % key_heads, sums + part * 2 * heads);
  });
  // In the order of samples, however many threads there are.
  const auto add = [&](const Tensor& to, std::int64_t first) {
    if (!to.defined()) return;
    for (std::int64_t part = 0; part < std::ssize(parts); ++part) {
      for (std::int64_t head = 0; head < heads; ++head)
        to.data<float>()[head] += sums[part * 2 * heads + first + head];
    }
  };
  add(call.drate, 0);
  add(call.dbias, heads);
}

}  // namespace piton::cpu
