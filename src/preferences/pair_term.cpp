#include "preferences/pair_term.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace piton {

double logistic(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

double log_logistic(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

ScoreTerm score_of(DivergenceKind kind, double coefficient, double x) {
  switch (kind) {
    case DivergenceKind::kReverseKl:
      return {x, 1};
    case DivergenceKind::kForwardKl:
      return {1 - std::exp(-x), std::exp(-x)};
    case DivergenceKind::kJensenShannon:
      return {std::log(2) + log_logistic(x), logistic(-x)};
    case DivergenceKind::kAlpha: {
      // TRL's limits: of the case log(t), and of the exponent.
      constexpr double kNearOne = 1e-6;
      constexpr double kMost = 80;
      const double power = coefficient - 1;
      if (std::abs(power) < kNearOne) return {x, 1};
      const double exponent = power * x;
      const double t = std::exp(std::min(exponent, kMost));
      return {(t - 1) / power, exponent > kMost ? 0 : t};
    }
  }
  PITON_ASSERT(false, "divergence {}", static_cast<int>(kind));
  return {};
}

namespace {

// The slope of the logistic function.
double logistic_slope(double x) { return logistic(x) * logistic(-x); }

// Of the losses of x = beta z.
ScoreTerm of_margin(const PairRules& rules, double x) {
  const double e = rules.smoothing;
  switch (rules.kind) {
    case PairLossKind::kSigmoid:
    case PairLossKind::kSigmoidNorm:
      return {-(1 - e) * log_logistic(x) - e * log_logistic(-x),
              e * logistic(x) - (1 - e) * logistic(-x)};
    case PairLossKind::kHinge:
      return {std::max(0.0, 1 - x), x < 1 ? -1.0 : 0.0};
    case PairLossKind::kRobust:
      return {(-(1 - e) * log_logistic(x) + e * log_logistic(-x)) / (1 - 2 * e),
              (-(1 - e) * logistic(-x) - e * logistic(x)) / (1 - 2 * e)};
    case PairLossKind::kExoPair: {
      const double off = std::log(e) - std::log1p(-e);
      return {logistic(x) * (log_logistic(x) - std::log1p(-e)) +
                  logistic(-x) * (log_logistic(-x) - std::log(e)),
              logistic_slope(x) * (x + off)};
    }
    case PairLossKind::kDiscopop: {
      const double mixed = logistic(x / rules.tau);
      // m exp(-x), whose second factor alone would overflow.
      const double exponential = std::exp(log_logistic(x / rules.tau) - x);
      const double rest = logistic(-x / rules.tau);
      return {-rest * log_logistic(x) + exponential,
              -rest * logistic(-x) - exponential +
                  rest * (exponential + mixed * log_logistic(x)) / rules.tau};
    }
    default:
      break;
  }
  PITON_ASSERT(false, "loss {} of a margin", static_cast<int>(rules.kind));
  return {};
}

}  // namespace

PairTerm pair_term(const PairRules& rules, double chosen, double rejected) {
  const double beta = rules.beta;
  const double a = beta * chosen, b = beta * rejected;
  switch (rules.kind) {
    case PairLossKind::kIpo: {
      const double distance = chosen - rejected - 1 / (2 * beta);
      return {distance * distance, 2 * distance, -2 * distance};
    }
    case PairLossKind::kNcaPair:
      return {-log_logistic(a) - 0.5 * log_logistic(-a) - 0.5 * log_logistic(-b),
              beta * (0.5 * logistic(a) - logistic(-a)), beta * 0.5 * logistic(b)};
    case PairLossKind::kBcoPair:
      return {-log_logistic(a) - log_logistic(-b), -beta * logistic(-a), beta * logistic(b)};
    case PairLossKind::kSppoHard: {
      const double good = chosen - 0.5 / beta, bad = rejected + 0.5 / beta;
      return {good * good + bad * bad, 2 * good, 2 * bad};
    }
    case PairLossKind::kApoZero:
      return {logistic(-a) + logistic(b), -beta * logistic_slope(a), beta * logistic_slope(b)};
    case PairLossKind::kApoDown: {
      const double of_margin_slope = beta * logistic_slope(a - b);
      return {logistic(a) + logistic(b - a), beta * logistic_slope(a) - of_margin_slope,
              of_margin_slope};
    }
    default:
      break;
  }
  const ScoreTerm term = of_margin(rules, a - b);
  return {term.value, beta * term.slope, -beta * term.slope};
}

}  // namespace piton
