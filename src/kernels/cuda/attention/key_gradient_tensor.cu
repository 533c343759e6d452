// The gradients of keys and values on tensor cores.
#include "kernels/cuda/attention/key_pairs.cuh"

namespace piton::cuda {
namespace {

// From products of own keys and queries first + 8 j .. to P and dS, if there are rules for scores
// or dropout: one pair after the other, as their arithmetic needs many registers.
template <typename T, int kCount>
__device__ void take_queries_by_rules(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                                      const OwnKeys& keys, std::int64_t first,
                                      const QueryTerms* terms) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll 1
  for (int i = 0; i < 4 * kCount; ++i) {
    const int e = i % 4;
    const int at = 8 * (i / 4) + column + e % 2;
    PairGradient pair;
    if (first + at < grid.sight.queries && keys.used[e / 2]) {
      pair = pair_gradient(grid, keys.sample, keys.head,
                           facts_of(grid, keys.sample, keys.head, first + at, terms[at].dout_out),
                           keys.index[e / 2], pairs.p[i / 4][e], pairs.ds[i / 4][e]);
    }
    pairs.p[i / 4][e] = pair.weight;
    pairs.ds[i / 4][e] = pair.ds;
  }
}

// Of key_gradient(). Wide heads with rules for scores leave no registers for keys, which stay in
// the memory of the second stage.
template <int kSteps, PairForm kForm>
inline constexpr int kStages = kSteps > 4 && kForm != PairForm::kPlain ? 1 : 2;

// What a block owns, and its tiles in shared memory.
template <typename T, int kSteps, PairForm kForm>
struct KeyBlock : OwnedKeys<T, kTensorTile> {
  using Base = OwnedKeys<T, kTensorTile>;
  using Base::begin;
  using Base::grid;
  using Base::key_head;
  using Base::keys;
  using Base::low;
  using Base::sample;
  Stages<T, kSteps> stages;

  __device__ explicit KeyBlock(const TensorGrid<T>& of) : Base(of) {}

  // Copies the queries of a step, what else belongs to them, and draws the kept pairs.
  __device__ void load(int stage, const QueryStep& step) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const std::int64_t rest = pairs.sight.queries - step.first;
    const int rows = static_cast<int>(rest < kTensorTile ? rest : kTensorTile);
    load_rows<T, kSteps>(stages.first(stage), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.q.row(sample, step.first + i, step.head); });
    load_rows<T, kSteps>(stages.second(stage), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.dout.row(sample, step.first + i, step.head); });
    const int two = static_cast<int>(threadIdx.x) * 2;
    if (two < kTensorTile) {
      start_copy(stages.terms(stage) + two, grid.terms_of(sample, step.head) + step.first + two,
                 static_cast<int>(sizeof(TwoQueryTerms)));
    }
    if constexpr (kForm == PairForm::kDropped) {
      draw_kept(stages.kept(stage), pairs.rules, {sample, step.head, low}, [&](int i) {
        return pairs.sight.place_of(sample, step.first + (i < rows ? i : 0)).first;
      });
    }
  }

  __device__ void load_own(T* v_tile) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    load_rows<T, kSteps>(stages.first(1), keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.k.row(sample, begin + i, key_head); });
    load_rows<T, kSteps>(v_tile, keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.v.row(sample, begin + i, key_head); });
  }
};

// A block: a tile of keys, a head of keys, a sample.
template <typename T, int kChannels, PairForm kForm>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) key_gradient(TensorGrid<T> grid) {
  constexpr int kSteps = kChannels / 2;
  constexpr int kPitch = kTensorPitch<kSteps>;
  constexpr bool kAhead = kStages<kSteps, kForm> == 2;
  const KeyBlock<T, kSteps, kForm> block(grid);
  const Stages<T, kSteps>& stages = block.stages;
  T* v_tile = kAhead ? stages.own() : stages.second(1);
  const BackwardGrid<T>& pairs = grid.pairs;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // key of the warp, in the tile
  float dk[2 * kSteps][4] = {};
  float dv[2 * kSteps][4] = {};
  QueryStep step{block.key_head * static_cast<int>(pairs.heads_per_key), 0, false};
  bool more = block.keys > 0 && block.find(step);
  if (more) {
    block.load_own(v_tile);
    block.load(0, step);
    wait_for_copies();
    __syncthreads();
    const T* own_k = stages.first(1) + own * kPitch;
    const T* own_v = v_tile + own * kPitch;
    std::uint32_t k[kSteps][4];
    if constexpr (kAhead) read_left<T, kSteps>(k, own_k);
    OwnKeys mine = block.own_keys(own);
    for (int stage = 0; more; stage ^= kAhead ? 1 : 0) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const QueryStep now = step;
      step.first += kTensorTile;
      more = block.find(step);
      if (kAhead && more) block.load(stage ^ 1, step);
      mine.head = now.head;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const int first = now.first + part;
        bool all = now.covered;
        if (!mine.meets(pairs.sight, first, kPart<kSteps>, all)) continue;
        const T* q = stages.first(stage) + part * kPitch;
        const T* dout = stages.second(stage) + part * kPitch;
        Pairs<kPart<kSteps> / 8> products;
        if constexpr (kAhead) {
          multiply_by_rows<T, kSteps>(products.p, k, q);
        } else {
          multiply_rows_by_rows<T, kSteps>(products.p, own_k, q);
        }
        multiply_rows_by_rows<T, kSteps>(products.ds, own_v, dout);
        if constexpr (kForm != PairForm::kRuled) {
          const QueriesOfStep queries{stages.terms(stage) + part,
                                      stages.kept(stage) + part * kWordsOfRow + own / kWordBits,
                                      own % kWordBits + lane / 4};
          for_each_block<kPart<kSteps> / 8>([&](int j) {
            take_queries<T, kPart<kSteps> / 8, kForm == PairForm::kDropped>(products, j, pairs,
                                                                            queries);
          });
          if (!all)
            hide(products, hidden_from_queries<kPart<kSteps> / 8>(pairs.sight, mine, first));
        } else {
          take_queries_by_rules(products, pairs, mine, first, stages.terms(stage) + part);
        }
        add_weighted<T, kSteps>(dv, products.p, dout);
        add_weighted<T, kSteps>(dk, products.ds, q);
      }
      if (kAhead || !more) continue;
      __syncthreads();
      block.load(0, step);
    }
  }
  block.template write<kSteps>(dk, pairs.dk, own, pairs.rules.scale);
  block.template write<kSteps>(dv, pairs.dv, own, 1);
}

}  // namespace

template <typename T, int kChannels>
void launch_key_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                         cudaStream_t stream) {
  if (call.k.elements() == 0) return;
  using Memory = Stages<T, kChannels / 2>;
  with_form(grid.form, [&]<PairForm kForm>(std::integral_constant<PairForm, kForm>) {
    constexpr bool kOwn = kStages<kChannels / 2, kForm> == 2;
    launch("launch of attention backward, keys", key_gradient<T, kChannels, kForm>,
           {.blocks = {tiles_of(call.k.dim(1)), static_cast<unsigned>(call.k.dim(2)),
                       static_cast<unsigned>(call.q.dim(0))},
            .threads = kTensorThreads,
            .shared_bytes = kOwn ? Memory::kBytesWithOwn : Memory::kBytes},
           grid, stream);
  });
}

template void launch_key_gradient<__nv_bfloat16, 8>(const AttentionBackward&,
                                                    const TensorGrid<__nv_bfloat16>&, cudaStream_t);
template void launch_key_gradient<__nv_bfloat16, 16>(const AttentionBackward&,
                                                     const TensorGrid<__nv_bfloat16>&,
                                                     cudaStream_t);
template void launch_key_gradient<__half, 8>(const AttentionBackward&, const TensorGrid<__half>&,
                                             cudaStream_t);
template void launch_key_gradient<__half, 16>(const AttentionBackward&, const TensorGrid<__half>&,
                                              cudaStream_t);

}  // namespace piton::cuda
