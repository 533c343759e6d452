// libraries: piton_data_instruct
// Bytes as a record of instruction data under every handler: each gives a conversation whose turns
// alternate, or an error; prompts encode it, and ids and labels have the same length.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/nesting.h"
#include "data/instruct/handlers.h"
#include "data/instruct/named_prompt.h"
#include "data/instruct/seed_prompt.h"
#include "text/files/byte_tokenizer.h"

namespace {

void encode(const piton::Conversation& conversation, const piton::ConversationEncoder& prompt) {
  try {
    for (const piton::TaughtText& sample : prompt.encode(conversation)) {
      if (sample.ids.size() != sample.labels.size()) std::abort();
      if (piton::taught_tokens(sample) > static_cast<std::int64_t>(sample.ids.size())) std::abort();
    }
  } catch (const piton::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const piton::ByteTokenizer tokenizer;
  static const piton::NamedPrompt prompts[] = {
      {piton::prompt_template("default", ""), tokenizer, {}},
      {piton::prompt_template("llama2", ""), tokenizer, {.lengths = {16}}},
      {piton::prompt_template("gemma", ""), tokenizer, {.lengths = {7}}}};
  static const piton::SeedPrompt seed(tokenizer, {.every_turn = true, .lengths = {300}});
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    piton::check_json_depth(bytes, "record");
  } catch (const piton::Error&) {
    return 0;
  }
  const auto record = piton::read_json_or_discarded<nlohmann::ordered_json>(bytes);
  if (!record.is_object()) return 0;
  for (const piton::Handler& handler : piton::handlers()) {
    if (handler.format == piton::RecordFormat::kText) continue;
    const piton::RecordFields fields = piton::fields_of(handler, "");
    try {
      if (handler.form == piton::SampleForm::kTexts) {
        piton::read_text(handler, fields, record);
        continue;
      }
      const piton::Conversation conversation = piton::read_conversation(handler, fields, record);
      for (const piton::NamedPrompt& prompt : prompts) encode(conversation, prompt);
      const bool plain = handler.prompt == piton::PromptRule::kSeed ||
                         handler.prompt == piton::PromptRule::kSeedEveryTurn;
      if (plain) encode(conversation, seed);
    } catch (const piton::Error&) {
    }
  }
  return 0;
}
