#include "rollouts/answer_divergences.h"

#include "rollouts/answer_losses.h"

namespace piton {

std::vector<double> answer_divergences(const ComparedModels& models,
                                       std::span<const std::vector<MicroBatch>> parts,
                                       std::int64_t answers, Communicator& everyone) {
  const auto written = answer_losses(models.policy, parts, {.training = true}, answers, everyone);
  const auto reference = losses_of_reference(models, parts, answers, everyone);
  std::vector<double> all(written.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t token = 0; token < written[i].size(); ++token)
      all[i] += reference[i][token] - written[i][token];
  }
  return all;
}

std::vector<std::vector<double>> losses_of_reference(const ComparedModels& models,
                                                     std::span<const std::vector<MicroBatch>> parts,
                                                     std::int64_t answers, Communicator& everyone) {
  if (models.reference != nullptr)
    return answer_losses(*models.reference, parts, {}, answers, everyone);
  return answer_losses(models.policy, parts, {.adapters = false}, answers, everyone);
}

}  // namespace piton
