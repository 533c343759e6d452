// The chat template that a command uses: the model's, or that of --chat-template.
#pragma once

#include <string>

#include "api/model.h"

namespace piton::cli {

// `wanted`: as of chosen_chat_template() (data/instruct). `load`: the model as given, for messages.
// Throws Error(kUsage) if there is none.
ChatTemplate model_chat_template(const Model& model, const std::string& wanted,
                                 const std::string& load);

}  // namespace piton::cli
