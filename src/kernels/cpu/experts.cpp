// Mixtures of experts: tokens are divided among threads. One thread sorts the rows, and one thread
// sums a column over all tokens, so that nothing depends on the number of threads.
#include "kernels/experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
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

constexpr float kTinySum = 1e-20F;  // added to sums of sigmoids

// The logarithm of the sum of exp(x[m]).
float log_sum_of(const CpuContext& context, const float* x, std::int64_t m) {
  float maximum = 0;
  float sum = 0;
  context.vector.loss_statistics(x, m, &maximum, &sum);
  return maximum + std::log(sum);
}

// y[m]: the scores of x[m].
void write_scores(const CpuContext& context, float* y, const float* x, std::int64_t m,
                  ScoreKind kind) {
  if (kind == ScoreKind::kSigmoid) {
    for (std::int64_t e = 0; e < m; ++e) y[e] = 1 / (1 + std::exp(-x[e]));
    return;
  }
  context.vector.loss_gradient(y, Type::kF32, x, m, m, log_sum_of(context, x, m), 1);
}

// Makes the shares of a token of its sigmoids p[m]. Returns what they were divided by.
float divide_by_sum(float* p, std::int64_t m) {
  float sum = kTinySum;
  for (std::int64_t e = 0; e < m; ++e) sum += p[e];
  for (std::int64_t e = 0; e < m; ++e) p[e] /= sum;
  return sum;
}

bool precedes(float one, float other) {
  return one > other || (std::isnan(other) && !std::isnan(one));
}

// The k largest of x[begin, end) that are usable in `choices`, the largest first.
template <typename Usable>
void choose(const float* x, std::int64_t begin, std::int64_t end, std::int32_t* choices,
            std::int64_t k, const Usable& usable) {
  for (std::int64_t j = 0; j < k; ++j) {
    std::int32_t* const last = choices + j;
    std::int64_t best = -1;
    for (std::int64_t e = begin; e < end; ++e) {
      if (best >= 0 && !precedes(x[e], x[best])) continue;
      if (!usable(e)) continue;
      if (std::find(choices, last, static_cast<std::int32_t>(e)) != last) continue;
      best = e;
    }
    choices[j] = static_cast<std::int32_t>(best);
  }
}

// The k largest of x[m] in the best groups.
void choose_in_groups(const float* x, std::int64_t m, const ExpertGroups& groups,
                      std::int32_t* choices, std::int64_t k) {
  const auto all = [](std::int64_t) { return true; };
  if (!groups.divide()) return choose(x, 0, m, choices, k, all);
  const std::int64_t size = m / groups.count;
  std::vector<std::int32_t> found(
      static_cast<std::size_t>(std::max(groups.largest, groups.chosen)));
  std::array<float, ExpertGroups::kMost> sums = {};
  for (std::int64_t group = 0; group < groups.count; ++group) {
    choose(x, group * size, (group + 1) * size, found.data(), groups.largest, all);
    float& sum = sums[static_cast<std::size_t>(group)];
    for (std::int64_t i = 0; i < groups.largest; ++i) sum += x[found[static_cast<std::size_t>(i)]];
  }
  choose(sums.data(), 0, groups.count, found.data(), groups.chosen, all);
  std::array<bool, ExpertGroups::kMost> open = {};
  for (std::int64_t i = 0; i < groups.chosen; ++i)
    open[static_cast<std::size_t>(found[static_cast<std::size_t>(i)])] = true;
  choose(x, 0, m, choices, k,
         [&](std::int64_t e) { return open[static_cast<std::size_t>(e / size)]; });
}

// Of which the largest are chosen, for the token with these logits and scores [m]; in `room` [m]
// if they are neither.
const float* rivals_of(const RouteTokens& call, const float* logits, const float* scores,
                       float* room, std::int64_t m) {
  if (call.score == ScoreKind::kSoftmax && !call.bias.defined())
    return call.groups.divide() && !call.normalized ? scores : logits;
  if (!call.bias.defined()) return scores;
  const auto* bias = call.bias.data<float>();
  for (std::int64_t e = 0; e < m; ++e) room[e] = scores[e] + bias[e];
  return room;
}

// Chooses the experts of token t, whose scores are p[m], and gives their weights.
void route(const RouteTokens& call, std::int64_t t, const float* p, float* room,
           const Sizes& sizes) {
  const float* logits = call.logits.data<float>() + t * sizes.m;
  auto* chosen = call.choices.data<std::int32_t>() + t * sizes.k;
  auto* weights = call.weights.data<float>() + t * sizes.k;
  choose_in_groups(rivals_of(call, logits, p, room, sizes.m), sizes.m, call.groups, chosen,
                   sizes.k);
  float sum = call.score == ScoreKind::kSigmoid ? kTinySum : 0;
  for (std::int64_t j = 0; j < sizes.k; ++j) sum += p[chosen[j]];
  const auto factor = static_cast<float>(call.factor);
  for (std::int64_t j = 0; j < sizes.k; ++j)
    weights[j] = p[chosen[j]] / (call.normalized ? sum : 1) * factor;
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

// dlogits[m] of the weights of the k choices, which are `factor` times those of a softmax p [m].
void write_weight_gradient(float* dlogits, const float* p, const std::int32_t* choices,
                           const float* dweights, const Sizes& sizes, bool normalized,
                           float factor) {
  float chosen = 0;
  for (std::int64_t j = 0; j < sizes.k; ++j) chosen += p[choices[j]];
  const float whole = normalized ? chosen : 1;
  float mean = 0;
  for (std::int64_t j = 0; j < sizes.k; ++j) mean += p[choices[j]] / whole * dweights[j];
  for (std::int64_t e = 0; e < sizes.m; ++e) dlogits[e] = normalized ? 0 : -p[e] * factor * mean;
  for (std::int64_t j = 0; j < sizes.k; ++j) {
    const float weight = p[choices[j]] / whole * factor;
    dlogits[choices[j]] += weight * (normalized ? dweights[j] - mean : dweights[j]);
  }
}

// The same of a token with sigmoids s[m]. `counts`: of the balance with `share`, or nullptr.
void write_sigmoid_gradient(float* dlogits, const float* s, std::int64_t t,
                            const RouteBackward& call, const Sizes& sizes,
                            const std::int32_t* counts, float share) {
  const auto slope = [&](std::int64_t e) { return s[e] * (1 - s[e]); };
  std::fill_n(dlogits, sizes.m, 0.0F);
  if (call.dweights.defined()) {
    const auto* choices = call.choices.data<std::int32_t>() + t * sizes.k;
    const auto* dweights = call.dweights.data<float>() + t * sizes.k;
    float whole = kTinySum;
    for (std::int64_t j = 0; j < sizes.k; ++j) whole += s[choices[j]];
    float mean = 0;
    for (std::int64_t j = 0; j < sizes.k; ++j) mean += s[choices[j]] / whole * dweights[j];
    if (!call.normalized) {
      whole = 1;
      mean = 0;
    }
    const auto factor = static_cast<float>(call.factor);
    for (std::int64_t j = 0; j < sizes.k; ++j)
      dlogits[choices[j]] = slope(choices[j]) * factor * (dweights[j] - mean) / whole;
  }
  if (counts == nullptr) return;
  float sum = kTinySum;
  float mean = 0;
  for (std::int64_t e = 0; e < sizes.m; ++e) sum += s[e];
  for (std::int64_t e = 0; e < sizes.m; ++e) mean += s[e] / sum * static_cast<float>(counts[e]);
  for (std::int64_t e = 0; e < sizes.m; ++e)
    dlogits[e] += slope(e) * share * (static_cast<float>(counts[e]) - mean) / sum;
}

// A choice in the order in which those of an expert stay.
struct RankedChoice {
  float weight = 0;
  std::int64_t place = 0;  // in the order of the rows
  std::int64_t index = 0;  // in [n, k]

  bool operator<(const RankedChoice& other) const {
    return weight != other.weight ? weight > other.weight : place < other.place;
  }
};

const std::byte* row_at(const Tensor& tensor, std::int64_t row) {
  return tensor.raw() + row * tensor.stride(0) * size_bytes(tensor.dtype());
}

}  // namespace

void execute(CpuContext& context, const RouteTokens& call) {
  const Sizes sizes = sizes_of(call.choices, call.logits);
  const auto* choices = call.choices.data<std::int32_t>();
  auto* p = reinterpret_cast<float*>(context.scratch.shared(sizes.n * sizes.m * 4));
  const bool shares = call.balance.defined() && call.score == ScoreKind::kSigmoid;
  context.ranges(
      sizes.n, grain_of(sizes.m * sizes.k * 8), [&](std::int64_t begin, std::int64_t end) {
        auto* room = reinterpret_cast<float*>(context.scratch.own(sizes.m * 4));
        for (std::int64_t t = begin; t < end; ++t) {
          float* row = p + t * sizes.m;
          write_scores(context, row, call.logits.data<float>() + t * sizes.m, sizes.m, call.score);
          route(call, t, row, room, sizes);
          if (shares) divide_by_sum(row, sizes.m);
        }
      });
  if (!call.counts.defined()) return;
  auto* counts = call.counts.data<std::int32_t>();
  std::fill_n(counts, sizes.m, 0);
  for (std::int64_t i = 0; i < sizes.n * sizes.k; ++i) ++counts[choices[i]];
  if (call.balance.defined() && sizes.n > 0)
    *call.balance.data<double>() += balance_of(context, p, counts, sizes);
}

// One thread lists the choices of each expert, in their order, and threads shorten the lists.
void execute(CpuContext& context, const LimitChoices& call) {
  const std::int64_t n = call.choices.dim(0), k = call.choices.dim(1);
  const auto* choices = call.choices.data<std::int32_t>();
  auto* kept = call.kept.data<std::int32_t>();
  std::vector<std::int64_t> end(static_cast<std::size_t>(call.experts) + 1);
  for (std::int64_t i = 0; i < n * k; ++i) ++end[static_cast<std::size_t>(choices[i]) + 1];
  for (std::size_t e = 1; e < end.size(); ++e) end[e] += end[e - 1];
  std::vector<RankedChoice> all(static_cast<std::size_t>(n * k));
  std::vector<std::int64_t> next(end.begin(), end.end() - 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t row = call.rows.row(i, n);
    for (std::int64_t j = row * k; j < row * k + k; ++j) {
      const float weight = call.weights.defined() ? call.weights.data<float>()[j] : 0;
      const auto place = next[static_cast<std::size_t>(choices[j])]++;
      all[static_cast<std::size_t>(place)] = {weight > 0 ? weight : 0, i, j};
    }
  }
  context.ranges(call.experts, 1, [&](std::int64_t begin, std::int64_t stop) {
    for (std::int64_t e = begin; e < stop; ++e) {
      const auto first = all.begin() + end[static_cast<std::size_t>(e)];
      const auto last = all.begin() + end[static_cast<std::size_t>(e) + 1];
      const auto dropped = first + std::min<std::int64_t>(call.capacity, last - first);
      if (call.weights.defined()) std::nth_element(first, dropped, last);
      for (auto one = first; one < last; ++one)
        kept[one->index] = one < dropped ? static_cast<std::int32_t>(e) : -1;
    }
  });
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

namespace {

// The ranks of the experts that a token chooses, each once.
class RanksOfToken {
 public:
  explicit RanksOfToken(const SortByRank& call)
      : k_(call.choices.dim(1)),
        experts_(call.experts),
        seen_(static_cast<std::size_t>(call.places.dim(1)), -1) {}

  // Calls use(rank) for each of them.
  template <typename Use>
  void visit(std::int64_t token, const std::int32_t* choices, const Use& use) {
    for (std::int64_t j = 0; j < k_; ++j) {
      if (choices[j] < 0) continue;
      const std::int64_t rank = choices[j] / experts_;
      std::int64_t& seen = seen_[static_cast<std::size_t>(rank)];
      if (std::exchange(seen, token) != token) use(rank);
    }
  }

 private:
  std::int64_t k_, experts_;
  std::vector<std::int64_t> seen_;  // the last token
};

}  // namespace

// In one pass over the choices for the counts and one for the rows.
void execute(CpuContext& /*context*/, const SortByRank& call) {
  const std::int64_t n = call.places.dim(0), e = call.places.dim(1), k = call.choices.dim(1);
  const auto* all = call.choices.data<std::int32_t>();
  auto* counts = call.counts.data<std::int32_t>();
  auto* sources = call.sources.data<std::int32_t>();
  auto* places = call.places.data<std::int32_t>();
  auto* received = call.received.data<std::int32_t>();
  std::fill_n(counts, call.counts.elements(), 0);
  std::fill_n(places, call.places.elements(), -1);
  RanksOfToken ranks(call), again(call);
  for (std::int64_t t = 0; t < e * n; ++t) {
    ranks.visit(t, all + t * k, [&](std::int64_t to) { ++counts[t / n * e + to]; });
  }
  std::vector<std::int64_t> next{0};   // row to each rank
  std::int64_t expected = 0, row = 0;  // of the tokens that are received
  for (std::int64_t i = 0; i < e; ++i) {
    next.push_back(next.back() + counts[call.rank * e + i]);
    expected += counts[i * e + call.rank];
  }
  const std::int64_t sent = next.back();
  PITON_ASSERT(sent <= call.sources.dim(0) && expected <= call.received.dim(0),
               "{}: {} rows to send and {} to receive, in the room of {} and {}", SortByRank::kName,
               sent, expected, call.sources.dim(0), call.received.dim(0));
  const auto is_here = [&](std::int32_t choice) {
    return choice >= 0 && choice / call.experts == call.rank;
  };
  for (std::int64_t t = 0; t < e * n; ++t) {
    const std::int32_t* choices = all + t * k;
    const std::int64_t from = t / n;
    again.visit(t, choices, [&](std::int64_t to) {
      if (from == call.rank) {
        const std::int64_t token = t % n, place = next[static_cast<std::size_t>(to)]++;
        sources[place] = static_cast<std::int32_t>(token);
        places[token * e + to] = static_cast<std::int32_t>(place);
      }
      if (to != call.rank) return;
      std::copy_n(choices, k, received + row++ * k);
      counts[e * e + from] +=
          static_cast<std::int32_t>(std::count_if(choices, choices + k, is_here));
    });
  }
  std::fill(sources + sent, sources + call.sources.elements(), 0);
  std::fill(received + row * k, received + call.received.elements(), -1);
  call.sent.data<std::int32_t>()[0] = static_cast<std::int32_t>(sent);
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
      write_scores(context, p, call.logits.data<float>() + t * sizes.m, sizes.m, call.score);
      float* dlogits = call.dlogits.data<float>() + t * sizes.m;
      if (call.score == ScoreKind::kSigmoid) {
        write_sigmoid_gradient(dlogits, p, t, call, sizes, factor != 0 ? counts : nullptr, factor);
        continue;
      }
      if (call.dweights.defined()) {
        write_weight_gradient(dlogits, p, call.choices.data<std::int32_t>() + t * sizes.k,
                              call.dweights.data<float>() + t * sizes.k, sizes, call.normalized,
                              static_cast<float>(call.factor));
      } else {
        std::fill_n(dlogits, sizes.m, 0.0F);
      }
      if (factor != 0) add_balance_gradient(dlogits, p, counts, sizes.m, factor);
    }
  });
}

void execute(CpuContext& context, const RouterZLoss& call) {
  const std::int64_t n = call.logits.dim(0), m = call.logits.dim(1);
  auto* z = reinterpret_cast<float*>(context.scratch.shared(n * 4));
  context.ranges(n, grain_of(m * 8), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      z[t] = log_sum_of(context, call.logits.data<float>() + t * m, m);
  });
  double sum = 0;
  for (std::int64_t t = 0; t < n; ++t) sum += static_cast<double>(z[t]) * z[t];
  *call.sum.data<double>() += sum;
}

void execute(CpuContext& context, const RouterZLossBackward& call) {
  const std::int64_t n = call.logits.dim(0), m = call.logits.dim(1);
  const double factor = 2 * call.factor * *call.scale.data<float>();
  context.ranges(n, grain_of(m * 8), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = call.logits.data<float>() + t * m;
      const float z = log_sum_of(context, x, m);
      context.vector.loss_gradient(call.dlogits.data<float>() + t * m, Type::kF32, x, m, m, z,
                                   static_cast<float>(factor * z));
    }
  });
}

void execute(CpuContext& /*context*/, const ExcessChoices& call) {
  const auto [each, part] = call.factors();
  const auto* choices = call.choices.data<std::int32_t>();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(call.excess.dim(0)));
  std::int64_t all = 0;
  for (std::int64_t i = 0; i < call.choices.elements(); ++i) {
    if (choices[i] < 0) continue;
    ++counts[static_cast<std::size_t>(choices[i])];
    ++all;
  }
  auto* excess = call.excess.data<float>();
  for (const std::int64_t count : counts)
    *excess++ += static_cast<float>(count * each - all / part);
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
