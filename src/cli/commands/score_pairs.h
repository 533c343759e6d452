// piton score --reward --pairs: how often a reward model prefers the better answer of a pair.
#pragma once

#include <string>

#include "api/model.h"
#include "base/log.h"

namespace piton::cli {

struct PairRequest {
  std::string file;           // records of a pairwise handler (data/instruct/handlers.h)
  std::string load;           // the model as given, for messages
  std::string chat_template;  // as of model_chat_template()
  bool json = false;          // one object; else a table
  bool prints = true;         // this rank
};

// Collective. Records may have a "subset", whose figures are printed too. Throws Error(kData) for a
// file without pairs and for a record that cannot be used, Error(kUsage) for a model that gives no
// rewards or has no chat template.
void print_pair_rewards(Model& model, const PairRequest& request, Log& log);

}  // namespace piton::cli
