// Draws tokens: one block for each row. Nothing is sorted: the place in the order of a row at which
// something ends is found by bisection, with a sum over the row for each step.
#include <cmath>
#include <limits>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mask.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sampling.h"

namespace piton::cuda {
namespace {

// Logits [parts, n, columns].
template <typename S>
struct PartedLogits {
  S* data;
  std::int64_t n;
  std::int64_t columns;
  __device__ S& at(std::int64_t row, std::int64_t id) const {
    return data[(id / columns * n + row) * columns + id % columns];
  }
};

template <typename S>
PartedLogits<S> parted(const Tensor& logits) {
  return {pointer<S>(logits), logits.dim(1), logits.dim(2)};
}

template <typename S>
struct Penalize {
  PartedLogits<S> logits;
  const std::int32_t* seen;
  const double* penalties;

  __device__ void operator()(std::int64_t i) const {
    const std::int32_t* one = seen + 3 * i;
    const double* penalty = penalties + 3 * std::int64_t{one[0]};
    double x = logits.at(one[0], one[1]);
    x = x < 0 ? x * penalty[0] : x / penalty[0];
    x -= one[2] * penalty[1];
    if (one[2] > 0) x -= penalty[2];
    logits.at(one[0], one[1]) = static_cast<S>(x);
  }
};

template <typename S>
struct Forbid {
  PartedLogits<S> logits;
  const std::uint8_t* allowed;
  std::int64_t bytes;  // of a row
  std::int64_t vocabulary;
  S never;  // -infinity

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / vocabulary;
    const std::int64_t id = i % vocabulary;
    if ((allowed[row * bytes + id / 8] >> (id % 8) & 1) == 0) logits.at(row, id) = never;
  }
};

template <typename S>
struct DrawRows {
  std::int32_t* ids;
  double* shares;
  PartedLogits<const S> logits;
  const double* filters;
  const std::int32_t* places;
  std::int64_t vocabulary;
  double never;  // -infinity
  double infinity;
};

// Numbers whose order is that of the logits.
__device__ inline std::uint64_t key_of(double logit) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(logit + 0.0));
  return bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}

// A place in the order of a row: all ids up to this one.
struct OrderEnd {
  std::uint64_t key;
  std::int64_t id;
  __device__ bool has(std::uint64_t other_key, std::int64_t other_id) const {
    return other_key > key || (other_key == key && other_id <= id);
  }
};

template <typename S>
struct OrderedRow {
  const DrawRows<S>& rows;
  std::int64_t row;
  double largest;
  double temperature;
  double* parts;  // shared memory of reductions
  // Ids up to here are left out of all measures.
  OrderEnd skipped = {~std::uint64_t{0}, -1};

  __device__ double scaled(double logit) const { return (logit - largest) / temperature; }
  __device__ double weight_of(double logit) const { return exp(scaled(logit)); }

  // The sum of term(logit) over the kept ids.
  template <typename Term>
  __device__ double sum_of(OrderEnd kept, const Term& term) const {
    double sum = 0;
    for (std::int64_t id = threadIdx.x; id < rows.vocabulary; id += kThreads) {
      const double logit = rows.logits.at(row, id);
      if (logit == rows.never) continue;
      const std::uint64_t key = key_of(logit);
      if (kept.has(key, id) && !skipped.has(key, id)) sum += term(logit);
    }
    return block_sum(sum, parts);
  }

  // Of the ids that both ends keep: their number, or the sum of their weights.
  __device__ double measure(OrderEnd kept, OrderEnd end, bool weights) const {
    const bool is_first = kept.key > end.key || (kept.key == end.key && kept.id < end.id);
    return sum_of(is_first ? kept : end,
                  [&](double logit) { return weights ? weight_of(logit) : 1.0; });
  }

  // The number of kept ids whose weight is large enough.
  __device__ double likely(OrderEnd kept, double least) const {
    return sum_of(kept, [&](double logit) {
      const double weight = weight_of(logit);
      return weight >= least && weight > 0 ? 1.0 : 0.0;
    });
  }

  // The number of kept ids that are not below the largest by more than `sigma` deviations.
  __device__ double within_deviations(OrderEnd kept, double sigma) const {
    const double count = measure(kept, kept, /*weights=*/false);
    const double mean = sum_of(kept, [](double logit) { return logit; }) / count;
    const double squares =
        sum_of(kept, [&](double logit) { return (logit - mean) * (logit - mean); });
    const double least = largest - sigma * sqrt(squares / count);
    return fmax(1.0, sum_of(kept, [&](double logit) { return logit >= least ? 1.0 : 0.0; }));
  }

  // The end of the kept ids that are nearest to the mean of scaled logits and have the share of the
  // weight; those that are too likely are skipped.
  __device__ OrderEnd keep_typical(OrderEnd kept, double share) {
    const double sum = measure(kept, kept, /*weights=*/true);
    const double mean =
        sum_of(kept, [&](double logit) { return scaled(logit) * weight_of(logit); }) / sum;
    // The smallest distance that is enough; the order of numbers >= 0 is that of their bits.
    std::uint64_t bits = 0;
    for (int bit = 62; bit >= 0; --bit) {
      const double distance =
          __longlong_as_double(static_cast<long long>(bits | ((std::uint64_t{1} << bit) - 1)));
      const double reached = sum_of(kept, [&](double logit) {
        return fabs(scaled(logit) - mean) <= distance ? weight_of(logit) : 0.0;
      });
      if (!(reached >= share * sum)) bits |= std::uint64_t{1} << bit;
    }
    const double farthest = __longlong_as_double(static_cast<long long>(bits));
    const double above =
        sum_of(kept, [&](double logit) { return scaled(logit) - mean > farthest ? 1.0 : 0.0; });
    const double within = sum_of(
        kept, [&](double logit) { return fabs(scaled(logit) - mean) <= farthest ? 1.0 : 0.0; });
    const OrderEnd end = first_end(kept, above + within, /*weights=*/false, /*above=*/false);
    if (above > 0) skipped = first_end(kept, above, /*weights=*/false, /*above=*/false);
    return end;
  }

  // From the entropy of all ids (followed_temperature() of kernels/sampling.h).
  __device__ double followed_temperature(OrderEnd all, const DrawFilters& filters) const {
    const double range = filters.temperature_range;
    const double low = fmax(0.0, filters.temperature - range);
    const double count = sum_of(all, [](double) { return 1.0; });
    const double sum = sum_of(all, [&](double logit) { return exp(logit - largest); });
    const double product =
        sum_of(all, [&](double logit) { return (logit - largest) * exp(logit - largest); });
    const double share =
        count > 1 ? fmin(fmax((log(sum) - product / sum) / log(count), 0.0), 1.0) : 0.0;
    const double spread = filters.temperature + range - low;
    return fmax(low + spread * pow(share, filters.temperature_exponent), kLeastTemperature);
  }

  // Skips the first ids but the last of those whose share is large.
  __device__ void drop_top_choices(OrderEnd kept, double threshold) {
    const double count = likely(kept, threshold * measure(kept, kept, /*weights=*/true));
    if (count > 1) skipped = first_end(kept, count - 1, /*weights=*/false, /*above=*/false);
  }

  // The end of the kept ids whose weight is large enough, and of the first one.
  __device__ OrderEnd without_unlikely(OrderEnd kept, double least) const {
    return first_end(kept, fmax(1.0, likely(kept, least)), /*weights=*/false, /*above=*/false);
  }

  // The first end with a measure of at least `target`, or above it; `kept` if there is none.
  __device__ OrderEnd first_end(OrderEnd kept, double target, bool weights, bool above) const {
    const auto enough = [&](OrderEnd end) {
      const double reached = measure(kept, end, weights);
      return above ? reached > target : reached >= target;
    };
    if (!enough(kept)) return kept;
    const std::int64_t last = rows.vocabulary - 1;
    std::uint64_t key = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const std::uint64_t larger = key | std::uint64_t{1} << bit;
      if (enough({larger, last})) key = larger;
    }
    std::int64_t low = 0;
    std::int64_t high = last;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (enough({key, middle})) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return {key, low};
  }
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) draw_rows(DrawRows<S> rows) {
  double* parts = shared_array<double>();
  const std::int64_t row = blockIdx.x;
  double largest = rows.never;
  double bad = 0;
  for (std::int64_t id = threadIdx.x; id < rows.vocabulary; id += kThreads) {
    const double logit = rows.logits.at(row, id);
    largest = logit > largest ? logit : largest;
    if (!(logit < rows.infinity)) bad = 1;
  }
  largest = reduced(largest, parts, Largest{});
  bad = reduced(bad, parts, Largest{});
  if (bad > 0 || largest == rows.never) {
    if (threadIdx.x == 0) {
      rows.ids[row] = -1;
      rows.shares[row] = 0;
    }
    return;
  }
  const double* of_row = rows.filters + kDrawFilters * row;
  const DrawFilters filters = {of_row[0], static_cast<std::int64_t>(of_row[1]),
                               of_row[2], of_row[3],
                               of_row[4], of_row[5],
                               of_row[6], of_row[7],
                               of_row[8], of_row[9],
                               of_row[10]};
  OrderedRow<S> order{rows, row, largest, filters.temperature, parts};
  OrderEnd kept{0, rows.vocabulary - 1};
  if (filters.temperature_range > 0) order.temperature = order.followed_temperature(kept, filters);
  double share_of_id = 1;
  double most = static_cast<double>(filters.most);
  if (filters.most > 1 && filters.sigma > 0)
    most = fmin(most, order.within_deviations(kept, filters.sigma));
  kept = order.first_end(kept, most, /*weights=*/false, /*above=*/false);
  if (filters.most > 1) {
    if (filters.share < 1)
      kept = order.first_end(kept, filters.share * order.measure(kept, kept, /*weights=*/true),
                             /*weights=*/true, /*above=*/false);
    kept = order.without_unlikely(kept, filters.least);
    if (filters.least_share > 0) {
      const double sum = order.measure(kept, kept, /*weights=*/true);
      kept = order.without_unlikely(kept, filters.least_share * sum);
    }
    if (filters.typical < 1) kept = order.keep_typical(kept, filters.typical);
    const std::int32_t* place = rows.places + 5 * row;
    const MaskWords words =
        draw({static_cast<std::uint32_t>(place[0]), static_cast<std::uint32_t>(place[1])},
             {{static_cast<std::uint32_t>(place[2]), static_cast<std::uint32_t>(place[3]),
               static_cast<std::uint32_t>(place[4]), 2}});
    const auto share = [&](int word) {
      const std::uint64_t bits =
          (std::uint64_t{words.word[word]} << 32 | words.word[word + 1]) >> 11;
      return static_cast<double>(bits) * 0x1p-53;
    };
    if (share(2) < filters.xtc_probability) order.drop_top_choices(kept, filters.xtc_threshold);
    const double sum = order.measure(kept, kept, /*weights=*/true);
    kept = order.first_end(kept, share(0) * sum, /*weights=*/true, /*above=*/true);
    share_of_id = order.weight_of(rows.logits.at(row, kept.id)) / sum;
  }
  if (threadIdx.x == 0) {
    rows.ids[row] = static_cast<std::int32_t>(kept.id);
    rows.shares[row] = share_of_id;
  }
}

}  // namespace

void execute(const ChangeLogits& call, const CallContext& context) {
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    const PartedLogits<S> logits = parted<S>(call.logits);
    if (call.seen.defined()) {
      launch_elements("launch of penalties", call.seen.dim(0),
                      Penalize<S>{logits, pointer<const std::int32_t>(call.seen),
                                  pointer<const double>(call.penalties)},
                      context.stream);
    }
    if (call.allowed.defined()) {
      launch_elements("launch of allowed ids", logits.n * call.vocabulary,
                      Forbid<S>{.logits = logits,
                                .allowed = pointer<const std::uint8_t>(call.allowed),
                                .bytes = call.allowed.dim(1),
                                .vocabulary = call.vocabulary,
                                .never = -std::numeric_limits<S>::infinity()},
                      context.stream);
    }
  });
}

void execute(const DrawTokens& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(1);
  if (n == 0) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of draw tokens", draw_rows<S>,
           {.blocks = {static_cast<unsigned>(n), 1, 1}, .shared_bytes = kWarps * sizeof(double)},
           DrawRows<S>{.ids = pointer<std::int32_t>(call.ids),
                       .shares = pointer<double>(call.shares),
                       .logits = parted<const S>(call.logits),
                       .filters = pointer<const double>(call.filters),
                       .places = pointer<const std::int32_t>(call.places),
                       .vocabulary = call.vocabulary,
                       .never = -kInfinity,
                       .infinity = kInfinity},
           context.stream);
  });
}

}  // namespace piton::cuda
