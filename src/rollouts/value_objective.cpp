#include "rollouts/value_objective.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "comm/gathered_values.h"
#include "model/label_head.h"

namespace piton {
namespace {

// Numbers that are summed over ranks. Only the last stage has others than 0.
struct ValueSums {
  double loss = 0;
  double values = 0;
  double clipped = 0;  // tokens
  double tokens = 0;
};

constexpr std::array<double ValueSums::*, 4> kValueSums = {&ValueSums::loss, &ValueSums::values,
                                                           &ValueSums::clipped, &ValueSums::tokens};

}  // namespace

TokenValueLoss token_value_loss(double value, double written, double wanted,
                                const ValueLossRules& rules) {
  const double near = std::clamp(value, written - rules.clip, written + rules.clip);
  const double free = (value - wanted) * (value - wanted);
  const double bounded = (near - wanted) * (near - wanted);
  const bool clipped = bounded > free;
  return {.loss = rules.weight * std::max(free, bounded) / 2,
          .slope = clipped ? 0 : rules.weight * (value - wanted),
          .clipped = clipped};
}

void read_values(std::vector<MicroBatch>& batches) {
  for (MicroBatch& batch : batches) {
    for (std::int32_t& label : batch.labels) label = label >= 0 ? kRewardLabel : kNoLabel;
  }
}

ObjectiveReport ValueObjective::weigh(Session& session, std::vector<MicroBatch>& batches,
                                      bool training) {
  read_values(batches);
  const auto values = session.token_losses(batches, {.training = training});
  ValueSums own;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    MicroBatch& batch = batches[i];
    std::ranges::fill(batch.loss_mask, 0.0F);
    if (values[i].empty()) continue;  // of another stage
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      const auto place = static_cast<std::size_t>(batch.sample_index + sample);
      const std::vector<double>& written = targets_.written.at(place);
      const std::vector<double>& wanted = targets_.wanted.at(place);
      const auto begin = static_cast<std::size_t>(sample * batch.sequence);
      std::size_t token = 0;
      for (std::size_t row = begin; row < begin + static_cast<std::size_t>(batch.sequence); ++row) {
        if (batch.labels[row] < 0) continue;
        const TokenValueLoss one =
            token_value_loss(values[i][row], written.at(token), wanted.at(token), rules_);
        ++token;
        batch.loss_mask[row] = static_cast<float>(one.slope);
        own.loss += one.loss;
        own.values += values[i][row];
        own.clipped += one.clipped ? 1 : 0;
        own.tokens += 1;
      }
      PITON_ASSERT(token == wanted.size(), "{} labels, {} values", token, wanted.size());
    }
  }
  ValueSums all;
  for (const ValueSums& one : gathered_values(session.mesh().group(kLossAxes), own)) {
    for (const auto field : kValueSums) all.*field += one.*field;
  }
  const double tokens = std::max(all.tokens, 1.0);
  return {.loss_sum = all.loss,
          .count = tokens,
          .figures = {{"value_loss", all.loss / rules_.weight, tokens},
                      {"value", all.values, tokens},
                      {"value_clip_ratio", all.clipped, tokens}}};
}

GroupRates Critic::rates(const GroupRates& of_policy) const {
  GroupRates rates = of_policy;
  for (double* one : {&rates.base, &rates.vocabulary, &rates.adapter_outputs}) *one *= rate;
  return rates;
}

}  // namespace piton
