#include "train/skip_rules.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace piton {
namespace {

// The place of a weight in the order of the forward pass: embedding, layers by the number after
// "layers.", last norm, head.
std::int64_t place_in_forward(const std::string& name) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  if (name.starts_with("embedding")) return -1;
  if (!name.starts_with("layers.")) return name.starts_with("head") ? kLast : kLast - 1;
  return std::atoll(name.c_str() + std::string_view("layers.").size());
}

// ": backward met them first in NAME". `bad`: parameters whose gradients are not finite. Backward
// goes from the last layer to the first and spreads what is not finite on its way.
std::string first_bad_layer(const std::vector<std::string>& bad, double loss) {
  if (bad.empty()) return "";
  const auto first =
      std::max_element(bad.begin(), bad.end(), [](const std::string& a, const std::string& b) {
        return place_in_forward(a) < place_in_forward(b);
      });
  return fmt::format(" (backward met the first in {}; {} parameters have some{})", *first,
                     bad.size(), std::isfinite(loss) ? "" : ", and the loss is not finite");
}

}  // namespace

void SkipRules::count(const CountedStep& step) {
  const StepReport& report = step.report;
  if (!report.skipped) {
    in_a_row_ = 0;
    return;
  }
  const bool adapts = options_.scaling().dynamic && report.loss_scale > options_.min_loss_scale;
  const bool is_spike = std::isfinite(report.grad_norm);
  if (adapts && !is_spike) {
    log_.info(fmt::format(
        "iteration {}: gradients overflow at a loss scale of {}; the update is skipped, "
        "the scale is now {}",
        step.iteration, report.loss_scale, step.next_loss_scale));
    return;
  }
  if (is_spike) {
    log_.info(fmt::format(
        "iteration {}: a spike (loss {:.4f}, gradient norm {:.3f}); the update is skipped",
        step.iteration, report.loss, report.grad_norm));
    return;
  }
  ++in_a_row_;
  log_.info(
      fmt::format("iteration {}: gradients are not finite; the update is skipped", step.iteration));
  if (in_a_row_ < most_) return;
  throw Error(Fault::kDiverged,
              "iteration {}: {} updates in a row had no finite gradients{}; lower --lr, or "
              "continue from an earlier checkpoint",
              step.iteration, in_a_row_,
              first_bad_layer(step.parameters_not_finite(), report.loss));
}

}  // namespace piton
