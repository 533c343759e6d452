// Which tokens go to which ranks of experts: a block for each pair of ranks counts them, and a
// block for each rank that this one sends to, or receives from, finds their rows.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

struct RankedRows {
  std::int32_t* sources;
  std::int32_t* places;
  std::int32_t* received;
  std::int32_t* counts;
  std::int32_t* sent;
  const std::int32_t* choices;
  std::int64_t room;           // rows of `sources`
  std::int64_t received_room;  // rows of `received`
  int n;                       // tokens of a rank
  int ranks;
  int k;
  int experts;  // of a rank
  int rank;
};

// How many experts of rank `to` token t of rank `from` chooses.
__device__ int chosen(const RankedRows& all, int from, int t, int to) {
  const std::int32_t* choices = all.choices + (std::int64_t{from} * all.n + t) * all.k;
  const int first = to * all.experts;
  int count = 0;
#pragma unroll 4
  for (int j = 0; j < all.k; ++j)
    count += choices[j] >= first && choices[j] - first < all.experts ? 1 : 0;
  return count;
}

// Block (to, from). All blocks together write what room that is not used has.
__global__ void __launch_bounds__(kThreads, kBlocks) count_rows_to_ranks(RankedRows all) {
  const int to = static_cast<int>(blockIdx.x);
  const int from = static_cast<int>(blockIdx.y);
  int tokens = 0;
  int choices = 0;
  for (int t = static_cast<int>(threadIdx.x); t < all.n; t += kThreads) {
    const int count = chosen(all, from, t, to);
    tokens += count > 0 ? 1 : 0;
    choices += count;
  }
  int* parts = shared_array<int>();  // [kWarps]
  tokens = block_sum(tokens, parts);
  choices = block_sum(choices, parts);
  if (threadIdx.x == 0) {
    all.counts[from * all.ranks + to] = tokens;
    if (to == all.rank) all.counts[all.ranks * all.ranks + from] = choices;
  }
  const std::int64_t step = std::int64_t{gridDim.x} * gridDim.y * kThreads;
  const std::int64_t first =
      (std::int64_t{from} * gridDim.x + to) * kThreads + static_cast<int>(threadIdx.x);
  for (std::int64_t i = first; i < all.room; i += step) all.sources[i] = 0;
  for (std::int64_t i = first; i < all.received_room * all.k; i += step) all.received[i] = -1;
}

constexpr int kTokenStretches = 4;  // of kThreads tokens that are looked at together

// Block (i, 0): the rows that this rank sends to rank i. Block (i, 1): those that come from it.
__global__ void __launch_bounds__(kThreads, kBlocks) place_rows_of_ranks(RankedRows all) {
  const bool sends = blockIdx.y == 0;
  const int other = static_cast<int>(blockIdx.x);
  const int from = sends ? all.rank : other;
  const int to = sends ? other : all.rank;
  const int thread = static_cast<int>(threadIdx.x);
  int* parts = shared_array<int>();  // [kTokenStretches, kWarps]
  int mine = 0;
  for (int i = thread; i < other; i += kThreads) {
    mine += sends ? all.counts[all.rank * all.ranks + i] : all.counts[i * all.ranks + all.rank];
  }
  int row = block_sum(mine, parts);  // of the next token
  const unsigned lanes_before = (1U << thread % kWarp) - 1;
  for (int begin = 0; begin < all.n; begin += kTokenStretches * kThreads) {
    unsigned going[kTokenStretches];  // the lanes of this warp whose token goes
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kTokenStretches; ++s) {
      const int t = begin + s * kThreads + thread;
      const int goes = t < all.n && chosen(all, from, t, to) > 0 ? 1 : 0;
      going[s] = __ballot_sync(kAllLanes, goes);
      if (thread % kWarp == 0) parts[s * kWarps + thread / kWarp] = __popc(going[s]);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kTokenStretches; ++s) {
      int place = row + __popc(going[s] & lanes_before);
      for (int warp = 0; warp < kWarps; ++warp) {
        const int count = parts[s * kWarps + warp];
        if (warp < thread / kWarp) place += count;
        row += count;
      }
      const int t = begin + s * kThreads + thread;
      const bool goes = (going[s] >> thread % kWarp & 1U) != 0;
      if (t >= all.n) continue;
      if (sends) {
        all.places[std::int64_t{t} * all.ranks + to] = goes ? place : -1;
        if (goes && place < all.room) all.sources[place] = t;
      } else if (goes && place < all.received_room) {
        const std::int32_t* choices = all.choices + (std::int64_t{from} * all.n + t) * all.k;
        std::int32_t* received = all.received + std::int64_t{place} * all.k;
        for (int j = 0; j < all.k; ++j) received[j] = choices[j];
      }
    }
  }
  if (sends && other == all.ranks - 1 && thread == 0) *all.sent = row;
}

}  // namespace

void execute(const SortByRank& call, const CallContext& context) {
  const std::int64_t ranks = call.places.dim(1);
  PITON_ASSERT(call.choices.elements() < std::int64_t{1} << 30 &&
                   call.experts * ranks < std::int64_t{1} << 30 && ranks <= kMostBlocks,
               "cuda: {} choices of {} ranks with {} experts", call.choices.elements(), ranks,
               call.experts);
  const RankedRows all{.sources = pointer<std::int32_t>(call.sources),
                       .places = pointer<std::int32_t>(call.places),
                       .received = pointer<std::int32_t>(call.received),
                       .counts = pointer<std::int32_t>(call.counts),
                       .sent = pointer<std::int32_t>(call.sent),
                       .choices = pointer<const std::int32_t>(call.choices),
                       .room = call.sources.dim(0),
                       .received_room = call.received.dim(0),
                       .n = static_cast<int>(call.places.dim(0)),
                       .ranks = static_cast<int>(ranks),
                       .k = static_cast<int>(call.choices.dim(1)),
                       .experts = static_cast<int>(call.experts),
                       .rank = static_cast<int>(call.rank)};
  const auto blocks = static_cast<unsigned>(ranks);
  launch("launch of sort by rank, counts", count_rows_to_ranks,
         {.blocks = {blocks, blocks, 1}, .shared_bytes = kWarps * sizeof(int)}, all,
         context.stream);
  launch("launch of sort by rank", place_rows_of_ranks,
         {.blocks = {blocks, 2, 1}, .shared_bytes = kTokenStretches * kWarps * sizeof(int)}, all,
         context.stream);
}

}  // namespace piton::cuda
