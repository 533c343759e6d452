// How far answers are from a reference: sum over their tokens of log(policy / reference), which may
// be negative. With --kl-in-reward it is taken from their rewards, as in TRL's RLOOTrainer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "session/session.h"

namespace piton {

// `reference` null: the base under the adapters of `policy`.
struct ComparedModels {
  Session& policy;
  Session* reference = nullptr;
};

// Of each of `answers` answers. `parts`: those of this rank, a row each; MicroBatch::sample_index
// is the number of the first one. Tokens without a label are left out. Collective over `everyone`,
// all ranks of the session; the same on all of them.
std::vector<double> answer_divergences(const ComparedModels& models,
                                       std::span<const std::vector<MicroBatch>> parts,
                                       std::int64_t answers, Communicator& everyone);

// The losses of their tokens by the reference (rollouts/answer_losses.h).
std::vector<std::vector<double>> losses_of_reference(const ComparedModels& models,
                                                     std::span<const std::vector<MicroBatch>> parts,
                                                     std::int64_t answers, Communicator& everyone);

}  // namespace piton
