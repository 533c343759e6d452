// The gated delta rule and that of a state space, backward: the states once more, of which those
// before each chunk of rows are kept; then, from the last chunk to the first, those of all its
// rows. The warps of a block add up their gradients of queries and keys. Blocks write theirs to
// scratch, of one sample at a time.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/recurrent/delta_rule.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

constexpr std::int64_t kDeltaChunk = 32;  // rows

// Of one sample. Scratch of a block is that of its number among the blocks of a grid.
template <typename T>
struct DeltaBackwardArguments {
  DeltaInputs<T> in;
  const T* dout;  // [n, hv, dv]
  StridedHeads<T> dv;
  std::int64_t sample;
  std::int64_t chunks;
  Wide<T>* before;     // [blocks, chunks, kDeltaTile<T>, 32 parts]: states before chunks
  Wide<T>* kept;       // [blocks, kDeltaChunk, kDeltaTile<T>, 32 parts]: keep S of rows of a chunk
  Wide<T>* errors;     // [blocks, kDeltaChunk, kDeltaTile<T>]
  Wide<T>* dq;         // [rows, blocks, dk]
  Wide<T>* dk;         // [rows, blocks, dk]
  Wide<T>* dlog;       // [rows, blocks]
  Wide<T>* dstrength;  // [rows, blocks]
  Wide<T>* dskip;      // [rows, blocks]
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
        first(std::int64_t{blockIdx.x} * kDeltaTile<T> + threadIdx.x / kWarp * kDeltaColumns<T>),
        lane(threadIdx.x % kWarp),
        warp(threadIdx.x / kWarp) {}

  // This lane's number of a column, in tiles of `rows` for each block.
  __device__ S& tile(S* all, std::int64_t rows, std::int64_t row, int c, int p) const {
    const std::int64_t column = (block * rows + row) * kDeltaTile<T> + warp * kDeltaColumns<T> + c;
    return all[(column * kParts + p) * kWarp + lane];
  }
  __device__ void move(WarpState<T, kParts>& state, std::int64_t chunk, bool stores) const {
    for (int c = 0; c < kDeltaColumns<T>; ++c) {
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
    const std::int64_t in_chunk = (t - text.begin) % kDeltaChunk;
    for (int c = 0; c < kDeltaColumns<T>; ++c) {
      if (tells) {
        for (int p = 0; p < kParts; ++p) tile(a.kept, kDeltaChunk, in_chunk, c, p) = state.s[c][p];
      }
      const S error = state.error(row, c, value(t, c));
      if (tells && lane == 0)
        a.errors[(block * kDeltaChunk + in_chunk) * kDeltaTile<T> + warp * kDeltaColumns<T> + c] =
            error;
      state.add(row, c, row.strength * error);
    }
  }

  // `sums`: shared, [warps, 2 kParts 32 + 3].
  __device__ void step_back(WarpState<T, kParts>& ds, std::int64_t t, S* sums) const {
    constexpr int kSums = 2 * kParts * kWarp + 3;
    const DeltaRow<T, kParts> row(a.in, text, t, head);
    const KeyRow<T, kParts> q(a.in, a.in.q, t, head, a.in.factor);
    const S skip = a.in.corrects ? S{0} : widen(a.in.skip[head]);
    const std::int64_t in_chunk = (t - text.begin) % kDeltaChunk;
    S dq[kParts];
    S dk[kParts];
    for (int p = 0; p < kParts; ++p) dq[p] = dk[p] = 0;
    S dlog = 0;
    S dstrength = 0;
    S dskip = 0;
#pragma unroll  // else the columns are no registers
    for (int c = 0; c < kDeltaColumns<T>; ++c) {
      const bool is_there = first + c < a.in.values;
      const S dout =
          is_there ? widen(a.dout[(t * a.in.heads + head) * a.in.values + first + c]) : S{0};
      const S error =
          a.errors[(block * kDeltaChunk + in_chunk) * kDeltaTile<T> + warp * kDeltaColumns<T> + c];
      const S d = row.strength * error;
      S dd = 0;
      for (int p = 0; p < kParts; ++p) {
        ds.s[c][p] += q.x[p] * dout;
        dq[p] += (tile(a.kept, kDeltaChunk, in_chunk, c, p) + row.k.x[p] * d) * dout;
        dk[p] += ds.s[c][p] * d;
        dd += ds.s[c][p] * row.k.x[p];
      }
      dd = sum_of_warp(dd);
      S dv = row.strength * dd;
      if (!row.corrects) dv += skip * dout;
      if (is_there && lane == 0) a.dv.at(t, head, first + c) = narrow<T>(dv);
      dstrength += dd * error;
      dskip += dout * error;
      const S du = -row.strength * dd;
      for (int p = 0; p < kParts; ++p) {
        const S kept = tile(a.kept, kDeltaChunk, in_chunk, c, p);
        if (row.corrects) {
          ds.s[c][p] += row.k.x[p] * du;
          dk[p] += kept * du;
        }
        dlog += ds.s[c][p] * kept;
        ds.s[c][p] = row.begins ? S{0} : ds.s[c][p] * row.keep;
      }
    }
    dlog = sum_of_warp(dlog);
    S* mine = sums + warp * kSums;
    for (int p = 0; p < kParts; ++p) {
      mine[p * kWarp + lane] = dq[p];
      mine[(kParts + p) * kWarp + lane] = dk[p];
    }
    if (lane == 0) {
      mine[2 * kParts * kWarp] = dlog;
      mine[2 * kParts * kWarp + 1] = dstrength;
      mine[2 * kParts * kWarp + 2] = dskip;
    }
    __syncthreads();
    const std::int64_t place = (t - text.begin) * (std::int64_t{gridDim.x} * gridDim.y) + block;
    for (int i = threadIdx.x; i < kSums; i += kDeltaThreads) {
      S sum = 0;
      for (int w = 0; w < kDeltaWarps; ++w) sum += sums[w * kSums + i];
      if (i >= 2 * kParts * kWarp) {
        const int gate = i - 2 * kParts * kWarp;
        (gate == 0 ? a.dlog : gate == 1 ? a.dstrength : a.dskip)[place] = sum;
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
    if ((t - text.begin) % kDeltaChunk == 0)
      block.move(state, (t - text.begin) / kDeltaChunk, true);
    block.step(state, t, false);
  }
  WarpState<T, kParts> ds;
  ds.clear();
  for (std::int64_t chunk = a.chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t begin = text.begin + chunk * kDeltaChunk;
    const std::int64_t end = begin + kDeltaChunk < text.end ? begin + kDeltaChunk : text.end;
    block.move(state, chunk, false);
    for (std::int64_t t = begin; t < end; ++t) block.step(state, t, true);
    __syncthreads();  // errors are written by one lane, and read by all of a warp
    for (std::int64_t t = end - 1; t >= begin; --t) block.step_back(ds, t, sums);
  }
}

// Adds up what the blocks of a key head have, and goes through the length of its rows, if they have
// that. A warp for each row and key head.
template <typename T>
struct KeyGradients {
  DeltaInputs<T> in;
  const Wide<T>* dq;  // [rows, blocks, dk]
  const Wide<T>* dk;
  StridedHeads<T> to_q;
  StridedHeads<T> to_k;
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t tiles;
};

template <typename T>
__device__ void write_key_gradient(const KeyGradients<T>& a, const Wide<T>* d,
                                   const StridedHeads<const T>& from, const StridedHeads<T>& to,
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
  if (!a.in.corrects) {
    for (std::int64_t i = lane; i < a.in.keys; i += kWarp)
      to.at(row, head, i) = narrow<T>(gradient(i));
    return;
  }
  S squares = 0;
  S along = 0;
  for (std::int64_t i = lane; i < a.in.keys; i += kWarp) {
    const S x = widen(from.at(row, head, i));
    squares += x * x;
    along += x * gradient(i);
  }
  const S inverse = S{1} / sqrt(sum_of_warp(squares) + static_cast<S>(kDeltaNormEps));
  along = sum_of_warp(along) * inverse;
  for (std::int64_t i = lane; i < a.in.keys; i += kWarp) {
    const S x = widen(from.at(row, head, i)) * inverse;
    to.at(row, head, i) = narrow<T>(inverse * factor * (gradient(i) - x * along));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) run_key_gradients(KeyGradients<T> a) {
  const std::int64_t key_heads = a.in.heads / a.in.shared;
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= a.rows * key_heads) return;
  const std::int64_t row = a.first_row + index / key_heads;
  const std::int64_t head = index % key_heads;
  write_key_gradient(a, a.dq, a.in.q, a.to_q, row, head, a.in.factor);
  write_key_gradient(a, a.dk, a.in.k, a.to_k, row, head, Wide<T>{1});
}

// `terms`: [3, hv, n], of the gradients of rates, biases and skips.
template <typename T>
struct GateGradients {
  DeltaInputs<T> in;
  const Wide<T>* dlog;  // [rows, blocks]
  const Wide<T>* dstrength;
  const Wide<T>* dskip;
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
    S of_skip = 0;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      of_log += dlog[i * tiles + tile];
      of_strength += dstrength[i * tiles + tile];
      of_skip += dskip[i * tiles + tile];
    }
    const S speed = exp(widen(in.rate[head]));
    const S x = widen(in.decay.at(row, head)) + widen(in.bias[head]);
    S ddecay = -of_log * speed * sigmoid_of(x);
    if (in.corrects) {
      const S strength = sigmoid_of(widen(in.strength.at(row, head)));
      to_strength.at(row, head) = narrow<T>(of_strength * strength * (S{1} - strength));
    } else {
      ddecay += of_strength * sigmoid_of(x);
    }
    to_decay.at(row, head) = narrow<T>(ddecay);
    terms[head * all_rows + row] = -of_log * speed * softplus_of(x);
    terms[(in.heads + head) * all_rows + row] = ddecay;
    terms[(2 * in.heads + head) * all_rows + row] = of_skip;
  }
};

template <typename S>
struct GateSums {
  const S* terms;  // [3, hv, n]
  S* drate;        // each or nullptr
  S* dbias;
  S* dskip;
  std::int64_t heads;
  std::int64_t rows;
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) run_gate_sums(GateSums<S> a) {
  S* parts = shared_array<S>();
  const std::int64_t which = blockIdx.x;
  const S sum = sum_in_block(a.terms + which * a.rows, a.rows, parts);
  if (threadIdx.x != 0) return;
  S* to = which < a.heads ? a.drate : which < 2 * a.heads ? a.dbias : a.dskip;
  if (to != nullptr) to[which % a.heads] += sum;
}

// The backward of one sample after another, which take turns in the same scratch.
template <typename T, int kParts>
void run_backward(const DeltaRuleBackward& call, const CallContext& context) {
  using S = Wide<T>;
  const DType sums = sizeof(S) == 8 ? DType::kF64 : DType::kF32;
  const DeltaInputs<T> in = delta_inputs<T>(call.in, {});
  const std::int64_t n = call.in.q.dim(0);
  const std::int64_t rows = n / call.in.samples;
  const std::int64_t tiles = delta_tiles<T>(call.in);
  const std::int64_t blocks = tiles * in.heads;
  const std::int64_t chunks = (rows + kDeltaChunk - 1) / kDeltaChunk;
  const auto take = [&](std::int64_t numbers) { return scratch(sums, {numbers}, context); };
  const std::int64_t of_tile = kDeltaTile<T> * kParts * kWarp;
  const Tensor before = take(blocks * chunks * of_tile);
  const Tensor kept = take(blocks * kDeltaChunk * of_tile);
  const Tensor errors = take(blocks * kDeltaChunk * kDeltaTile<T>);
  const Tensor dq = take(rows * blocks * in.keys);
  const Tensor dk = take(rows * blocks * in.keys);
  const Tensor dlog = take(rows * blocks);
  const Tensor dstrength = take(rows * blocks);
  const Tensor dskip = take(rows * blocks);
  const Tensor terms = take(3 * in.heads * n);
  for (std::int64_t sample = 0; sample < call.in.samples; ++sample) {
    const std::int64_t first = sample * rows;
    launch("launch of delta rule backward", run_delta_backward<T, kParts>,
           {.blocks = {static_cast<unsigned>(tiles), static_cast<unsigned>(in.heads), 1},
            .threads = kDeltaThreads,
            .shared_bytes = kDeltaWarps * (2 * kParts * kWarp + 3) * sizeof(S)},
           DeltaBackwardArguments<T>{.in = in,
                                     .dout = pointer<const T>(call.dout),
                                     .dv = strided_heads<T>(call.dv),
                                     .sample = sample,
                                     .chunks = chunks,
                                     .before = pointer<S>(before),
                                     .kept = pointer<S>(kept),
                                     .errors = pointer<S>(errors),
                                     .dq = pointer<S>(dq),
                                     .dk = pointer<S>(dk),
                                     .dlog = pointer<S>(dlog),
                                     .dstrength = pointer<S>(dstrength),
                                     .dskip = pointer<S>(dskip)},
           context.stream);
    const std::int64_t units = rows * (in.heads / in.shared);
    launch("launch of the gradients of queries and keys", run_key_gradients<T>,
           {.blocks = {static_cast<unsigned>((units + kWarps - 1) / kWarps), 1, 1}},
           KeyGradients<T>{.in = in,
                           .dq = pointer<const S>(dq),
                           .dk = pointer<const S>(dk),
                           .to_q = strided_heads<T>(call.dq),
                           .to_k = strided_heads<T>(call.dk),
                           .first_row = first,
                           .rows = rows,
                           .tiles = tiles},
           context.stream);
    launch_elements("launch of the gradients of gates", rows * in.heads,
                    GateGradients<T>{.in = in,
                                     .dlog = pointer<const S>(dlog),
                                     .dstrength = pointer<const S>(dstrength),
                                     .dskip = pointer<const S>(dskip),
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
      {.blocks = {static_cast<unsigned>(3 * in.heads), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
      GateSums<S>{.terms = pointer<const S>(terms),
                  .drate = pointer<S>(call.drate),
                  .dbias = pointer<S>(call.dbias),
                  .dskip = pointer<S>(call.dskip),
                  .heads = in.heads,
                  .rows = n},
      context.stream);
}

}  // namespace

void execute(const DeltaRuleBackward& call, const CallContext& context) {
  if (call.in.q.dim(0) == 0) return;
  with_floating(call.in.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_key_parts(call.in.q.dim(2),
                   [&](auto parts) { run_backward<T, decltype(parts)::value>(call, context); });
  });
}

}  // namespace piton::cuda
