// Backward of the gated delta rule and of that of a state space: groups of value heads of samples
// are divided among threads. The states before each chunk of rows are computed once more from the
// beginning, with what the chunk adds; then gradients from the last chunk to the first. A chunk has
// rows of one segment.
#include "kernels/cpu/recurrent/delta_chunk.h"
#include "kernels/cpu/recurrent/delta_rows.h"

namespace piton::cpu {
namespace {

class BackwardOfHeads {
 public:
  BackwardOfHeads(CpuContext& context, const DeltaRuleBackward& call, std::int64_t rows)
      : context_(context),
        call_(call),
        groups_(call.in),
        sizes_{.rows = rows,
               .keys = padded(call.in.q.dim(2), context.vector.lanes),
               .columns = padded(call.in.v.dim(2), context.vector.lanes)} {}

  // Value heads of a key head. `sums`: [3, hv], what is added to the gradients of rate, bias and
  // skip. `shared`: gradients of queries and keys [2, rows, keys], if several groups have them.
  void run(const TextPart& part, std::int64_t group, float* sums, float* shared) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    const std::int64_t key_head = groups_.key_head(group);
    if (shared != nullptr) {
      memory.dq = shared;
      memory.dk = shared + sizes_.rows * sizes_.keys;
    }
    read_key_rows(context_, memory.q, memory.q_lengths, sizes_, in, in.q, key_head, part,
                  query_factor(in));
    read_key_rows(context_, memory.k, memory.k_lengths, sizes_, in, in.k, key_head, part, 1);
    std::fill_n(memory.dq, part.rows * sizes_.keys, 0.0F);
    std::fill_n(memory.dk, part.rows * sizes_.keys, 0.0F);
    const std::vector<ChunkRows> chunks = chunks_of(part, in.segments);
    if (!corrects(in)) {
      std::fill_n(memory.dscores, part.rows * kDeltaChunk, 0.0F);
      for (const ChunkRows& one : chunks)
        memory.chunks.multiply_scores(chunk_of(one, false, memory));
    }
    for (std::int64_t head = groups_.begin(group); head < groups_.end(group); ++head)
      run_head(part, chunks, head, memory, sums);
    if (!corrects(in)) {
      for (const ChunkRows& one : chunks) memory.chunks.add_scores(chunk_of(one, false, memory));
    }
    if (shared != nullptr) return;
    write_key_gradient(call_.dq, key_head, part, memory.q, memory.q_lengths, memory.dq,
                       query_factor(in));
    write_key_gradient(call_.dk, key_head, part, memory.k, memory.k_lengths, memory.dk, 1);
  }

  std::int64_t shared_floats() const { return 2 * sizes_.rows * sizes_.keys; }

  // Adds up the gradients of the groups of a key head, which start with `shared`, of the rows of
  // `part` from `first` on, and goes through the lengths of the rows.
  void add_groups(const TextPart& part, std::int64_t first, std::int64_t key_head,
                  const float* shared) const {
    const DeltaRuleInput& in = call_.in;
    const TextPart some{.begin = part.begin + first,
                        .rows = std::min(kDeltaChunk, part.rows - first)};
    const std::int64_t numbers = some.rows * sizes_.keys;
    auto* d = reinterpret_cast<float*>(context_.scratch.own((2 * numbers + some.rows) * 4));
    float* x = d + numbers;
    float* lengths = x + numbers;
    const auto add = [&](const Tensor& from, const Tensor& to, const float* gradients,
                         float factor) {
      gradients += first * sizes_.keys;
      std::copy_n(gradients, numbers, d);
      for (std::int64_t group = 1; group < groups_.count; ++group)
        context_.vector.accumulate(d, gradients + group * shared_floats(), Type::kF32, numbers);
      if (corrects(in))
        read_key_rows(context_, x, lengths, sizes_, in, from, key_head, some, factor);
      write_key_gradient(to, key_head, some, x, lengths, d, factor);
    };
    add(in.q, call_.dq, shared, query_factor(in));
    add(in.k, call_.dk, shared + sizes_.rows * sizes_.keys, 1);
  }

 private:
  struct Memory {
    Memory(const BackwardOfHeads& of, CpuContext& context)
        : chunks(context, corrects(of.call_.in), of.sizes_.keys, of.sizes_.columns) {
      place_in_scratch(context, [&](Stretches& from) { place(of, from); });
    }
    void place(const BackwardOfHeads& of, Stretches& from) {
      const auto& [rows, keys, columns] = of.sizes_;
      for (float** one : {&q, &k}) *one = from.take(rows * keys);
      for (float** one : {&dq, &dk}) *one = from.take(of.groups_.count > 1 ? 0 : rows * keys);
      for (float** one : {&scores, &dscores})
        *one = from.take(corrects(of.call_.in) ? 0 : rows * kDeltaChunk);
      for (float** one : {&e, &d, &dout, &dv}) *one = from.take(rows * columns);
      for (float** one : {&q_lengths, &k_lengths, &keep, &strength, &dlog_keep, &dstrength})
        *one = from.take(rows);
      states = from.take(rows / kDeltaChunk * keys * columns);
      dstate = from.take(keys * columns);
      chunks.place(from.take(chunks.floats()));
    }
    DeltaChunks chunks;
    float *q, *k, *dq, *dk, *scores, *dscores, *e, *d, *dout, *dv;
    float *q_lengths, *k_lengths, *keep, *strength, *dlog_keep, *dstrength;
    float skip = 0;
    float* states;  // [rows / kDeltaChunk, keys, columns]
    float* dstate;  // [keys, columns]
  };

  DeltaChunk chunk_of(const ChunkRows& of, bool continues, const Memory& memory) const {
    const auto& [rows, keys, columns] = sizes_;
    const std::int64_t row = of.row;
    return {.rows = of.rows,
            .q = memory.q + row * keys,
            .k = memory.k + row * keys,
            .keep = memory.keep + row,
            .strength = memory.strength + row,
            .e = memory.e + row * columns,
            .d = memory.d + row * columns,
            .state = of.state < 0 ? nullptr : memory.states + of.state * keys * columns,
            .skip = memory.skip,
            .scores = memory.scores + row * kDeltaChunk,
            .dscores = memory.dscores + row * kDeltaChunk,
            .dout = memory.dout + row * columns,
            .dq = memory.dq + row * keys,
            .dk = memory.dk + row * keys,
            .dv = memory.dv + row * columns,
            .continues = continues,
            .dstate = memory.dstate,
            .dlog_keep = memory.dlog_keep + row,
            .dstrength = memory.dstrength + row};
  }

  void run_head(const TextPart& part, const std::vector<ChunkRows>& all, std::int64_t head,
                Memory& memory, float* sums) const {
    read_rows(context_, memory.e, sizes_.columns, call_.in.v, head, part);
    read_rows(context_, memory.dout, sizes_.columns, call_.dout, head, part);
    Gates{memory.keep, memory.strength}.read(call_.in, head, part);
    if (!corrects(call_.in)) memory.skip = number(call_.in.skip, head);
    const auto state_after = [&](std::size_t i) -> float* {
      if (i + 1 == all.size() || all[i + 1].state < 0) return nullptr;
      return memory.states + all[i + 1].state * sizes_.keys * sizes_.columns;
    };
    for (std::size_t i = 0; i < all.size(); ++i)
      memory.chunks.forward(chunk_of(all[i], false, memory), state_after(i));
    for (std::size_t i = all.size(); i-- > 0;)
      memory.chunks.backward(chunk_of(all[i], state_after(i) != nullptr, memory));
    for (std::int64_t row = 0; row < part.rows; ++row) {
      if (row + kFetchedRows < part.rows)
        fetch_row<true>(call_.dv, part.begin + row + kFetchedRows, head);
      context_.vector.convert(row_of(call_.dv, part.begin + row, head), type_of(call_.dv.dtype()),
                              memory.dv + row * sizes_.columns, Type::kF32, call_.in.v.dim(2));
    }
    write_gates(part, head, memory, sums);
  }

  void write_gates(const TextPart& part, std::int64_t head, const Memory& memory,
                   float* sums) const {
    const DeltaRuleInput& in = call_.in;
    const double speed = std::exp(static_cast<double>(number(in.rate, head)));
    const double bias = number(in.bias, head);
    const auto write = [&](const Tensor& to, std::int64_t row, double value) {
      write_number(row_of(to, part.begin + row, head), to.dtype(), static_cast<float>(value));
    };
    double of_rate = 0;
    double of_bias = 0;
    double of_skip = 0;
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double x = bias + number(in.decay, part.begin + row, head);
      const double softplus = softplus_of(x);
      const double dlog = memory.dlog_keep[row];
      double ddecay = -dlog * speed * sigmoid_of(x);
      if (corrects(in)) {
        const double strength = sigmoid_of(number(in.strength, part.begin + row, head));
        write(call_.dstrength, row, memory.dstrength[row] * strength * (1 - strength));
      } else {
        ddecay += memory.dstrength[row] * sigmoid_of(x);
        of_skip +=
            context_.vector.dot(memory.e + row * sizes_.columns, Type::kF32,
                                memory.dout + row * sizes_.columns, Type::kF32, sizes_.columns);
      }
      write(call_.ddecay, row, ddecay);
      of_rate -= dlog * speed * softplus;
      of_bias += ddecay;
    }
    sums[head] = static_cast<float>(of_rate);
    sums[in.v.dim(1) + head] = static_cast<float>(of_bias);
    sums[2 * in.v.dim(1) + head] = static_cast<float>(of_skip);
  }

  // From the gradient `d` of rows x, which are unit rows times `factor`; changes d. Of a state
  // space it is the gradient.
  void write_key_gradient(const Tensor& to, std::int64_t head, const TextPart& part, const float* x,
                          const float* inverse, float* d, float factor) const {
    for (std::int64_t row = 0; row < part.rows; ++row) {
      float* one = d + row * sizes_.keys;
      if (corrects(call_.in)) {
        const float* unit = x + row * sizes_.keys;
        const float along =
            context_.vector.dot(unit, Type::kF32, one, Type::kF32, sizes_.keys) / (factor * factor);
        for (std::int64_t i = 0; i < sizes_.keys; ++i)
          one[i] = inverse[row] * factor * (one[i] - unit[i] * along);
      }
      context_.vector.convert(row_of(to, part.begin + row, head), type_of(to.dtype()), one,
                              Type::kF32, to.dim(2));
    }
  }

  CpuContext& context_;
  const DeltaRuleBackward& call_;
  HeadGroups groups_;
  DeltaSizes sizes_;
};

}  // namespace

void execute(CpuContext& context, const DeltaRuleBackward& call) {
  const HeadGroups groups(call.in);
  const std::int64_t heads = call.in.v.dim(1);
  const std::vector<TextPart> parts = text_parts({}, call.in.samples, call.in.q.dim(0));
  const auto count = std::ssize(parts);
  const std::int64_t rows = longest(parts);
  const BackwardOfHeads backward(context, call, rows);
  const std::int64_t of_group = groups.count > 1 ? backward.shared_floats() : 0;
  auto* sums = reinterpret_cast<float*>(
      context.scratch.shared((count * 3 * heads + count * groups.all() * of_group) * 4));
  float* gradients = sums + count * 3 * heads;
  const auto shared = [&](std::int64_t part, std::int64_t group) {
    return of_group == 0 ? nullptr : gradients + (part * groups.all() + group) * of_group;
  };
  context.threads.run(count * groups.all(), [&](std::int64_t index) {
    const std::int64_t part = index / groups.all();
    const std::int64_t group = index % groups.all();
    backward.run(parts[static_cast<std::size_t>(part)], group, sums + part * 3 * heads,
                 shared(part, group));
  });
  if (of_group > 0) {
    const std::int64_t blocks = (rows + kDeltaChunk - 1) / kDeltaChunk;
    context.threads.run(count * groups.key_heads * blocks, [&](std::int64_t index) {
      const std::int64_t part = index / blocks / groups.key_heads;
      const std::int64_t key_head = index / blocks % groups.key_heads;
      backward.add_groups(parts[static_cast<std::size_t>(part)], index % blocks * kDeltaChunk,
                          key_head, shared(part, key_head * groups.count));
    });
  }
  // In the order of samples, however many threads there are.
  const auto add = [&](const Tensor& to, std::int64_t first) {
    if (!to.defined()) return;
    for (std::int64_t part = 0; part < count; ++part) {
      for (std::int64_t head = 0; head < heads; ++head)
        to.data<float>()[head] += sums[part * 3 * heads + first + head];
    }
  };
  add(call.drate, 0);
  add(call.dbias, heads);
  add(call.dskip, 2 * heads);
}

}  // namespace piton::cpu
