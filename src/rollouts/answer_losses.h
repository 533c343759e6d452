// What a model computed of each token of a batch of answers, on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "session/session.h"

namespace piton {

// The losses of the tokens with a label (Session::token_losses) of each of `answers` answers.
// `parts`: those of this rank, a row each; MicroBatch::sample_index is the number of the first one.
// Collective over `everyone`, all ranks of the session; the same on all of them.
std::vector<std::vector<double>> answer_losses(Session& session,
                                               std::span<const std::vector<MicroBatch>> parts,
                                               const LossPass& pass, std::int64_t answers,
                                               Communicator& everyone);

}  // namespace piton
