// piton score --reward --pairs: how often a reward model prefers the better answer of a pair.
#pragma once

#include "api/model.h"
#include "base/log.h"
#include "cli/commands/score_rewards.h"

namespace piton::cli {

// Of `request.file`: records of a pairwise handler (data/instruct/handlers.h). Prints one object or
// a table. Collective. Records may have a "subset", whose figures are printed too. Throws
// Error(kData) for a file without pairs and for a record that cannot be used, Error(kUsage) for a
// model that gives no rewards or has no chat template.
void print_pair_rewards(Model& model, const RewardRequest& request, Log& log);

}  // namespace piton::cli
