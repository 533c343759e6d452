// --chat-template-kwargs: variables of a chat template, such as {"enable_thinking": false}.
#pragma once

#include <string>

#include "base/json.h"
#include "base/options/options.h"
#include "text/chat/chat_template.h"

namespace piton::cli {

struct ChatVariables {
  std::string text;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"chat-template-kwargs",
             "variables of the chat template, such as '{\"enable_thinking\": false}'",
             {.placeholder = "JSON"}},
      text);
  }

  // Null if none are given. Throws Error(kUsage) if the text is no JSON object.
  nlohmann::ordered_json json() const;
  // Gives them to a template. Throws Error(kUsage) that names a variable which it does not read.
  void set_in(ChatTemplate& chat_template) const;
};

}  // namespace piton::cli
