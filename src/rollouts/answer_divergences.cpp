#include "rollouts/answer_divergences.h"

#include "base/error.h"
#include "rollouts/value_bytes.h"

namespace piton {
namespace {

struct NumberedDivergence {
  double answer = -1;
  double value = 0;
};

using LossesOfBatches = std::vector<std::vector<double>>;  // as Session::token_losses()

void add_divergences(const std::vector<MicroBatch>& batches, const LossesOfBatches& policy,
                     const LossesOfBatches& reference, std::vector<NumberedDivergence>& found) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const MicroBatch& batch = batches[i];
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      NumberedDivergence one{.answer = static_cast<double>(batch.sample_index + sample)};
      const auto begin = static_cast<std::size_t>(sample * batch.sequence);
      for (std::size_t row = begin; row < begin + static_cast<std::size_t>(batch.sequence); ++row)
        if (batch.labels[row] >= 0) one.value += reference[i][row] - policy[i][row];
      found.push_back(one);
    }
  }
}

}  // namespace

std::vector<double> answer_divergences(const ComparedModels& models,
                                       std::span<const std::vector<MicroBatch>> parts,
                                       std::int64_t answers, Communicator& everyone) {
  Session& policy = models.policy;
  const bool tells =
      policy.pipeline().on_last_stage() && policy.mesh().coordinate(Axis::kTensor) == 0;
  std::vector<NumberedDivergence> own;
  for (const std::vector<MicroBatch>& part : parts) {
    const LossesOfBatches written = policy.token_losses(part, {.training = true});
    const LossesOfBatches reference = models.reference != nullptr
                                          ? models.reference->token_losses(part, {})
                                          : policy.token_losses(part, {.adapters = false});
    if (tells) add_divergences(part, written, reference, own);
  }
  std::vector<double> all(static_cast<std::size_t>(answers));
  for (const std::string& bytes : everyone.gather_bytes(bytes_of_values(own))) {
    for (const NumberedDivergence& one : values_in<NumberedDivergence>(bytes))
      all.at(static_cast<std::size_t>(one.answer)) = one.value;
  }
  return all;
}

}  // namespace piton
