// The gated delta rule: heads of texts are divided among threads. A part goes through the rows of a
// text in order, with columns of the state that stay in the first-level cache.
//
// Backward goes through chunks of rows from the last one to the first. It has the states before
// each chunk, computed once more from the beginning, and those of all rows of one chunk.
#include "kernels/recurrent/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/recurrent/text_parts.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kChunk = 64;

std::int64_t whole(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Stretches of one buffer.
class Stretches {
 public:
  float* take(std::int64_t floats) {
    float* result = next_;
    if (next_ != nullptr) next_ += whole(floats, 16);
    count_ += whole(floats, 16);
    return result;
  }
  std::int64_t bytes() const { return count_ * 4; }
  void begin(std::byte* memory) {
    next_ = reinterpret_cast<float*>(memory);
    count_ = 0;
  }

 private:
  float* next_ = nullptr;
  std::int64_t count_ = 0;
};

struct Sizes {
  std::int64_t rows = 0;     // the most of a text
  std::int64_t keys = 0;     // dk, padded
  std::int64_t columns = 0;  // dv, padded
};

// A row of one head of a tensor [n, heads, d] or [n, heads].
std::byte* row_of(const Tensor& x, std::int64_t row, std::int64_t head) {
  return x.raw() + (row * x.stride(0) + head * x.stride(1)) * size_bytes(x.dtype());
}

float number(CpuContext& context, const Tensor& x, std::int64_t row, std::int64_t head) {
  float value = 0;
  context.vector.convert(&value, Type::kF32, row_of(x, row, head), type_of(x.dtype()), 1);
  return value;
}
float number(CpuContext& context, const Tensor& x, std::int64_t i) {
  float value = 0;
  context.vector.convert(&value, Type::kF32, x.raw() + i * size_bytes(x.dtype()),
                         type_of(x.dtype()), 1);
  return value;
}

// Rows of a head in fp32, padded by zeros to `width`.
void read_rows(CpuContext& context, float* to, std::int64_t width, const Tensor& x,
               std::int64_t head, const TextPart& part) {
  const std::int64_t d = x.dim(2);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    float* one = to + row * width;
    context.vector.convert(one, Type::kF32, row_of(x, part.begin + row, head), type_of(x.dtype()),
                           d);
    std::fill(one + d, one + width, 0.0F);
  }
}

// The same over their lengths, times `factor`; and one over the lengths.
void read_unit_rows(CpuContext& context, float* to, float* inverse, const Sizes& sizes,
                    const Tensor& x, std::int64_t head, const TextPart& part, float factor) {
  read_rows(context, to, sizes.keys, x, head, part);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    float* one = to + row * sizes.keys;
    const float squares = context.vector.dot(one, Type::kF32, one, Type::kF32, sizes.keys);
    inverse[row] = 1 / std::sqrt(squares + static_cast<float>(kDeltaNormEps));
    context.vector.scale(one, one, Type::kF32, sizes.keys, inverse[row] * factor);
  }
}

float factor_of(const DeltaRuleInput& in) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(in.q.dim(2))));
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
// log(1 + exp(x)), without overflow.
double softplus_of(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

// The gates of a value head.
struct Gates {
  float* keep = nullptr;
  float* strength = nullptr;

  void read(CpuContext& context, const DeltaRuleInput& in, std::int64_t head,
            const TextPart& part) const {
    const double speed = std::exp(static_cast<double>(number(context, in.rate, head)));
    const double bias = number(context, in.bias, head);
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double x = bias + number(context, in.decay, part.begin + row, head);
      const double softplus = softplus_of(x);
      keep[row] = begins_segment(part, in.segments, row)
                      ? 0.0F
                      : static_cast<float>(std::exp(-speed * softplus));
      strength[row] =
          static_cast<float>(sigmoid_of(number(context, in.strength, part.begin + row, head)));
    }
  }
};

std::int64_t longest(const std::vector<TextPart>& parts) {
  std::int64_t rows = 0;
  for (const TextPart& part : parts) rows = std::max(rows, part.rows);
  return rows;
}

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
        sizes_{.rows = rows, .keys = call.in.q.dim(2), .columns = whole(call.in.v.dim(2), block_)} {
  }

  void run(const TextPart& part, std::int64_t head) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    const std::int64_t key_head = head / (in.v.dim(1) / in.q.dim(1));
    read_unit_rows(context_, memory.q, memory.lengths, sizes_, in.q, key_head, part, factor_of(in));
    read_unit_rows(context_, memory.k, memory.lengths, sizes_, in.k, key_head, part, 1);
    read_rows(context_, memory.v, sizes_.columns, in.v, head, part);
    const Gates gates{memory.keep, memory.strength};
    gates.read(context_, in, head, part);
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
      Stretches stretches;
      place(of, stretches);
      stretches.begin(context.scratch.own(stretches.bytes()));
      place(of, stretches);
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
  Sizes sizes_;
};

class BackwardOfHeads {
 public:
  BackwardOfHeads(CpuContext& context, const DeltaRuleBackward& call, std::int64_t rows)
      : context_(context),
        call_(call),
        sizes_{.rows = rows,
               .keys = whole(call.in.q.dim(2), context.vector.lanes),
               .columns = whole(call.in.v.dim(2), kDeltaColumns)} {}

  // One key head and its value heads. `sums`: [2, hv], what is added to the gradients of rate and
  // bias.
  void run(const TextPart& part, std::int64_t key_head, float* sums) const {
    Memory memory(*this, context_);
    const DeltaRuleInput& in = call_.in;
    read_unit_rows(context_, memory.q, memory.q_lengths, sizes_, in.q, key_head, part,
                   factor_of(in));
    read_unit_rows(context_, memory.k, memory.k_lengths, sizes_, in.k, key_head, part, 1);
    std::fill_n(memory.dq, part.rows * sizes_.keys, 0.0F);
    std::fill_n(memory.dk, part.rows * sizes_.keys, 0.0F);
    const std::int64_t shared = in.v.dim(1) / in.q.dim(1);
    for (std::int64_t head = key_head * shared; head < (key_head + 1) * shared; ++head)
      run_head(part, head, memory, sums);
    write_unit_gradient(call_.dq, key_head, part, memory.q, memory.q_lengths, memory.dq,
                        factor_of(in));
    write_unit_gradient(call_.dk, key_head, part, memory.k, memory.k_lengths, memory.dk, 1);
  }

 private:
  struct Memory {
    Memory(const BackwardOfHeads& of, CpuContext& context) {
      Stretches stretches;
      place(of, stretches);
      stretches.begin(context.scratch.own(stretches.bytes()));
      place(of, stretches);
    }
    void place(const BackwardOfHeads& of, Stretches& from) {
      const auto& [rows, keys, columns] = of.sizes_;
      for (float** one : {&q, &k, &dq, &dk}) *one = from.take(rows * keys);
      for (float** one : {&v, &dout}) *one = from.take(rows * columns);
      for (float** one : {&values, &douts}) *one = from.take(rows * kDeltaColumns);
      for (float** one : {&q_lengths, &k_lengths, &keep, &strength, &dlog_keep, &dstrength})
        *one = from.take(rows);
      states = from.take((rows / kChunk + 1) * kDeltaColumns * keys);
      state = from.take(kDeltaColumns * keys);
      dstate = from.take(kDeltaColumns * keys);
      kept = from.take(kChunk * kDeltaColumns * keys);
      error = from.take(kChunk * kDeltaColumns);
    }
    float *q, *k, *dq, *dk, *v, *dout, *values, *douts;
    float *q_lengths, *k_lengths, *keep, *strength, *dlog_keep, *dstrength;
    float *states, *state, *dstate, *kept, *error;
  };

  void run_head(const TextPart& part, std::int64_t head, const Memory& memory, float* sums) const {
    read_rows(context_, memory.v, sizes_.columns, call_.in.v, head, part);
    read_rows(context_, memory.dout, sizes_.columns, call_.dout, head, part);
    const Gates gates{memory.keep, memory.strength};
    gates.read(context_, call_.in, head, part);
    std::fill_n(memory.dlog_keep, part.rows, 0.0F);
    std::fill_n(memory.dstrength, part.rows, 0.0F);
    for (std::int64_t first = 0; first < sizes_.columns; first += kDeltaColumns)
      run_columns(part, first, memory);
    for (std::int64_t row = 0; row < part.rows; ++row) {
      context_.vector.convert(row_of(call_.dv, part.begin + row, head), type_of(call_.dv.dtype()),
                              memory.v + row * sizes_.columns, Type::kF32, call_.in.v.dim(2));
    }
    write_gates(part, head, memory, sums);
  }

  // Replaces the columns of v by those of its gradient.
  void run_columns(const TextPart& part, std::int64_t first, const Memory& memory) const {
    if (part.rows == 0) return;
    take_columns(memory.values, kDeltaColumns, memory.v, sizes_.columns, first, part.rows);
    take_columns(memory.douts, kDeltaColumns, memory.dout, sizes_.columns, first, part.rows);
    const std::int64_t of_state = kDeltaColumns * sizes_.keys;
    const auto chunk_at = [&](std::int64_t row) {
      return DeltaArguments{.rows = std::min(kChunk, part.rows - row),
                            .keys = sizes_.keys,
                            .q = memory.q + row * sizes_.keys,
                            .k = memory.k + row * sizes_.keys,
                            .v = memory.values + row * kDeltaColumns,
                            .keep = memory.keep + row,
                            .strength = memory.strength + row,
                            .state = memory.state,
                            .dout = memory.douts + row * kDeltaColumns,
                            .dstate = memory.dstate,
                            .dq = memory.dq + row * sizes_.keys,
                            .dk = memory.dk + row * sizes_.keys,
                            .dv = memory.values + row * kDeltaColumns,
                            .dlog_keep = memory.dlog_keep + row,
                            .dstrength = memory.dstrength + row};
    };
    std::fill_n(memory.state, of_state, 0.0F);
    for (std::int64_t row = 0; row < part.rows; row += kChunk) {
      std::copy_n(memory.state, of_state, memory.states + row / kChunk * of_state);
      if (row + kChunk < part.rows) context_.vector.delta_states(chunk_at(row));
    }
    std::fill_n(memory.dstate, of_state, 0.0F);
    for (std::int64_t row = (part.rows - 1) / kChunk * kChunk; row >= 0; row -= kChunk) {
      DeltaArguments chunk = chunk_at(row);
      std::copy_n(memory.states + row / kChunk * of_state, of_state, memory.state);
      chunk.kept = memory.kept;
      chunk.error = memory.error;
      context_.vector.delta_states(chunk);
      context_.vector.delta_backward(chunk);
    }
    put_columns(memory.v, sizes_.columns, memory.values, kDeltaColumns, first, part.rows);
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
  Sizes sizes_;
};

}  // namespace

void execute(CpuContext& context, const DeltaRuleForward& call) {
  const std::int64_t heads = call.in.v.dim(1);
  const std::vector<TextPart> parts = text_parts(call.texts, call.in.samples, call.in.q.dim(0));
  const Forward forward(context, call, longest(parts));
  context.threads.run(std::ssize(parts) * heads, [&](std::int64_t index) {
    forward.run(parts[static_cast<std::size_t>(index / heads)], index % heads);
  });
}

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
