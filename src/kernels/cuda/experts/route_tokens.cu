// Which experts a token is sent to: a warp for each token. Their rows: two passes of a block for
// each expert over the choices of all tokens, one to count them and one for places.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/token_softmax.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

template <typename S>
struct RoutedTokens {
  S* weights;
  std::int32_t* choices;
  S* probabilities;  // or nullptr
  const S* logits;
  const S* bias;  // or nullptr
  std::int64_t n;
  int experts;
  int k;
  bool normalized;
  bool sigmoid;
  S factor;
  S lowest;  // -infinity
  // ExpertGroups
  int groups;
  int groups_chosen;
  int largest;
};

// Of which the largest are chosen.
template <typename S>
struct Rivals {
  const S* logits;
  const S* bias;  // or nullptr
  TokenScores<S> scores;
  bool are_logits;

  __device__ S operator()(int expert) const {
    if (are_logits) return logits[expert];
    const S score = scores.score(logits[expert]);
    return bias == nullptr ? score : score + bias[expert];
  }
};

template <typename S>
struct Candidate {
  S logit;
  int expert;

  // In the order in which experts are chosen: NaN is last, and of equal ones the lower is first.
  __device__ bool precedes(const Candidate& other) const {
    const bool bad = logit != logit;
    const bool other_bad = other.logit != other.logit;
    if (bad != other_bad) return other_bad;
    if (bad || logit == other.logit) return expert < other.expert;
    return logit > other.logit;
  }
};

// Of experts begin .. end - 1 whose group of `size` has a bit in `open`: the first of those that
// come after `previous`; of all if its expert is -1.
struct Range {
  int begin;
  int end;
  int size;
  unsigned long long open;
};

template <typename S>
__device__ Candidate<S> first_in_warp(Candidate<S> best) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Candidate<S> other{__shfl_xor_sync(kAllLanes, best.logit, distance),
                             __shfl_xor_sync(kAllLanes, best.expert, distance)};
    if (other.expert >= 0 && (best.expert < 0 || other.precedes(best))) best = other;
  }
  return best;
}

template <typename S>
__device__ Candidate<S> next_candidate(const Rivals<S>& x, const Range& range,
                                       const Candidate<S>& previous) {
  Candidate<S> best{0, -1};
  const auto offer = [&](const Candidate<S>& one) {
    if (best.expert < 0 || one.precedes(best)) best = one;
  };
  for (int e = range.begin + static_cast<int>(threadIdx.x % kWarp); e < range.end; e += kWarp) {
    if ((range.open >> (e / range.size) & 1ULL) == 0) continue;
    const Candidate<S> one{x(e), e};
    if (previous.expert < 0 || previous.precedes(one)) offer(one);
  }
  return first_in_warp(best);
}

// A bit for each of the best groups. Lane i has the sums of groups i and kWarp + i.
template <typename S>
__device__ unsigned long long best_groups(const RoutedTokens<S>& all, const Rivals<S>& x) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int size = all.experts / all.groups;
  S sums[2] = {};
  for (int group = 0; group < all.groups; ++group) {
    const Range range{group * size, (group + 1) * size, size, ~0ULL};
    Candidate<S> found{0, -1};
    S sum = 0;
    for (int i = 0; i < all.largest; ++i) {
      found = next_candidate(x, range, found);
      sum += found.logit;
    }
    if (group % kWarp == lane) sums[group / kWarp] = sum;
  }
  unsigned long long open = 0;
  for (int i = 0; i < all.groups_chosen; ++i) {
    Candidate<S> best{0, -1};
    for (int half = 0; half < 2; ++half) {
      const Candidate<S> one{sums[half], half * kWarp + lane};
      if (one.expert >= all.groups || (open >> one.expert & 1ULL) != 0) continue;
      if (best.expert < 0 || one.precedes(best)) best = one;
    }
    open |= 1ULL << first_in_warp(best).expert;
  }
  return open;
}

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) route_rows(RoutedTokens<S> all) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= all.n) return;
  const S* x = all.logits + token * all.experts;
  const TokenScores<S> scores = scores_of(x, all.experts, all.lowest, all.sigmoid);
  if (all.probabilities != nullptr) {
    S whole = 1;
    if (all.sigmoid) {
      whole = 0;
      for (int e = lane; e < all.experts; e += kWarp) whole += scores.score(x[e]);
      whole = warp_sum(whole) + scores.tiny();
    }
    for (int e = lane; e < all.experts; e += kWarp)
      all.probabilities[token * all.experts + e] = scores.score(x[e]) / whole;
  }
  const bool divided = all.groups > 1;
  const bool ranks_logits = !all.sigmoid && all.bias == nullptr && !(divided && !all.normalized);
  const Rivals<S> rivals{x, all.bias, scores, ranks_logits};
  const Range range{0, all.experts, all.experts / all.groups,
                    divided ? best_groups(all, rivals) : ~0ULL};
  S* weights = all.weights + token * all.k;
  Candidate<S> chosen{0, -1};
  S sum = scores.tiny();
  for (int j = 0; j < all.k; ++j) {
    chosen = next_candidate(rivals, range, chosen);
    const S weight = scores.score(x[chosen.expert]);
    sum += weight;
    if (lane != 0) continue;
    all.choices[token * all.k + j] = chosen.expert;
    weights[j] = weight;
  }
  if (lane != 0) return;
  const S whole = all.normalized ? sum : S{1};
  for (int j = 0; j < all.k; ++j) weights[j] = weights[j] / whole * all.factor;
}

// Choices of the experts from number `first` on, a block for each.
struct CountedChoices {
  std::int32_t* counts;
  const std::int32_t* choices;
  int count;  // n k
  int first;
};

__global__ void __launch_bounds__(kThreads, kBlocks) count_choices(CountedChoices all) {
  const int expert = static_cast<int>(blockIdx.x);
  int mine = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < all.count; i += kThreads)
    mine += all.choices[i] == all.first + expert ? 1 : 0;
  const int sum = block_sum(mine, shared_array<int>());
  if (threadIdx.x == 0) all.counts[expert] = sum;
}

struct SortedRows {
  const std::int32_t* counts;  // [experts]
  std::int32_t* first_rows;
  std::int32_t* sources;
  std::int32_t* places;
  const std::int32_t* choices;
  int count;  // n k
  int room;   // rows
  int first;  // expert
  int experts;
  int k;
};

constexpr int kStretches = 4;  // of kThreads choices that are looked at together

__global__ void __launch_bounds__(kThreads, kBlocks) place_rows(SortedRows all) {
  const int expert = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  int* parts = shared_array<int>();  // [kStretches, kWarps]
  int mine = 0;
  for (int e = thread; e < expert; e += kThreads) mine += all.counts[e];
  int row = block_sum(mine, parts);  // of the next choice of the expert
  if (thread == 0) all.first_rows[expert] = row;
  const bool last = expert == all.experts - 1;  // also marks what is of no expert here
  const unsigned lanes_before = (1U << thread % kWarp) - 1;
  for (int begin = 0; begin < all.count; begin += kStretches * kThreads) {
    unsigned same[kStretches];  // the lanes of this warp that have the expert
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kStretches; ++s) {
      const int i = begin + s * kThreads + thread;
      const int choice = i < all.count ? all.choices[i] - all.first : all.experts;
      same[s] = __ballot_sync(kAllLanes, choice == expert ? 1 : 0);
      if (last && i < all.count && (choice < 0 || choice >= all.experts)) all.places[i] = -1;
      if (thread % kWarp == 0) parts[s * kWarps + thread / kWarp] = __popc(same[s]);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kStretches; ++s) {
      for (int warp = 0; warp < kWarps; ++warp) {
        if (warp == thread / kWarp && (same[s] >> thread % kWarp & 1U) != 0) {
          const int i = begin + s * kThreads + thread;
          const int place = row + __popc(same[s] & lanes_before);
          all.places[i] = place;
          all.sources[place] = i / all.k;
        }
        row += parts[s * kWarps + warp];
      }
    }
  }
  if (!last) return;
  if (thread == 0) all.first_rows[all.experts] = row;
  for (int r = row + thread; r < all.room; r += kThreads) all.sources[r] = 0;
}

template <typename S>
struct ExcessSums {
  S* excess;  // [experts]
  const std::int32_t* counts;
  int experts;
  int each;  // factor of a choice
  int part;  // divides the number of all choices
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) add_excess(ExcessSums<S> all) {
  int mine = 0;
  for (int e = static_cast<int>(threadIdx.x); e < all.experts; e += kThreads) mine += all.counts[e];
  const S mean = static_cast<S>(block_sum(mine, shared_array<int>()) / all.part);
  for (int e = static_cast<int>(threadIdx.x); e < all.experts; e += kThreads)
    all.excess[e] += static_cast<S>(all.counts[e]) * static_cast<S>(all.each) - mean;
}

template <typename S>
struct BalanceParts {
  double* parts;  // [chunks, experts]
  const S* probabilities;
  std::int64_t n;
  std::int64_t chunk;  // tokens
  int experts;
};

// Sums of probabilities over the tokens of a chunk.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) sum_probabilities(BalanceParts<S> all) {
  const std::int64_t begin = std::int64_t{blockIdx.x} * all.chunk;
  const std::int64_t end = begin + all.chunk < all.n ? begin + all.chunk : all.n;
  for (int e = static_cast<int>(threadIdx.x); e < all.experts; e += kThreads) {
    double sum = 0;
#pragma unroll 4
    for (std::int64_t t = begin; t < end; ++t)
      sum += static_cast<double>(all.probabilities[t * all.experts + e]);
    all.parts[std::int64_t{blockIdx.x} * all.experts + e] = sum;
  }
}

struct BalanceSum {
  double* balance;
  const double* parts;
  const std::int32_t* counts;
  int chunks;
  int experts;
  double factor;  // experts / (n k)
};

__global__ void __launch_bounds__(kThreads, kBlocks) add_balance(BalanceSum all) {
  double mine = 0;
  for (int e = static_cast<int>(threadIdx.x); e < all.experts; e += kThreads) {
    double column = 0;
#pragma unroll 8
    for (int chunk = 0; chunk < all.chunks; ++chunk)
      column += all.parts[std::int64_t{chunk} * all.experts + e];
    mine += column * static_cast<double>(all.counts[e]);
  }
  const double sum = block_sum(mine, shared_array<double>());
  if (threadIdx.x == 0) *all.balance += sum * all.factor;
}

template <typename S>
void launch_balance(const RouteTokens& call, const S* probabilities, const CallContext& context) {
  const cudaStream_t stream = context.stream;
  constexpr std::int64_t kMostChunks = 256;
  constexpr std::int64_t kLeastTokens = 32;  // of a chunk
  const std::int64_t n = call.logits.dim(0);
  const std::int64_t experts = call.logits.dim(1);
  const std::int64_t chunk = std::max(kLeastTokens, (n + kMostChunks - 1) / kMostChunks);
  const std::int64_t chunks = (n + chunk - 1) / chunk;
  const Tensor parts = scratch(DType::kF64, {chunks, experts}, context);
  launch("launch of route tokens, sums", sum_probabilities<S>,
         {.blocks = {static_cast<unsigned>(chunks), 1, 1}},
         BalanceParts<S>{.parts = pointer<double>(parts),
                         .probabilities = probabilities,
                         .n = n,
                         .chunk = chunk,
                         .experts = static_cast<int>(experts)},
         stream);
  launch("launch of route tokens, balance", add_balance,
         {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
         BalanceSum{
             .balance = pointer<double>(call.balance),
             .parts = pointer<const double>(parts),
             .counts = pointer<const std::int32_t>(call.counts),
             .chunks = static_cast<int>(chunks),
             .experts = static_cast<int>(experts),
             .factor = static_cast<double>(experts) / static_cast<double>(call.choices.elements())},
         stream);
}

// counts[i]: the choices of expert first + i.
void launch_counts(const Tensor& counts, const Tensor& choices, std::int64_t first,
                   cudaStream_t stream) {
  const std::int64_t count = choices.elements();
  PITON_ASSERT(count < std::int64_t{1} << 30, "cuda: {} choices of experts", count);
  launch("launch of counts of experts", count_choices,
         {.blocks = {static_cast<unsigned>(counts.dim(0)), 1, 1},
          .shared_bytes = kWarps * sizeof(int)},
         CountedChoices{.counts = pointer<std::int32_t>(counts),
                        .choices = pointer<const std::int32_t>(choices),
                        .count = static_cast<int>(count),
                        .first = static_cast<int>(first)},
         stream);
}

}  // namespace

void execute(const RouteTokens& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    Tensor probabilities;
    if (call.balance.defined() && n > 0) {
      probabilities = scratch(call.logits.dtype(), call.logits.shape(), context);
    }
    if (n > 0) {
      launch("launch of route tokens", route_rows<S>,
             {.blocks = {static_cast<unsigned>((n + kWarps - 1) / kWarps), 1, 1}},
             RoutedTokens<S>{.weights = pointer<S>(call.weights),
                             .choices = pointer<std::int32_t>(call.choices),
                             .probabilities = pointer<S>(probabilities),
                             .logits = pointer<const S>(call.logits),
                             .bias = pointer<const S>(call.bias),
                             .n = n,
                             .experts = static_cast<int>(call.logits.dim(1)),
                             .k = static_cast<int>(call.choices.dim(1)),
                             .normalized = call.normalized,
                             .sigmoid = call.score == ScoreKind::kSigmoid,
                             .factor = static_cast<S>(call.factor),
                             .lowest = -std::numeric_limits<S>::infinity(),
                             .groups = static_cast<int>(call.groups.count),
                             .groups_chosen = static_cast<int>(call.groups.chosen),
                             .largest = static_cast<int>(call.groups.largest)},
             context.stream);
    }
    if (call.counts.defined()) launch_counts(call.counts, call.choices, 0, context.stream);
    if (probabilities.defined()) launch_balance(call, pointer<const S>(probabilities), context);
  });
}

void execute(const ExcessChoices& call, const CallContext& context) {
  const std::int64_t experts = call.excess.dim(0);
  const Tensor counts = scratch(DType::kI32, {experts}, context);
  launch_counts(counts, call.choices, 0, context.stream);
  const auto [each, part] = call.factors();
  with_sums(call.excess.dtype(), [&, each = each, part = part]<typename S>(std::type_identity<S>) {
    launch("launch of excess choices", add_excess<S>,
           {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(int)},
           ExcessSums<S>{.excess = pointer<S>(call.excess),
                         .counts = pointer<const std::int32_t>(counts),
                         .experts = static_cast<int>(experts),
                         .each = static_cast<int>(each),
                         .part = static_cast<int>(part)},
           context.stream);
  });
}

void execute(const SortByExpert& call, const CallContext& context) {
  const std::int64_t experts = call.rows.first_rows.dim(0) - 1;
  const Tensor counts = scratch(DType::kI32, {experts}, context);
  launch_counts(counts, call.choices, call.first, context.stream);
  launch("launch of sort by expert", place_rows,
         {.blocks = {static_cast<unsigned>(experts), 1, 1},
          .shared_bytes = kStretches * kWarps * sizeof(int)},
         SortedRows{.counts = pointer<const std::int32_t>(counts),
                    .first_rows = pointer<std::int32_t>(call.rows.first_rows),
                    .sources = pointer<std::int32_t>(call.rows.sources),
                    .places = pointer<std::int32_t>(call.rows.places),
                    .choices = pointer<const std::int32_t>(call.choices),
                    .count = static_cast<int>(call.choices.elements()),
                    .room = static_cast<int>(call.rows.sources.dim(0)),
                    .first = static_cast<int>(call.first),
                    .experts = static_cast<int>(experts),
                    .k = static_cast<int>(call.choices.dim(1))},
         context.stream);
}

}  // namespace piton::cuda
