#include "data/instruct/handlers.h"

#include <algorithm>

#include "base/error.h"
#include "base/listed.h"
#include "data/instruct/chat_records.h"
#include "data/instruct/labeled_texts.h"
#include "data/instruct/turn_records.h"

namespace piton {
namespace {

constexpr std::string_view kTags =
    "role_tag=from content_tag=value user_tag=human assistant_tag=gpt observation_tag=observation "
    "function_tag=function_call system_tag=system";

}  // namespace

const std::vector<Handler>& handlers() {
  using F = RecordFormat;
  using S = SampleForm;
  using P = PromptRule;
  static const std::vector<Handler> list = {
      {"GeneralPretrainHandler", F::kText, S::kTexts, P::kNone, "text=text"},
      {"AlpacaPretrainHandler", F::kAlpacaText, S::kTexts, P::kNone,
       "instruction=instruction input=input? output=output"},
      {"StackOverflowPythonPretrainHandler", F::kStackOverflowText, S::kTexts, P::kNone,
       "title=title question_body=question_body answer_body=answer_body"},
      {"GeneralInstructionHandler", F::kInstruction, S::kAnswers, P::kSeed,
       "instruction=instruction input=input? output=output"},
      {"BelleMultiTurnInstructionHandler", F::kBelle, S::kAnswers, P::kSeed,
       "instruction=instruction output=output"},
      {"MOSSInstructionHandler", F::kMoss, S::kAnswers, P::kSeedEveryTurn, "chat=chat"},
      {"MOSSMultiTurnHandler", F::kMoss, S::kAnswers, P::kBaichuan, "chat=chat"},
      {"LeetcodePythonInstructionHandler", F::kLeetcode, S::kAnswers, P::kSeed,
       "code_with_problem=code_with_problem code_only=code_only explanation_only=explanation_only"},
      {"AlpacaStyleInstructionHandler", F::kAlpaca, S::kAnswers, P::kNamed,
       "prompt=instruction query=input? response=output history=history? system=system? "
       "tools=tools?"},
      {"SharegptStyleInstructionHandler", F::kShareGpt, S::kAnswers, P::kNamed,
       "messages=conversations system=system? tools=tools?"},
      {"OpenAIInstructionHandler", F::kMessages, S::kAnswers, P::kNamed,
       "messages=messages system=system? tools=tools?"},
      {"AlpacaStylePairwiseHandler", F::kAlpaca, S::kPairs, P::kNamed,
       "prompt=instruction query=input? chosen=chosen rejected=rejected history=history? "
       "system=system? tools=tools?"},
      {"SharegptStylePairwiseHandler", F::kShareGpt, S::kPairs, P::kNamed,
       "messages=conversations chosen=chosen rejected=rejected system=system? tools=tools?"},
      {"AlpacaStyleUnpairedHandler", F::kAlpaca, S::kJudged, P::kNamed,
       "prompt=instruction query=input? response=output label=kto_tag history=history? "
       "system=system? tools=tools?"},
      {"SharegptStyleUnpairedHandler", F::kShareGpt, S::kJudged, P::kNamed,
       "messages=conversations label=kto_tag system=system? tools=tools?"},
      {"PromptCompletionHandler", F::kPrompt, S::kAnswers, P::kNamed,
       "prompt=prompt completion=completion system=system? tools=tools?"},
      {"PromptPairwiseHandler", F::kPrompt, S::kPairs, P::kNamed,
       "prompt=prompt? chosen=chosen rejected=rejected system=system? tools=tools?"},
      {"PromptUnpairedHandler", F::kPrompt, S::kJudged, P::kNamed,
       "prompt=prompt completion=completion label=label system=system? tools=tools?"},
      {"TextLabelHandler", F::kLabeled, S::kLabels, P::kPlain, kLabeledFields},
  };
  return list;
}

const Handler& handler_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Handler& handler : handlers()) {
    if (handler.name == name) return handler;
    names.emplace_back(handler.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw Error(Fault::kUsage, "--handler-name: got \"{}\"{}, wanted one of auto, {}", name,
              nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
              listed(names, names.size()));
}

std::string_view name(SampleForm form) {
  switch (form) {
    case SampleForm::kTexts:
      return "texts";
    case SampleForm::kAnswers:
      return "answers";
    case SampleForm::kPairs:
      return "pairs of answers";
    case SampleForm::kJudged:
      return "judged answers";
    case SampleForm::kLabels:
      return "labels of texts";
  }
  PITON_ASSERT(false, "sample form {}", static_cast<int>(form));
  return "";
}

const Handler& handler_of(const nlohmann::ordered_json& record, std::optional<SampleForm> wanted) {
  const auto holds = [&](const char* key) {
    const auto at = record.find(key);
    return at != record.end() && !at->is_null();
  };
  if (wanted == SampleForm::kLabels) return handler_named("TextLabelHandler");
  const bool pair = holds("chosen") && holds("rejected");
  const bool wants_pairs = wanted == SampleForm::kPairs && pair;
  if (holds("messages") && !wants_pairs) return handler_named("OpenAIInstructionHandler");
  if (holds("conversations")) {
    return handler_named(pair               ? "SharegptStylePairwiseHandler"
                         : holds("kto_tag") ? "SharegptStyleUnpairedHandler"
                                            : "SharegptStyleInstructionHandler");
  }
  if (holds("instruction") && pair) return handler_named("AlpacaStylePairwiseHandler");
  if (holds("instruction") && holds("output")) {
    return handler_named(holds("kto_tag") ? "AlpacaStyleUnpairedHandler"
                                          : "AlpacaStyleInstructionHandler");
  }
  if (pair) return handler_named("PromptPairwiseHandler");
  if (holds("prompt") && holds("completion")) {
    return handler_named(holds("label") ? "PromptUnpairedHandler" : "PromptCompletionHandler");
  }
  if (holds("text")) return handler_named("GeneralPretrainHandler");
  for (const char* key : {"output", "chosen", "rejected", "conversations", "messages", "completion",
                          "text", "instruction", "prompt"}) {
    if (!record.contains(key) || holds(key)) continue;
    throw Error(Fault::kData,
                "{} is null, and the format is recognized by the first record; wanted a value "
                "there, or the handler by --handler-name",
                key);
  }
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  throw Error(Fault::kData,
              "the format is not recognized: the record has {}; wanted instruction and output "
              "(alpaca), conversations (sharegpt), messages, prompt and completion, chosen and "
              "rejected, or text; name the handler with --handler-name, and the keys with "
              "--map-keys",
              keys.empty() ? "no keys" : listed(keys, 12));
}

RecordFields fields_of(const Handler& handler, const std::string& map_keys) {
  return {handler.fields, handler.format == RecordFormat::kShareGpt ? kTags : "", map_keys};
}

Conversation read_conversation(const Handler& handler, const RecordFields& fields,
                               const nlohmann::ordered_json& record) {
  Conversation conversation;
  switch (handler.format) {
    case RecordFormat::kInstruction:
      conversation = read_instruction(fields, record);
      break;
    case RecordFormat::kBelle:
      conversation = read_belle(fields, record);
      break;
    case RecordFormat::kMoss:
      conversation = read_moss(fields, record);
      break;
    case RecordFormat::kLeetcode:
      conversation = read_leetcode(fields, record);
      break;
    case RecordFormat::kAlpaca:
      conversation = read_alpaca(fields, record);
      break;
    case RecordFormat::kShareGpt:
      conversation = read_share_gpt(fields, record);
      break;
    case RecordFormat::kMessages:
      conversation = read_messages(fields, record);
      break;
    case RecordFormat::kPrompt:
      conversation = read_prompt(fields, record);
      break;
    case RecordFormat::kLabeled:
      return read_labeled(fields, record);
    default:
      PITON_ASSERT(false, "{} reads texts", handler.name);
  }
  check_turns(conversation);
  return conversation;
}

std::string read_text(const Handler& handler, const RecordFields& fields,
                      const nlohmann::ordered_json& record) {
  if (handler.format == RecordFormat::kStackOverflowText) {
    return fmt::format("In python, {}\n### Question:\n{}\n### Response:\n{}\n",
                       text_at(record, fields.key("title")),
                       text_at(record, fields.key("question_body")),
                       text_at(record, fields.key("answer_body")));
  }
  PITON_ASSERT(handler.format == RecordFormat::kAlpacaText, "{} has no text", handler.name);
  const std::string input = optional_text_at(record, fields.key("input"));
  // MindSpeed-LLM writes "###None" where there is no input.
  return fmt::format(
      "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
      "helpful, detailed, and polite answers to the user's questions.USER: Below is an instruction "
      "that describes a task. Write a response that appropriately completes the request.\n\n"
      "### Instruction:\n{}\n\n{}### Response: ASSISTANT: {}",
      text_at(record, fields.key("instruction")),
      input.empty() ? "" : fmt::format("### Input:\n{}\n\n", input),
      text_at(record, fields.key("output")));
}

std::vector<std::string> sample_columns(SampleForm form) {
  switch (form) {
    case SampleForm::kTexts:
      return {};
    case SampleForm::kAnswers:
      return {"input_ids", "attention_mask", "labels"};
    case SampleForm::kPairs:
      return {"chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels"};
    case SampleForm::kJudged:
      return {"input_ids", "labels", "desirable"};
    case SampleForm::kLabels:
      return {"input_ids", "parts", "label"};
  }
  PITON_ASSERT(false, "sample form {}", static_cast<int>(form));
  return {};
}

}  // namespace piton
