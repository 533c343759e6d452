// Named templates of prompts: what is written around each message. The names and forms are those of
// MindSpeed-LLM and LlamaFactory (--prompt-type).
//
// A template consists of elements, and each is encoded as a separate text. Ids can therefore differ
// from those of the whole text, which a model's own template gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/instruct/tool_text.h"

namespace piton {

struct Slot {
  enum class Kind : std::uint8_t {
    kText,   // encoded; special tokens in it become their ids
    kToken,  // one token by its name
    kBos,    // left out if the tokenizer has none
    kEos,
  };
  Kind kind = Kind::kText;
  // {{content}} is replaced, in user also {{idx}}, in function {{name}} and {{arguments}}.
  std::string text;
  bool operator==(const Slot&) const = default;
};
using Slots = std::vector<Slot>;

struct PromptTemplate {
  enum class Style : std::uint8_t {
    kPlain,
    kLlama2,     // the system's text is inside the first message of the user
    kReasoning,  // answers have thoughts in <think>, or an empty one (--enable-thinking)
  };

  std::string name;
  Slots prefix;  // before everything
  Slots system;  // after it
  Slots user;
  Slots assistant;
  Slots function;
  Slots observation;
  Slots separator;  // before each turn but the first
  std::string default_system;
  std::vector<std::string> stop_words;
  // Answers have no end-of-turn token: it is learned in the place of the next turn's first id, and
  // at the end.
  bool efficient_eos = false;
  bool replace_eos =
      false;  // the end-of-turn token is the first stop word, not the tokenizer's eos
  ToolFormat tools = ToolFormat::kDefault;
  Style style = Style::kPlain;
};

// A template by its name: from the built-in ones, or from a file (MindSpeed-LLM's templates.json).
// Throws Error(kUsage) for a name that does not exist, with those that do, and Error(kData) for a
// file that is not a list of templates.
PromptTemplate prompt_template(const std::string& name, const std::string& file);

const std::vector<PromptTemplate>& built_in_templates();

// Cuts {{bos_token}}, {{eos_token}}, {{token NAME}} and {{next}}, the end of an element, out of a
// text.
Slots parse_slots(std::string_view text);

// Sets what a template leaves open: assistant is the content and eos, system and user the content,
// observation as user, function as the tool format has it.
void complete(PromptTemplate& prompt);

}  // namespace piton
