// Mixtures of experts: tokens are divided among threads. One thread sorts the rows, and one thread
// sums a column over all tokens, so that nothing depends on the number of threads.
#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// What the calls read of the routing: n tokens with k choices of m experts.
struct Sizes {
  std::int64_t n, k, m;
};

Sizes sizes_of(const Tensor& choices, const Tensor& logits) {
  return {choices.dim(0), choices.dim(1), logits.dim(1)};
}

// y[m] = softmax(x[m]).
void write_softmax(const CpuContext& context, float* y, const float* x, std::int64_t m) {
  float maximum = 0;
  float sum = 0;
  context.vector.loss_statistics(x, m, &maximum, &sum);
  context.vector.loss_gradient(y, Type::kF32, x, m, m, maximum + std::log(sum), 1);
}

// The k largest of x[m] in `choices`, the largest first.
void choose(const float* x, std::int64_t m, std::int32_t* choices, std::int64_t k) {
  for (std::int64_t j = 0; j < k; ++j) {
    std::int32_t* end = choices + j;
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < m; ++e) {
      if (std::find(choices, end, static_cast<std::int32_t>(e)) != end) continue;
      if (best < 0 || x[e] > x[best] || (std::isnan(x[best]) && !std::isnan(x[e]))) best = e;
    }
    choices[j] = static_cast<std::int32_t>(best);
  }
}

// n times the balance of the layer. p [n, m].
double balance_of(CpuContext& context, const float* p, const std::int32_t* counts,
                  const Sizes& sizes) {
  std::vector<double> terms(static_cast<std::size_t>(sizes.m));
  context.ranges(sizes.m, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t e = begin; e < end; ++e) {
      double sum = 0;
      for (std::int64_t t = 0; t < sizes.n; ++t) sum += p[t * sizes.m + e];
      terms[static_cast<std::size_t>(e)] = sum * counts[e];
    }
  });
  double sum = 0;
  for (const double term : terms) sum += term;
  return sum * static_cast<double>(sizes.m) / static_cast<double>(sizes.k * sizes.n);
}

// dlogits[m] += factor * (gradient of n L for a token with the probabilities p[m]).
void add_balance_gradient(float* dlogits, const float* p, const std::int32_t* counts,
                          std::int64_t m, float factor) {
  float mean = 0;
  for (std::int64_t e = 0; e < m; ++e) mean += p[e] * static_cast<float>(counts[e]);
  for (std::int64_t e = 0; e < m; ++e)
    dlogits[e] += factor * p[e] * (static_cast<float>(counts[e]) - mean);
}

// dlogits[m] of the weights of the k choices. p [m].
void write_weight_gradient(float* dlogits, const float* p, const std::int32_t* choices,
                           const float* dweights, const Sizes& sizes, bool normalized) {
  float chosen = 0;
  for (std::int64_t j = 0; j < sizes.k; ++j) chosen += p[choices[j]];
  const float whole = normalized ? chosen : 1;
  float mean = 0;
  for (std::int64_t j = 0; j < sizes.k; ++j) mean += p[choices[j]] / whole * dweights[j];
  for (std::int64_t e = 0; e < sizes.m; ++e) dlogits[e] = normalized ? 0 : -p[e] * mean;
  for (std::int64_t j = 0; j < sizes.k; ++j) {
    const float weight = p[choices[j]] / whole;
    dlogits[choices[j]] += weight * (normalized ? dweights[j] - mean : dweights[j]);
  }
}

const std::byte* row_at(const Tensor& tensor, std::int64_t row) {
  return tensor.raw() + row * tensor.stride(0) * size_bytes(tensor.dtype());
}

}  // namespace

void execute(CpuContext& context, const RouteTokens& call) {
  const Sizes sizes = sizes_of(call.choices, call.logits);
  auto* choices = call.choices.data<std::int32_t>();
  auto* weights = call.weights.data<float>();
  auto* p = reinterpret_cast<float*>(context.scratch.shared(sizes.n * sizes.m * 4));
  context.ranges(sizes.n, grain_of(sizes.m * sizes.k * 8),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t t = begin; t < end; ++t) {
                     const float* logits = call.logits.data<float>() + t * sizes.m;
                     float* row = p + t * sizes.m;
                     std::int32_t* chosen = choices + t * sizes.k;
                     write_softmax(context, row, logits, sizes.m);
                     choose(logits, sizes.m, chosen, sizes.k);
                     float sum = 0;
                     for (std::int64_t j = 0; j < sizes.k; ++j) sum += row[chosen[j]];
                     for (std::int64_t j = 0; j < sizes.k; ++j)
                       weights[t * sizes.k + j] = row[chosen[j]] / (call.normalized ? sum : 1);
                   }
                 });
  if (!call.counts.defined()) return;
  auto* counts = call.counts.data<std::int32_t>();
  std::fill_n(counts, sizes.m, 0);
  for (std::int64_t i = 0; i < sizes.n * sizes.k; ++i) ++counts[choices[i]];
  if (call.balance.defined() && sizes.n > 0)
    *call.balance.data<double>() += balance_of(context, p, counts, sizes);
}

// In one pass over the choices for the numbers of rows and one for places.
void execute(CpuContext& /*context*/, const SortByExpert& call) {
  const std::int64_t k = call.choices.dim(1);
  const std::int64_t experts = call.rows.first_rows.dim(0) - 1;
  const auto* choices = call.choices.data<std::int32_t>();
  auto* first = call.rows.first_rows.data<std::int32_t>();
  auto* sources = call.rows.sources.data<std::int32_t>();
  auto* places = call.rows.places.data<std::int32_t>();
  // Of those here; other numbers are below 0 or not below `experts`.
  const auto expert = [&](std::int64_t i) { return choices[i] - call.first; };
  const auto is_here = [&](std::int64_t i) { return expert(i) >= 0 && expert(i) < experts; };
  std::fill_n(first, experts + 1, 0);
  for (std::int64_t i = 0; i < call.choices.elements(); ++i) {
    if (is_here(i)) ++first[expert(i) + 1];
  }
  for (std::int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  const std::int64_t rows = call.rows.sources.dim(0);
  PITON_ASSERT(first[experts] <= rows, "{}: {} rows in the room of {}", SortByExpert::kName,
               first[experts], rows);
  std::fill_n(sources + first[experts], rows - first[experts], 0);
  std::vector<std::int32_t> next(first, first + experts);
  for (std::int64_t i = 0; i < call.choices.elements(); ++i) {
    places[i] = is_here(i) ? next[static_cast<std::size_t>(expert(i))]++ : -1;
    if (places[i] >= 0) sources[places[i]] = static_cast<std::int32_t>(i / k);
  }
}

void execute(CpuContext& context, const RouteBackward& call) {
  const Sizes sizes = sizes_of(call.choices, call.logits);
  const auto* counts = call.balance_factor == 0 ? nullptr : call.counts.data<std::int32_t>();
  // Of n L: experts / (n k), see balance_of().
  const float factor = call.balance_factor == 0 || sizes.n == 0
                           ? 0
                           : static_cast<float>(call.balance_factor * *call.scale.data<float>() *
                                                static_cast<double>(sizes.m) /
                                                static_cast<double>(sizes.n * sizes.k));
  context.ranges(sizes.n, grain_of(sizes.m * 8), [&](std::int64_t begin, std::int64_t end) {
    auto* p = reinterpret_cast<float*>(context.scratch.own(sizes.m * 4));
    for (std::int64_t t = begin; t < end; ++t) {
      write_softmax(context, p, call.logits.data<float>() + t * sizes.m, sizes.m);
      float* dlogits = call.dlogits.data<float>() + t * sizes.m;
      if (call.dweights.defined()) {
        write_weight_gradient(dlogits, p, call.choices.data<std::int32_t>() + t * sizes.k,
                              call.dweights.data<float>() + t * sizes.k, sizes, call.normalized);
      } else {
        std::fill_n(dlogits, sizes.m, 0.0F);
      }
      if (factor != 0) add_balance_gradient(dlogits, p, counts, sizes.m, factor);
    }
  });
}

void execute(CpuContext& context, const CombineExperts& call) {
  const std::int64_t k = call.places.dim(1);
  const std::int64_t h = call.y.dim(1);
  const Type type = type_of(call.y.dtype());
  const auto* places = call.places.data<std::int32_t>();
  context.ranges(call.y.dim(0), grain_of(h * 4 * k), [&](std::int64_t begin, std::int64_t end) {
    auto* sums = reinterpret_cast<float*>(context.scratch.own(2 * h * 4));
    float* term = sums + h;
    for (std::int64_t t = begin; t < end; ++t) {
      std::fill_n(sums, h, 0.0F);
      for (std::int64_t j = 0; j < k; ++j) {
        if (places[t * k + j] < 0) continue;
        const std::byte* row = row_at(call.rows, places[t * k + j]);
        if (!call.weights.defined()) {
          context.vector.accumulate(sums, row, type, h);
          continue;
        }
        context.vector.convert(term, Type::kF32, row, type, h);
        context.vector.scale(term, term, Type::kF32, h, call.weights.data<float>()[t * k + j]);
        context.vector.add(sums, sums, term, Type::kF32, h);
      }
      context.vector.convert(call.y.raw() + t * h * size_bytes(call.y.dtype()), type, sums,
                             Type::kF32, h);
    }
  });
}

void execute(CpuContext& context, const CombineExpertsBackward& call) {
  const std::int64_t k = call.places.dim(1);
  const std::int64_t h = call.dy.dim(1);
  const Type type = type_of(call.dy.dtype());
  const auto* places = call.places.data<std::int32_t>();
  context.ranges(call.dy.dim(0), grain_of(h * 4 * k), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::byte* dy = row_at(call.dy, t);
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int64_t place = places[t * k + j];
        if (place < 0) {
          call.dweights.data<float>()[t * k + j] = 0;
          continue;
        }
        context.vector.scale(call.drows.raw() + place * h * size_bytes(call.drows.dtype()), dy,
                             type, h, call.weights.data<float>()[t * k + j]);
        call.dweights.data<float>()[t * k + j] =
            context.vector.dot(dy, type, row_at(call.rows, place), type, h);
      }
    }
  });
}

}  // namespace piton::cpu
