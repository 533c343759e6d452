#include "cli/commands/model_chat_template.h"

#include "base/error.h"
#include "data/instruct/chosen_chat_template.h"

namespace piton::cli {

ChatTemplate model_chat_template(const Model& model, const std::string& wanted,
                                 const std::string& load) {
  const ChatTemplateFiles& files = model.chat_templates();
  if (wanted.empty() && files.templates.empty()) {
    throw Error(Fault::kUsage,
                "--load: {} has no chat template; give --chat-template FILE or NAME (ascendspeed "
                "for data of GeneralInstructionHandler)",
                load);
  }
  return chosen_chat_template(files, wanted, /*with_tools=*/false, model.require_tokenizer());
}

}  // namespace piton::cli
