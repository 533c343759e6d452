#include "data/instruct/chosen_chat_template.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "base/listed.h"
#include "data/instruct/prompt_chat_template.h"
#include "data/instruct/prompt_template.h"
#include "data/instruct/seed_prompt.h"

namespace piton {

ChatTemplate chosen_chat_template(const ChatTemplateFiles& files, const std::string& wanted,
                                  bool with_tools, const Tokenizer& tokenizer) {
  const auto has_name = [&](const auto& one) { return one.name == wanted; };
  if (wanted.empty() || std::ranges::any_of(files.templates, has_name))
    return choose_chat_template(files, wanted, with_tools);
  if (std::filesystem::is_regular_file(wanted))
    return ChatTemplate(read_text_file(wanted), files.special_tokens, wanted);
  if (wanted == kSeedPromptName)
    return ChatTemplate(seed_chat_template(tokenizer), files.special_tokens,
                        "--chat-template " + wanted);
  const std::vector<PromptTemplate>& prompts = built_in_templates();
  const auto prompt = std::ranges::find_if(prompts, has_name);
  if (prompt == prompts.end()) {
    std::vector<std::string> names;
    for (const ChatTemplateSource& source : files.templates) names.push_back(source.name);
    for (const PromptTemplate& one : prompts) {
      if (std::ranges::count(names, one.name) == 0) names.push_back(one.name);
    }
    names.emplace_back(kSeedPromptName);
    throw Error(Fault::kUsage, "--chat-template: got {}, wanted a file in Jinja, or one of {}",
                wanted, listed(names, names.size()));
  }
  return ChatTemplate(chat_template_of(*prompt, tokenizer, Thinking::kRemoved),
                      files.special_tokens, "--chat-template " + wanted);
}

}  // namespace piton
