// Mixtures of experts.
#include "kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

constexpr double kTinySum = 1e-20;  // added to sums of sigmoids

// The scores of each row of logits [n, experts].
Values scores_of(const Tensor& logits, ScoreKind kind) {
  Values s = Values::read(logits);
  for (std::int64_t t = 0; t < logits.dim(0); ++t) {
    double maximum = -kInfinity;
    for (std::int64_t e = 0; e < logits.dim(1); ++e) maximum = std::fmax(maximum, s(t, e));
    double sum = 0;
    for (std::int64_t e = 0; e < logits.dim(1); ++e) sum += std::exp(s(t, e) - maximum);
    for (std::int64_t e = 0; e < logits.dim(1); ++e) {
      s(t, e) = kind == ScoreKind::kSigmoid ? 1 / (1 + std::exp(-s(t, e)))
                                            : std::exp(s(t, e) - maximum) / sum;
    }
  }
  return s;
}

// The logarithm of the sum of exp() of a row of logits.
double log_sum(const Values& logits, std::int64_t token) {
  double maximum = -kInfinity;
  for (std::int64_t e = 0; e < logits.shape()[1]; ++e)
    maximum = std::fmax(maximum, logits(token, e));
  double sum = 0;
  for (std::int64_t e = 0; e < logits.shape()[1]; ++e) sum += std::exp(logits(token, e) - maximum);
  return maximum + std::log(sum);
}

// The shares of each row of scores.
Values shares_of(const Values& scores, ScoreKind kind) {
  Values p = scores;
  if (kind == ScoreKind::kSoftmax) return p;
  for (std::int64_t t = 0; t < p.shape()[0]; ++t) {
    double sum = kTinySum;
    for (std::int64_t e = 0; e < p.shape()[1]; ++e) sum += scores(t, e);
    for (std::int64_t e = 0; e < p.shape()[1]; ++e) p(t, e) /= sum;
  }
  return p;
}

// Of which the largest are chosen.
Values rivals_of(const RouteTokens& call, const Values& scores) {
  if (call.score == ScoreKind::kSoftmax && !call.bias.defined())
    return call.groups.divide() && !call.normalized ? scores : Values::read(call.logits);
  Values rivals = scores;
  const Values bias = Values::read(call.bias);
  for (std::int64_t t = 0; t < rivals.shape()[0]; ++t) {
    for (std::int64_t e = 0; e < rivals.shape()[1]; ++e) rivals(t, e) += bias.given() ? bias(e) : 0;
  }
  return rivals;
}

std::int64_t largest_left(const Values& logits, std::int64_t token, std::vector<bool>& taken) {
  std::int64_t best = -1;
  for (std::int64_t e = 0; e < std::ssize(taken); ++e) {
    if (taken[static_cast<std::size_t>(e)]) continue;
    if (best < 0 || logits(token, e) > logits(token, best) ||
        (std::isnan(logits(token, best)) && !std::isnan(logits(token, e))))
      best = e;
  }
  taken[static_cast<std::size_t>(best)] = true;
  return best;
}

// Which experts of a token are not to be chosen: those outside of its best groups.
std::vector<bool> barred(const Values& rivals, std::int64_t token, const ExpertGroups& groups) {
  const std::int64_t experts = rivals.shape()[1];
  std::vector<bool> out(static_cast<std::size_t>(experts));
  if (!groups.divide()) return out;
  const std::int64_t size = experts / groups.count;
  Values sums(Shape{1, groups.count});
  for (std::int64_t group = 0; group < groups.count; ++group) {
    std::vector<bool> taken(static_cast<std::size_t>(experts), true);
    std::fill_n(taken.begin() + group * size, size, false);
    for (std::int64_t i = 0; i < groups.largest; ++i)
      sums(0, group) += rivals(token, largest_left(rivals, token, taken));
  }
  std::vector<bool> taken(static_cast<std::size_t>(groups.count));
  for (std::int64_t i = 0; i < groups.chosen; ++i) largest_left(sums, 0, taken);
  for (std::int64_t e = 0; e < experts; ++e)
    out[static_cast<std::size_t>(e)] = !taken[static_cast<std::size_t>(e / size)];
  return out;
}

double chosen_sum(const Values& p, const Values& choices, std::int64_t token) {
  double sum = 0;
  for (std::int64_t j = 0; j < choices.shape()[1]; ++j)
    sum += p(token, static_cast<std::int64_t>(choices(token, j)));
  return sum;
}

// dl += p (dp - sum of p dp), of the logits of a token.
void add_softmax_gradient(Values& dlogits, std::int64_t token, const Values& p,
                          const std::vector<double>& dp) {
  double all = 0;
  for (std::int64_t e = 0; e < std::ssize(dp); ++e)
    all += p(token, e) * dp[static_cast<std::size_t>(e)];
  for (std::int64_t e = 0; e < std::ssize(dp); ++e)
    dlogits(token, e) += p(token, e) * (dp[static_cast<std::size_t>(e)] - all);
}

// The same of weights that are a softmax of the chosen logits alone: the others get nothing.
void add_normalized_gradient(Values& dlogits, std::int64_t token, const Values& p,
                             const Values& choices, const Values& dweights) {
  const double whole = chosen_sum(p, choices, token);
  const auto expert = [&](std::int64_t j) { return static_cast<std::int64_t>(choices(token, j)); };
  double mean = 0;
  for (std::int64_t j = 0; j < choices.shape()[1]; ++j)
    mean += p(token, expert(j)) / whole * dweights(token, j);
  for (std::int64_t j = 0; j < choices.shape()[1]; ++j)
    dlogits(token, expert(j)) += p(token, expert(j)) / whole * (dweights(token, j) - mean);
}

void add_softmax_weight_gradient(Values& dlogits, std::int64_t token, const Values& p,
                                 const Values& choices, const Values& dweights, bool normalized) {
  if (normalized) return add_normalized_gradient(dlogits, token, p, choices, dweights);
  std::vector<double> dp(static_cast<std::size_t>(p.shape()[1]));
  for (std::int64_t j = 0; j < choices.shape()[1]; ++j)
    dp[static_cast<std::size_t>(choices(token, j))] = dweights(token, j);
  add_softmax_gradient(dlogits, token, p, dp);
}

// dl += s (1 - s) ds, of the logits of a token with sigmoids.
void add_sigmoid_gradient(Values& dlogits, std::int64_t token, const Values& scores,
                          const std::vector<double>& ds) {
  for (std::int64_t e = 0; e < std::ssize(ds); ++e) {
    const double s = scores(token, e);
    dlogits(token, e) += s * (1 - s) * ds[static_cast<std::size_t>(e)];
  }
}

// Of the weights of a token, from sigmoids: only of those that are chosen.
void add_sigmoid_weight_gradient(Values& dlogits, std::int64_t token, const RouteBackward& call,
                                 const Values& scores, const Values& choices,
                                 const Values& dweights) {
  const std::int64_t k = choices.shape()[1];
  const auto expert = [&](std::int64_t j) { return static_cast<std::int64_t>(choices(token, j)); };
  const double whole = call.normalized ? chosen_sum(scores, choices, token) + kTinySum : 1;
  double mean = 0;
  for (std::int64_t j = 0; j < k; ++j)
    mean += scores(token, expert(j)) / whole * dweights(token, j);
  if (!call.normalized) mean = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    const double s = scores(token, expert(j));
    dlogits(token, expert(j)) += s * (1 - s) * call.factor * (dweights(token, j) - mean) / whole;
  }
}

// The gradient of a mean probability for each row of its expert; 0 without a balance.
double factor_of_counts(const RouteBackward& call) {
  if (call.balance_factor == 0) return 0;
  return call.balance_factor * Values::read(call.scale)(0) *
         static_cast<double>(call.logits.dim(1)) / static_cast<double>(call.choices.elements());
}

// How often each expert is chosen; choices of -1 are of none.
Values counts_of(const Values& choices, std::int64_t experts) {
  Values counts(Shape{experts});
  for (std::int64_t t = 0; t < choices.shape()[0]; ++t) {
    for (std::int64_t j = 0; j < choices.shape()[1]; ++j)
      if (choices(t, j) >= 0) counts(static_cast<std::int64_t>(choices(t, j))) += 1;
  }
  return counts;
}

struct ChoiceOfToken {
  std::int64_t token = 0;
  std::int64_t index = 0;
  double weight = 0;
};

// Those of an expert, in the order of the call's rows.
std::vector<ChoiceOfToken> choices_of_expert(const LimitChoices& call, const Values& choices,
                                             const Values& weights, std::int64_t expert) {
  const std::int64_t n = choices.shape()[0];
  std::vector<ChoiceOfToken> all;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t t = call.rows.row(i, n);
    for (std::int64_t j = 0; j < choices.shape()[1]; ++j) {
      if (static_cast<std::int64_t>(choices(t, j)) != expert) continue;
      const double weight = weights.given() ? weights(t, j) : 0;
      all.push_back({t, j, std::isnan(weight) ? 0 : weight});
    }
  }
  return all;
}

}  // namespace

void execute(const RouteTokens& call) {
  const std::int64_t n = call.choices.dim(0);
  const std::int64_t k = call.choices.dim(1);
  const std::int64_t experts = call.logits.dim(1);
  const Values scores = scores_of(call.logits, call.score);
  const Values rivals = rivals_of(call, scores);
  const double tiny = call.score == ScoreKind::kSigmoid ? kTinySum : 0;
  Values choices(call.choices.shape());
  Values weights(call.weights.shape());
  for (std::int64_t t = 0; t < n; ++t) {
    std::vector<bool> taken = barred(rivals, t, call.groups);
    for (std::int64_t j = 0; j < k; ++j)
      choices(t, j) = static_cast<double>(largest_left(rivals, t, taken));
    const double whole = call.normalized ? chosen_sum(scores, choices, t) + tiny : 1;
    for (std::int64_t j = 0; j < k; ++j)
      weights(t, j) = call.factor * scores(t, static_cast<std::int64_t>(choices(t, j))) / whole;
  }
  choices.write(call.choices);
  weights.write(call.weights);
  const Values counts = counts_of(choices, experts);
  if (call.counts.defined()) counts.write(call.counts);
  if (!call.balance.defined() || n == 0) return;
  const Values p = shares_of(scores, call.score);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    double column = 0;
    for (std::int64_t t = 0; t < n; ++t) column += p(t, e);
    sum += column * counts(e);
  }
  Values balance = Values::read(call.balance);
  balance(0) += sum * static_cast<double>(experts) / static_cast<double>(n * k);
  balance.write(call.balance);
}

void execute(const RouteBackward& call) {
  const std::int64_t n = call.choices.dim(0);
  const std::int64_t experts = call.logits.dim(1);
  const bool sigmoid = call.score == ScoreKind::kSigmoid;
  const Values scores = scores_of(call.logits, call.score);
  const Values p = shares_of(scores, call.score);
  const Values choices = Values::read(call.choices);
  const Values counts = Values::read(call.counts);
  Values dweights = Values::read(call.dweights);
  const double factor = factor_of_counts(call);
  Values dlogits(call.dlogits.shape());
  for (std::int64_t t = 0; t < n; ++t) {
    if (dweights.given() && sigmoid) {
      add_sigmoid_weight_gradient(dlogits, t, call, scores, choices, dweights);
    } else if (dweights.given()) {
      for (std::int64_t j = 0; j < choices.shape()[1]; ++j) dweights(t, j) *= call.factor;
      add_softmax_weight_gradient(dlogits, t, p, choices, dweights, call.normalized);
    }
    if (factor == 0) continue;
    std::vector<double> dp;
    for (std::int64_t e = 0; e < experts; ++e) dp.push_back(factor * counts(e));
    if (!sigmoid) {
      add_softmax_gradient(dlogits, t, p, dp);
      continue;
    }
    double sum = kTinySum, mean = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      sum += scores(t, e);
      mean += p(t, e) * dp[static_cast<std::size_t>(e)];
    }
    for (double& one : dp) one = (one - mean) / sum;
    add_sigmoid_gradient(dlogits, t, scores, dp);
  }
  dlogits.write(call.dlogits);
}

void execute(const RouterZLoss& call) {
  const Values logits = Values::read(call.logits);
  Values sum = Values::read(call.sum);
  for (std::int64_t t = 0; t < call.logits.dim(0); ++t) {
    const double z = log_sum(logits, t);
    sum(0) += z * z;
  }
  sum.write(call.sum);
}

void execute(const RouterZLossBackward& call) {
  const Values logits = Values::read(call.logits);
  const Values p = scores_of(call.logits, ScoreKind::kSoftmax);
  const double factor = 2 * call.factor * Values::read(call.scale)(0);
  Values dlogits(call.dlogits.shape());
  for (std::int64_t t = 0; t < call.logits.dim(0); ++t) {
    const double slope = factor * log_sum(logits, t);
    for (std::int64_t e = 0; e < call.logits.dim(1); ++e) dlogits(t, e) = slope * p(t, e);
  }
  dlogits.write(call.dlogits);
}

void execute(const LimitChoices& call) {
  const Values choices = Values::read(call.choices);
  const Values weights = Values::read(call.weights);
  Values kept = choices;
  for (std::int64_t e = 0; e < call.experts; ++e) {
    std::vector<ChoiceOfToken> all = choices_of_expert(call, choices, weights, e);
    std::ranges::stable_sort(all, std::greater(), &ChoiceOfToken::weight);
    for (std::int64_t i = call.capacity; i < std::ssize(all); ++i)
      kept(all[static_cast<std::size_t>(i)].token, all[static_cast<std::size_t>(i)].index) = -1;
  }
  kept.write(call.kept);
}

void execute(const ExcessChoices& call) {
  const Values counts = counts_of(Values::read(call.choices), call.excess.dim(0));
  const auto [each, part] = call.factors();
  Values excess = Values::read(call.excess);
  double all = 0;
  for (std::int64_t e = 0; e < call.excess.dim(0); ++e) all += counts(e);
  for (std::int64_t e = 0; e < call.excess.dim(0); ++e)
    excess(e) += counts(e) * static_cast<double>(each) - all / static_cast<double>(part);
  excess.write(call.excess);
}

void execute(const SortByExpert& call) {
  const Values choices = Values::read(call.choices);
  const std::int64_t experts = call.rows.first_rows.dim(0) - 1;
  Values sources(call.rows.sources.shape());
  Values places(call.choices.shape());
  Values first(call.rows.first_rows.shape());
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < choices.shape()[0]; ++t) {
    for (std::int64_t j = 0; j < choices.shape()[1]; ++j) places(t, j) = -1;
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::int64_t t = 0; t < choices.shape()[0]; ++t) {
      for (std::int64_t j = 0; j < choices.shape()[1]; ++j) {
        if (static_cast<std::int64_t>(choices(t, j)) != call.first + e) continue;
        sources(row) = static_cast<double>(t);
        places(t, j) = static_cast<double>(row++);
      }
    }
    first(e + 1) = static_cast<double>(row);
  }
  sources.write(call.rows.sources);
  places.write(call.rows.places);
  first.write(call.rows.first_rows);
}

void execute(const SortByRank& call) {
  const Values choices = Values::read(call.choices);
  const std::int64_t n = call.places.dim(0), ranks = call.places.dim(1), k = call.choices.dim(1);
  // How many experts of rank `to` a token of rank `from` chooses.
  const auto chosen = [&](std::int64_t from, std::int64_t token, std::int64_t to) {
    std::int64_t all = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const double choice = choices(from * n + token, j);
      if (choice >= 0 && static_cast<std::int64_t>(choice) / call.experts == to) ++all;
    }
    return all;
  };
  Values sources(call.sources.shape()), places(call.places.shape());
  Values received(call.received.shape()), counts(call.counts.shape()), sent(call.sent.shape());
  for (std::int64_t row = 0; row < call.received.dim(0); ++row) {
    for (std::int64_t j = 0; j < k; ++j) received(row, j) = -1;
  }
  std::int64_t of_this = 0, to_this = 0;  // rows so far
  for (std::int64_t from = 0; from < ranks; ++from) {
    for (std::int64_t to = 0; to < ranks; ++to) {
      for (std::int64_t t = 0; t < n; ++t) {
        const std::int64_t experts = chosen(from, t, to);
        counts(from, to) += experts > 0 ? 1 : 0;
        if (to == call.rank) counts(ranks, from) += static_cast<double>(experts);
        if (from == call.rank) places(t, to) = experts > 0 ? static_cast<double>(of_this) : -1;
        if (experts == 0) continue;
        if (from == call.rank) sources(of_this++) = static_cast<double>(t);
        if (to != call.rank) continue;
        for (std::int64_t j = 0; j < k; ++j) received(to_this, j) = choices(from * n + t, j);
        ++to_this;
      }
    }
  }
  sent(0) = static_cast<double>(of_this);
  sources.write(call.sources);
  places.write(call.places);
  received.write(call.received);
  counts.write(call.counts);
  sent.write(call.sent);
}

void execute(const CombineExperts& call) {
  const Values rows = Values::read(call.rows);
  const Values places = Values::read(call.places);
  const Values weights = Values::read(call.weights);
  Values y(call.y.shape());
  for (std::int64_t t = 0; t < call.y.dim(0); ++t) {
    for (std::int64_t j = 0; j < call.places.dim(1); ++j) {
      const auto row = static_cast<std::int64_t>(places(t, j));
      if (row < 0) continue;
      const double weight = weights.given() ? weights(t, j) : 1;
      for (std::int64_t i = 0; i < call.y.dim(1); ++i) y(t, i) += weight * rows(row, i);
    }
  }
  y.write(call.y);
}

void execute(const CombineExpertsBackward& call) {
  const Values rows = Values::read(call.rows);
  const Values places = Values::read(call.places);
  const Values weights = Values::read(call.weights);
  const Values dy = Values::read(call.dy);
  Values drows = Values::read(call.drows);  // rows of no token stay as they are
  Values dweights(call.dweights.shape());
  for (std::int64_t t = 0; t < call.dy.dim(0); ++t) {
    for (std::int64_t j = 0; j < call.places.dim(1); ++j) {
      const auto row = static_cast<std::int64_t>(places(t, j));
      if (row < 0) continue;
      for (std::int64_t i = 0; i < call.dy.dim(1); ++i) {
        drows(row, i) = weights(t, j) * dy(t, i);
        dweights(t, j) += dy(t, i) * rows(row, i);
      }
    }
  }
  drows.write(call.drows);
  dweights.write(call.dweights);
}

}  // namespace piton::reference
