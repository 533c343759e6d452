// The gated delta rule. A warp has some columns of the state of a head in registers: a lane has the
// channels of keys lane, lane + 32, ... It goes through the rows of a text in order, alone.
//
// Backward computes the states once more, and keeps those before each chunk of rows; then, from the
// last chunk to the first, those of all its rows. The warps of a block add up their gradients of
// queries and keys. Blocks write theirs to scratch, of one sample at a time.
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/recurrent/text_rows.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton::cuda {
namespace {

constexpr int kDeltaWarps = 4;
constexpr int kDeltaThreads = kDeltaWarps * kWarp;
// Columns of a warp, whose states and gradients are in registers, and of a block.
template <typename T>
constexpr int kColumns = sizeof(T) == 8 ? 2 : 4;
template <typename T>
constexpr int kTile = kDeltaWarps* kColumns<T>;
constexpr std::int64_t kChunk = 32;  // rows

// [n, heads, d], the last dim contiguous.
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t row;
  std::int64_t head;
  __device__ T& at(std::int64_t n, std::int64_t h, std::int64_t i) const {
    return data[n * row + h * head + i];
  }
};

template <typename T>
HeadRows<T> head_rows(const Tensor& x) {
  return {pointer<T>(x), x.stride(0), x.stride(1)};
}

template <typename T>
struct DeltaInputs {
  HeadRows<const T> q;
  HeadRows<const T> k;
  HeadRows<const T> v;
  StridedRows<const T> decay;
  StridedRows<const T> strength;
  const T* rate;
  const T* bias;
  TextPlaces texts;
  std::int64_t keys;    // dk
  std::int64_t values;  // dv
  std::int64_t heads;   // hv
  std::int64_t shared;  // hv / hk
  Wide<T> factor;       // of queries
};

template <typename T>
DeltaInputs<T> inputs_of(const DeltaRuleInput& in, const TextRows& texts) {
  return {.q = head_rows<const T>(in.q),
          .k = head_rows<const T>(in.k),
          .v = head_rows<const T>(in.v),
          .decay = strided_rows<const T>(in.decay),
          .strength = strided_rows<const T>(in.strength),
          .rate = pointer<const T>(in.rate),
          .bias = pointer<const T>(in.bias),
          .texts = places_of(texts, in.segments, in.samples, in.q.dim(0)),
          .keys = in.q.dim(2),
          .values = in.v.dim(2),
          .heads = in.v.dim(1),
          .shared = in.v.dim(1) / in.q.dim(1),
          .factor = static_cast<Wide<T>>(1 / std::sqrt(static_cast<double>(in.q.dim(2))))};
}

template <typename S>
__device__ S warp_sum(S mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(kAllLanes, mine, distance);
  return mine;
}

template <typename S>
__device__ S sigmoid_of(S x) {
  return S{1} / (S{1} + exp(-x));
}

template <typename S>
__device__ S softplus_of(S x) {
  return x > S{0} ? x + log1p(exp(-x)) : log1p(exp(x));
}

// The channels of a lane of a row of queries or keys, over the row's length, times `factor`.
template <typename T, int kParts>
struct UnitRow {
  Wide<T> x[kParts];
  Wide<T> inverse;

  __device__ UnitRow(const HeadRows<const T>& rows, std::int64_t row, std::int64_t head,
                     std::int64_t channels, Wide<T> factor) {
    const int lane = threadIdx.x % kWarp;
    Wide<T> squares = 0;
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = lane + p * kWarp;
      x[p] = i < channels ? widen(rows.at(row, head, i)) : Wide<T>{0};
      squares += x[p] * x[p];
    }
    inverse = Wide<T>{1} / sqrt(warp_sum(squares) + static_cast<Wide<T>>(kDeltaNormEps));
    for (int p = 0; p < kParts; ++p) x[p] *= inverse * factor;
  }
};

// One row of a value head.
template <typename T, int kParts>
struct DeltaRow {
  UnitRow<T, kParts> k;
  Wide<T> keep;
  Wide<T> strength;
  bool begins;

  __device__ DeltaRow(const DeltaInputs<T>& in, const RowsOfText& text, std::int64_t row,
                      std::int64_t head)
      : k(in.k, row, head / in.shared, in.keys, Wide<T>{1}),
        keep(exp(-exp(widen(in.rate[head])) *
                 softplus_of(widen(in.decay.at(row, head)) + widen(in.bias[head])))),
        strength(sigmoid_of(widen(in.strength.at(row, head)))),
        begins(in.texts.begins_at(text, row)) {}
};

// The columns of a warp of the state of a head.
template <typename T, int kParts>
struct WarpState {
  Wide<T> s[kColumns<T>][kParts];

  __device__ void clear() {
    for (auto& column : s) {
      for (Wide<T>& one : column) one = 0;
    }
  }
  __device__ void keep(const DeltaRow<T, kParts>& row) {
    for (auto& column : s) {
      for (Wide<T>& one : column) one = row.begins ? Wide<T>{0} : one * row.keep;
    }
  }
  // v - S^T k of a column; after keep().
  __device__ Wide<T> error(const DeltaRow<T, kParts>& row, int column, Wide<T> v) const {
    Wide<T> u = 0;
    for (int p = 0; p < kParts; ++p) u += s[column][p] * row.k.x[p];
    return v - warp_sum(u);
  }
  __device__ void add(const DeltaRow<T, kParts>& row, int column, Wide<T> d) {
    for (int p = 0; p < kParts; ++p) s[column][p] += row.k.x[p] * d;
  }
};

template <typename T>
struct DeltaForwardArguments {
  DeltaInputs<T> in;
  T* out;           // [n, hv, dv]
  Wide<T>* states;  // [slots, hv, dk, dv], or nullptr
};

template <typename T, int kParts>
__global__ void __launch_bounds__(kDeltaThreads, kBlocks)
    run_delta_forward(DeltaForwardArguments<T> a) {
  const DeltaInputs<T>& in = a.in;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * kTile<T> + threadIdx.x / kWarp * kColumns<T>;
  const std::int64_t head = blockIdx.y;
  const RowsOfText text = in.texts.of(blockIdx.z);
  WarpState<T, kParts> state;
  state.clear();
  const auto for_each_stored = [&](auto body) {
    for (int c = 0; c < kColumns<T>; ++c) {
      for (int p = 0; p < kParts; ++p) {
        const std::int64_t i = lane + p * kWarp;
        if (i >= in.keys || first + c >= in.values) continue;
        body(state.s[c][p],
             a.states[((text.slot * in.heads + head) * in.keys + i) * in.values + first + c]);
      }
    }
  };
  if (text.continues) for_each_stored([](Wide<T>& one, const Wide<T>& stored) { one = stored; });
  for (std::int64_t t = text.begin; t < text.end; ++t) {
    const DeltaRow<T, kParts> row(in, text, t, head);
    const UnitRow<T, kParts> q(in.q, t, head / in.shared, in.keys, in.factor);
    state.keep(row);
    for (int c = 0; c < kColumns<T>; ++c) {
      const bool is_there = first + c < in.values;
      const Wide<T> v = is_there ? widen(in.v.at(t, head, first + c)) : Wide<T>{0};
      state.add(row, c, row.strength * state.error(row, c, v));
      Wide<T> sum = 0;
      for (int p = 0; p < kParts; ++p) sum += state.s[c][p] * q.x[p];
      sum = warp_sum(sum);
      if (is_there && lane == 0)
        a.out[(t * in.heads + head) * in.values + first + c] = narrow<T>(sum);
    }
  }
  if (text.slot >= 0) for_each_stored([](const Wide<T>& one, Wide<T>& stored) { stored = one; });
}

// Of one sample. Scratch of a block is that of its number among the blocks of a grid.
template <typename T>
struct DeltaBackwardArguments {
  DeltaInputs<T> in;
  const T* dout;  // [n, hv, dv]
  HeadRows<T> dv;
  std::int64_t sample;
  std::int64_t chunks;
  Wide<T>* before;     // [blocks, chunks, kTile<T>, 32 parts]: states before chunks
  Wide<T>* kept;       // [blocks, kChunk, kTile<T>, 32 parts]: keep S of rows of a chunk
  Wide<T>* errors;     // [blocks, kChunk, kTile<T>]
  Wide<T>* dq;         // [rows, blocks, dk]
  Wide<T>* dk;         // [rows, blocks, dk]
  Wide<T>* dlog;       // [rows, blocks]
  Wide<T>* dstrength;  // [rows, blocks]
};

template <typename T, int kParts>
struct BackwardBlock {
  using S = Wide<T>;
  const DeltaBackwardArguments<T>& a;
  RowsOfText text;
  std::int64_t head;
  std::int64_t block;  // number in the grid
  std::int64_t first;  // column of the warp
  int lane;
  int warp;

  __device__ explicit BackwardBlock(const DeltaBackwardArguments<T>& arguments)
      : a(arguments),
        text(arguments.in.texts.of(arguments.sample)),
        head(blockIdx.y),
        block(std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x),
        first(std::int64_t{blockIdx.x} * kTile<T> + threadIdx.x / kWarp * kColumns<T>),
        lane(threadIdx.x % kWarp),
        warp(threadIdx.x / kWarp) {}

  // This lane's number of a column, in tiles of `rows` for each block.
  __device__ S& tile(S* all, std::int64_t rows, std::int64_t row, int c, int p) const {
    const std::int64_t column = (block * rows + row) * kTile<T> + warp * kColumns<T> + c;
    return all[(column * kParts + p) * kWarp + lane];
  }
  __device__ void move(WarpState<T, kParts>& state, std::int64_t chunk, bool stores) const {
    for (int c = 0; c < kColumns<T>; ++c) {
      for (int p = 0; p < kParts; ++p) {
        S& stored = tile(a.before, a.chunks, chunk, c, p);
        if (stores) {
          stored = state.s[c][p];
        } else {
          state.s[c][p] = stored;
        }
      }
    }
  }
  __device__ S value(std::int64_t t, int c) const {
    return first + c < a.in.values ? widen(a.in.v.at(t, head, first + c)) : S{0};
  }

  __device__ void step(WarpState<T, kParts>& state, std::int64_t t, bool tells) const {
    const DeltaRow<T, kParts> row(a.in, text, t, head);
    state.keep(row);
    const std::int64_t in_chunk = (t - text.begin) % kChunk;
    for (int c = 0; c < kColumns<T>; ++c) {
      if (tells) {
        for (int p = 0; p < kParts; ++p) tile(a.kept, kChunk, in_chunk, c, p) = state.s[c][p];
      }
      const S error = state.error(row, c, value(t, c));
      if (tells && lane == 0)
        a.errors[(block * kChunk + in_chunk) * kTile<T> + warp * kColumns<T> + c] = error;
      state.add(row, c, row.strength * error);
    }
  }

  // `sums`: shared, [warps, 2 kParts 32 + 2].
  __device__ void step_back(WarpState<T, kParts>& ds, std::int64_t t, S* sums) const {
    constexpr int kSums = 2 * kParts * kWarp + 2;
    const DeltaRow<T, kParts> row(a.in, text, t, head);
    const UnitRow<T, kParts> q(a.in.q, t, head / a.in.shared, a.in.keys, a.in.factor);
    const std::int64_t in_chunk = (t - text.begin) % kChunk;
    S dq[kParts];
    S dk[kParts];
    for (int p = 0; p < kParts; ++p) dq[p] = dk[p] = 0;
    S dlog = 0;
    S dstrength = 0;
    for (int c = 0; c < kColumns<T>; ++c) {
      const bool is_there = first + c < a.in.values;
      const S dout =
          is_there ? widen(a.dout[(t * a.in.heads + head) * a.in.values + first + c]) : S{0};
      const S error = a.errors[(block * kChunk + in_chunk) * kTile<T> + warp * kColumns<T> + c];
      const S d = row.strength * error;
      S dd = 0;
      for (int p = 0; p < kParts; ++p) {
        ds.s[c][p] += q.x[p] * dout;
        dq[p] += (tile(a.kept, kChunk, in_chunk, c, p) + row.k.x[p] * d) * dout;
        dk[p] += ds.s[c][p] * d;
        dd += ds.s[c][p] * row.k.x[p];
      }
      dd = warp_sum(dd);
      if (is_there && lane == 0) a.dv.at(t, head, first + c) = narrow<T>(row.strength * dd);
      dstrength += dd * error;
      const S du = -row.strength * dd;
      for (int p = 0; p < kParts; ++p) {
        const S kept = tile(a.kept, kChunk, in_chunk, c, p);
        ds.s[c][p] += row.k.x[p] * du;
        dk[p] += kept * du;
        dlog += ds.s[c][p] * kept;
        ds.s[c][p] = row.begins ? S{0} : ds.s[c][p] * row.keep;
      }
    }
    dlog = warp_sum(dlog);
    S* mine = sums + warp * kSums;
    for (int p = 0; p < kParts; ++p) {
      mine[p * kWarp + lane] = dq[p];
      mine[(kParts + p) * kWarp + lane] = dk[p];
    }
    if (lane == 0) {
      mine[2 * kParts * kWarp] = dlog;
      mine[2 * kParts * kWarp + 1] = dstrength;
    }
    __syncthreads();
    const std::int64_t place = (t - text.begin) * (std::int64_t{gridDim.x} * gridDim.y) + block;
    for (int i = threadIdx.x; i < kSums; i += kDeltaThreads) {
      S sum = 0;
      for (int w = 0; w < kDeltaWarps; ++w) sum += sums[w * kSums + i];
      if (i >= 2 * kParts * kWarp) {
        (i == 2 * kParts * kWarp ? a.dlog : a.dstrength)[place] = sum;
        continue;
      }
      const std::int64_t channel = i % (kParts * kWarp);
      if (channel < a.in.keys)
        (i < kParts * kWarp ? a.dq : a.dk)[place * a.in.keys + channel] = sum;
    }
    __syncthreads();
  }
};

template <typename T, int kParts>
__global__ void __launch_bounds__(kDeltaThreads, kBlocks)
    run_delta_backward(DeltaBackwardArguments<T> a) {
  Wide<T>* sums = shared_array<Wide<T>>();
  const BackwardBlock<T, kParts> block(a);
  const RowsOfText& text = block.text;
  WarpState<T, kParts> state;
  state.clear();
  for (std::int64_t t = text.begin; t < text.end; ++t) {
    if ((t - text.begin) % kChunk == 0) block.move(state, (t - text.begin) / kChunk, true);
    block.step(state, t, false);
  }
  WarpState<T, kParts> ds;
  ds.clear();
  for (std::int64_t chunk = a.chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = text.begin + chunk * kChunk;
    const std::int64_t end = begin + kChunk < text.end ? begin + kChunk : text.end;
    block.move(state, chunk, false);
    for (std::int64_t t = begin; t < end; ++t) block.step(state, t, true);
    __syncthreads();  // errors are written by one lane, and read by all of a warp
    for (std::int64_t t = end - 1; t >= begin; --t) block.step_back(ds, t, sums);
  }
}

// Adds up what the blocks of a key head have, and goes through the length of its rows. A warp for
// each row and key head.
template <typename T>
struct UnitGradients {
  DeltaInputs<T> in;
  const Wide<T>* dq;  // [rows, blocks, dk]
  const Wide<T>* dk;
  HeadRows<T> to_q;
  HeadRows<T> to_k;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t tiles;
};

template <typename T>
__device__ void write_unit_gradient(const UnitGradients<T>& a, const Wide<T>* d,
                                    const HeadRows<const T>& from, const HeadRows<T>& to,
                                    std::int64_t row, std::int64_t head, Wide<T> factor) {
  using S = Wide<T>;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t blocks = a.in.heads * a.tiles;
  const auto gradient = [&](std::int64_t i) {
    S sum = 0;
    for (std::int64_t block = head * a.in.shared * a.tiles;
         block < (head + 1) * a.in.shared * a.tiles; ++block)
      sum += d[((row - a.first_row) * blocks + block) * a.in.keys + i];
    return sum;
  };
  S squares = 0;
  S along = 0;
  for (std::int64_t i = lane; i < a.in.keys; i += kWarp) {
    const S x = widen(from.at(row, head, i));
    squares += x * x;
    along += x * gradient(i);
  }
  const S inverse = S{1} / sqrt(warp_sum(squares) + static_cast<S>(kDeltaNormEps));
  along = warp_sum(along) * inverse;
  for (std::int64_t i = lane; i < a.in.keys; i += kWarp) {
    const S x = widen(from.at(row, head, i)) * inverse;
    to.at(row, head, i) = narrow<T>(inverse * factor * (gradient(i) - x * along));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) run_unit_gradients(UnitGradients<T> a) {
  const std::int64_t key_heads = a.in.heads / a.in.shared;
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= a.rows * key_heads) return;
  const std::int64_t row = a.first_row + index / key_heads;
  const std::int64_t head = index % key_heads;
  write_unit_gradient(a, a.dq, a.in.q, a.to_q, row, head, a.in.factor);
  write_unit_gradient(a, a.dk, a.in.k, a.to_k, row, head, Wide<T>{1});
}

// `terms`: [2, hv, n], of the gradients of rates and biases.
template <typename T>
struct GateGradients {
  DeltaInputs<T> in;
  const Wide<T>* dlog;  // [rows, blocks]
  const Wide<T>* dstrength;
  StridedRows<T> to_decay;
  StridedRows<T> to_strength;
  Wide<T>* terms;
  std::int64_t first_row;
  std::int64_t all_rows;
  std::int64_t tiles;

  __device__ void operator()(std::int64_t i) const {
    using S = Wide<T>;
    const std::int64_t row = first_row + i / in.heads;
    const std::int64_t head = i % in.heads;
    S of_log = 0;
    S of_strength = 0;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      of_log += dlog[i * tiles + tile];
      of_strength += dstrength[i * tiles + tile];
    }
    const S speed = exp(widen(in.rate[head]));
    const S x = widen(in.decay.at(row, head)) + widen(in.bias[head]);
    const S ddecay = -of_log * speed * sigmoid_of(x);
    const S strength = sigmoid_of(widen(in.strength.at(row, head)));
    to_decay.at(row, head) = narrow<T>(ddecay);
    to_strength.at(row, head) = narrow<T>(of_strength * strength * (S{1} - strength));
    terms[head * all_rows + row] = -of_log * speed * softplus_of(x);
    terms[(in.heads + head) * all_rows + row] = ddecay;
  }
};

template <typename S>
struct GateSums {
  const S* terms;  // [2, hv, n]
  S* drate;        // or nullptr
  S* dbias;
  std::int64_t heads;
  std::int64_t rows;
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) run_gate_sums(GateSums<S> a) {
  S* parts = shared_array<S>();
  const std::int64_t which = blockIdx.x;
  const S sum = sum_in_block(a.terms + which * a.rows, a.rows, parts);
  if (threadIdx.x != 0) return;
  if (which < a.heads) {
    if (a.drate != nullptr) a.drate[which] += sum;
  } else if (a.dbias != nullptr) {
    a.dbias[which - a.heads] += sum;
  }
}

// use(std::integral_constant<int, parts>) with the channels of keys that a lane has.
template <typename Use>
void with_parts(std::int64_t keys, Use use) {
  PITON_ASSERT(keys <= 8 * kWarp, "cuda: keys of {} channels of the delta rule", keys);
  if (keys <= kWarp) return use(std::integral_constant<int, 1>{});
  if (keys <= 2 * kWarp) return use(std::integral_constant<int, 2>{});
  if (keys <= 4 * kWarp) return use(std::integral_constant<int, 4>{});
  use(std::integral_constant<int, 8>{});
}

template <typename T>
std::int64_t tiles_of(const DeltaRuleInput& in) {
  return (in.v.dim(2) + kTile<T> - 1) / kTile<T>;
}

// The backward of one sample after another, which take turns in the same scratch.
template <typename T, int kParts>
void run_backward(const DeltaRuleBackward& call, const CallContext& context) {
  using S = Wide<T>;
  const DType sums = sizeof(S) == 8 ? DType::kF64 : DType::kF32;
  const DeltaInputs<T> in = inputs_of<T>(call.in, {});
  const std::int64_t n = call.in.q.dim(0);
  const std::int64_t rows = n / call.in.samples;
  const std::int64_t tiles = tiles_of<T>(call.in);
  const std::int64_t blocks = tiles * in.heads;
  const std::int64_t chunks = (rows + kChunk - 1) / kChunk;
  const auto take = [&](std::int64_t numbers) { return scratch(sums, {numbers}, context); };
  const std::int64_t of_tile = kTile<T> * kParts * kWarp;
  const Tensor before = take(blocks * chunks * of_tile);
  const Tensor kept = take(blocks * kChunk * of_tile);
  const Tensor errors = take(blocks * kChunk * kTile<T>);
  const Tensor dq = take(rows * blocks * in.keys);
  const Tensor dk = take(rows * blocks * in.keys);
  const Tensor dlog = take(rows * blocks);
  const Tensor dstrength = take(rows * blocks);
  const Tensor terms = take(2 * in.heads * n);
  for (std::int64_t sample = 0; sample < call.in.samples; ++sample) {
    const std::int64_t first = sample * rows;
    launch("launch of delta rule backward", run_delta_backward<T, kParts>,
           {.blocks = {static_cast<unsigned>(tiles), static_cast<unsigned>(in.heads), 1},
            .threads = kDeltaThreads,
            .shared_bytes = kDeltaWarps * (2 * kParts * kWarp + 2) * sizeof(S)},
           DeltaBackwardArguments<T>{.in = in,
                                     .dout = pointer<const T>(call.dout),
                                     .dv = head_rows<T>(call.dv),
                                     .sample = sample,
                                     .chunks = chunks,
                                     .before = pointer<S>(before),
                                     .kept = pointer<S>(kept),
                                     .errors = pointer<S>(errors),
                                     .dq = pointer<S>(dq),
                                     .dk = pointer<S>(dk),
                                     .dlog = pointer<S>(dlog),
                                     .dstrength = pointer<S>(dstrength)},
           context.stream);
    const std::int64_t units = rows * (in.heads / in.shared);
    launch("launch of the gradients of queries and keys", run_unit_gradients<T>,
           {.blocks = {static_cast<unsigned>((units + kWarps - 1) / kWarps), 1, 1}},
           UnitGradients<T>{.in = in,
                            .dq = pointer<const S>(dq),
                            .dk = pointer<const S>(dk),
                            .to_q = head_rows<T>(call.dq),
                            .to_k = head_rows<T>(call.dk),
                            .first_row = first,
                            .rows = rows,
                            .tiles = tiles},
           context.stream);
    launch_elements("launch of the gradients of gates", rows * in.heads,
                    GateGradients<T>{.in = in,
                                     .dlog = pointer<const S>(dlog),
                                     .dstrength = pointer<const S>(dstrength),
                                     .to_decay = strided_rows<T>(call.ddecay),
                                     .to_strength = strided_rows<T>(call.dstrength),
                                     .terms = pointer<S>(terms),
                                     .first_row = first,
                                     .all_rows = n,
                                     .tiles = tiles},
                    context.stream);
  }
  launch(
      "launch of sums of gates", run_gate_sums<S>,
      {.blocks = {static_cast<unsigned>(2 * in.heads), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
      GateSums<S>{.terms = pointer<const S>(terms),
                  .drate = pointer<S>(call.drate),
                  .dbias = pointer<S>(call.dbias),
                  .heads = in.heads,
                  .rows = n},
      context.stream);
}

}  // namespace

void execute(const DeltaRuleForward& call, const CallContext& context) {
  if (call.in.q.dim(0) == 0) return;
  const std::int64_t texts = call.texts.given() ? call.texts.slots.dim(0) : call.in.samples;
  with_floating(call.in.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_parts(call.in.q.dim(2), [&](auto parts) {
      launch("launch of delta rule forward", run_delta_forward<T, decltype(parts)::value>,
             {.blocks = {static_cast<unsigned>(tiles_of<T>(call.in)),
                         static_cast<unsigned>(call.in.v.dim(1)), static_cast<unsigned>(texts)},
              .threads = kDeltaThreads},
             DeltaForwardArguments<T>{.in = inputs_of<T>(call.in, call.texts),
                                      .out = pointer<T>(call.out),
                                      .states = pointer<Wide<T>>(call.state)},
             context.stream);
    });
  });
}

void execute(const DeltaRuleBackward& call, const CallContext& context) {
  if (call.in.q.dim(0) == 0) return;
  with_floating(call.in.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_parts(call.in.q.dim(2),
               [&](auto parts) { run_backward<T, decltype(parts)::value>(call, context); });
  });
}

}  // namespace piton::cuda
