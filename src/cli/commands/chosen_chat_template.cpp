#include "cli/commands/chosen_chat_template.h"

#include <filesystem>

#include "base/error.h"
#include "base/files/files.h"

namespace piton::cli {

ChatTemplate chosen_chat_template(const Model& model, const std::string& wanted,
                                  const std::string& load) {
  const ChatTemplateFiles& files = model.chat_templates();
  if (!wanted.empty() && std::filesystem::is_regular_file(wanted))
    return ChatTemplate(read_text_file(wanted), files.special_tokens, wanted);
  if (files.templates.empty()) {
    throw Error(Fault::kUsage,
                "--load: {} has no chat template; give --chat-template FILE, or ask without one",
                load);
  }
  return choose_chat_template(files, wanted, /*with_tools=*/false);
}

}  // namespace piton::cli
