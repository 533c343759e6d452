// piton score --reward: what a reward model (model/label_head.h) says of texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/model.h"

namespace piton::cli {

struct RewardRequest {
  std::vector<std::vector<std::int32_t>> ids;  // none: those of the conversations of `file`
  std::string file;                            // text/chat/conversations.h; "-": standard input
  std::string load;                            // the model as given, for messages
  std::string chat_template;                   // as of model_chat_template()
  bool json = false;                           // one object with all rewards; else one on each line
  bool prints = true;                          // this rank
};

// Collective. Throws Error(kData) for a file without conversations, Error(kUsage) for a model that
// gives no rewards or has no chat template.
void print_rewards(Model& model, const RewardRequest& request);

}  // namespace piton::cli
