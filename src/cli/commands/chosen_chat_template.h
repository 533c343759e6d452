// The chat template that a command uses: the model's, or that of --chat-template.
#pragma once

#include <string>

#include "api/model.h"

namespace piton::cli {

// `wanted`: a file in Jinja, the name of one of the model's templates, or "" for its default.
// `load`: the model as given, for messages. Throws Error(kUsage) if there is none.
ChatTemplate chosen_chat_template(const Model& model, const std::string& wanted,
                                  const std::string& load);

}  // namespace piton::cli
