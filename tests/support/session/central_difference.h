// Gradients of a session's parameters, and central differences of a loss.
#pragma once

#include <cmath>
#include <vector>

#include "session/session.h"
#include "support/tensors.h"

namespace piton::test {

// dl/dx of one element x of a parameter.
struct Slope {
  double gradient = 0;    // as it was computed
  double difference = 0;  // (l(x + step) - l(x - step)) / 2 step
};

struct SlopeRules {
  double step = 1e-4;
  Stream& stream;
};

// Of the element whose gradient is largest, which then has its value again. `gradient`: of all
// elements; `loss`: of the session as it is.
template <typename Loss>
Slope largest_slope(Session& session, Parameter& parameter, const std::vector<double>& gradient,
                    const SlopeRules& rules, const Loss& loss) {
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < std::ssize(gradient); ++i) {
    const auto of = [&](std::int64_t j) { return std::abs(gradient[static_cast<std::size_t>(j)]); };
    if (of(i) > of(at)) at = i;
  }
  const Tensor rows = session.sharded().whole_value(parameter, rules.stream);
  const double before = value_at(rows, at);
  const auto set = [&](double value) {
    const Tensor changed = host_tensor(parameter.dtype, parameter.shape);
    for (std::int64_t i = 0; i < rows.elements(); ++i)
      set_value(changed, i, i == at ? value : value_at(rows, i));
    session.sharded().set_value(parameter, changed, rules.stream);
    session.publish_values();
  };
  set(before + rules.step);
  const double up = loss();
  set(before - rules.step);
  const double down = loss();
  set(before);
  return {.gradient = gradient[static_cast<std::size_t>(at)],
          .difference = (up - down) / (2 * rules.step)};
}

}  // namespace piton::test
