#include "cli/chat_variables.h"

#include "base/error.h"
#include "text/chat/json_in_text.h"

namespace piton::cli {

nlohmann::ordered_json ChatVariables::json() const {
  if (text.empty()) return nullptr;
  nlohmann::ordered_json object = json_in_text(text);
  if (object.is_object()) return object;
  throw Error(Fault::kUsage,
              "--chat-template-kwargs: got {}, wanted a JSON object, such as "
              "{{\"enable_thinking\": false}}",
              text);
}

void ChatVariables::set_in(ChatTemplate& chat_template) const {
  nlohmann::ordered_json variables = json();
  if (const auto unread = chat_template.unread_variable(variables)) {
    throw Error(Fault::kUsage,
                "--chat-template-kwargs: {} does not read \"{}\", which would change nothing; "
                "leave it out",
                chat_template.name(), *unread);
  }
  chat_template.set_variables(std::move(variables));
}

}  // namespace piton::cli
