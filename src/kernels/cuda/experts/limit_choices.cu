// Which choices stay where experts have a capacity: a block for each expert. It finds the weight of
// the last choice that stays, bit by bit, from the highest on: as many passes over the choices as
// that has bits. One more pass, in the order of the rows, marks them.
#include <algorithm>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

template <typename S>
struct LimitedChoices {
  std::int32_t* kept;
  const std::int32_t* choices;
  const S* weights;  // or nullptr
  std::int64_t n;
  int k;
  int capacity;
  // SampleRows
  std::int64_t samples;
  std::int64_t ranks;

  // SampleRows::row
  __device__ std::int64_t row(std::int64_t i) const {
    const std::int64_t position = i / samples;
    const std::int64_t sample = i % samples;
    const std::int64_t sequence = n / samples;
    if (ranks == 1) return sample * sequence + position;
    const std::int64_t stretch = sequence / (2 * ranks);
    const std::int64_t number = position / stretch;
    const bool late = number >= ranks;
    const std::int64_t rank = late ? 2 * ranks - 1 - number : number;
    return (rank * samples + sample) * 2 * stretch + (late ? stretch : 0) + position % stretch;
  }

  // A number with the order of the weights, which are not negative; 0 for NaN and without weights.
  __device__ std::uint64_t key(std::int64_t i) const {
    if (weights == nullptr || !(weights[i] > 0)) return 0;
    return static_cast<std::uint64_t>(__double_as_longlong(static_cast<double>(weights[i])));
  }
};

// How many choices of the expert have a key of at least `least`.
template <typename S>
__device__ int count_from(const LimitedChoices<S>& all, int expert, std::uint64_t least,
                          int* parts) {
  int mine = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < all.n * all.k; i += kThreads)
    mine += all.choices[i] == expert && all.key(i) >= least ? 1 : 0;
  return block_sum(mine, parts);
}

// The largest key that at least `capacity` choices of the expert have or exceed.
template <typename S>
__device__ std::uint64_t last_key(const LimitedChoices<S>& all, int expert, int* parts) {
  // A float has 29 bits fewer than a double.
  constexpr int kUnused = sizeof(S) == sizeof(float) ? 29 : 0;
  std::uint64_t key = 0;
  for (int bit = 62; bit >= kUnused; --bit) {
    const std::uint64_t higher = key | std::uint64_t{1} << bit;
    if (count_from(all, expert, higher, parts) >= all.capacity) key = higher;
  }
  return key;
}

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) limit_choices(LimitedChoices<S> all) {
  const int expert = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  int* parts = shared_array<int>();
  const int count = count_from(all, expert, 0, parts);
  std::uint64_t last = 0;
  int room = all.capacity;  // for choices with the last key
  if (count > all.capacity && all.weights != nullptr) {
    last = last_key(all, expert, parts);
    room -= count_from(all, expert, last + 1, parts);
  }
  const unsigned lanes_before = (1U << thread % kWarp) - 1;
  int taken = 0;  // of the room
  for (std::int64_t begin = 0; begin < all.n; begin += kThreads) {
    std::int64_t mine = -1;  // the choice of this thread's row
    if (begin + thread < all.n) {
      const std::int64_t row = all.row(begin + thread);
      for (int j = 0; j < all.k; ++j)
        if (all.choices[row * all.k + j] == expert) mine = row * all.k + j;
    }
    const std::uint64_t key = mine >= 0 ? all.key(mine) : 0;
    const unsigned same = __ballot_sync(kAllLanes, mine >= 0 && key == last ? 1 : 0);
    __syncthreads();
    if (thread % kWarp == 0) parts[thread / kWarp] = __popc(same);
    __syncthreads();
    int before = taken + __popc(same & lanes_before);
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < thread / kWarp) before += parts[warp];
      taken += parts[warp];
    }
    if (mine >= 0) all.kept[mine] = key > last || (key == last && before < room) ? expert : -1;
  }
}

}  // namespace

void execute(const LimitChoices& call, const CallContext& context) {
  const std::int64_t n = call.choices.dim(0);
  if (n == 0) return;
  PITON_ASSERT(call.choices.elements() < std::int64_t{1} << 30, "cuda: {} choices of experts",
               call.choices.elements());
  const DType dtype = call.weights.defined() ? call.weights.dtype() : DType::kF32;
  with_sums(dtype, [&]<typename S>(std::type_identity<S>) {
    launch("launch of limit choices", limit_choices<S>,
           {.blocks = {static_cast<unsigned>(call.experts), 1, 1},
            .shared_bytes = kWarps * sizeof(int)},
           LimitedChoices<S>{.kept = pointer<std::int32_t>(call.kept),
                             .choices = pointer<const std::int32_t>(call.choices),
                             .weights = pointer<const S>(call.weights),
                             .n = n,
                             .k = static_cast<int>(call.choices.dim(1)),
                             .capacity = static_cast<int>(std::min(call.capacity, n)),
                             .samples = call.rows.samples,
                             .ranks = call.rows.ranks},
           context.stream);
  });
}

}  // namespace piton::cuda
