// Handlers: how a record of a data set is read, and what becomes of it. The names are those of
// AscendSpeed and MindSpeed-LLM; those of prompts read the records of TRL.
//
//   handler                               keys of a record                     written
//   GeneralPretrainHandler                --json-keys                          texts
//   AlpacaPretrainHandler                 instruction, input, output           texts
//   StackOverflowPythonPretrainHandler    title, question_body, answer_body    texts
//   GeneralInstructionHandler             instruction, input, output           answers
//   BelleMultiTurnInstructionHandler      instruction (Human: Assistant:), output   answers
//   MOSSInstructionHandler                chat {turn: {Human, MOSS}}           answers, a turn each
//   MOSSMultiTurnHandler                  the same                             answers (Baichuan)
//   LeetcodePythonInstructionHandler      code_*, explanation_only             answers
//   AlpacaStyleInstructionHandler         instruction, input, output, history  answers
//   SharegptStyleInstructionHandler       conversations, system, tools         answers
//   OpenAIInstructionHandler              messages, tools                      answers
//   AlpacaStylePairwiseHandler            instruction, input, chosen, rejected pairs
//   SharegptStylePairwiseHandler          conversations, chosen, rejected      pairs
//   AlpacaStyleUnpairedHandler            instruction, input, output, kto_tag  judged answers
//   SharegptStyleUnpairedHandler          conversations, kto_tag               judged answers
//   PromptCompletionHandler               prompt, completion                   answers
//   PromptPairwiseHandler                 prompt, chosen, rejected             pairs
//   PromptUnpairedHandler                 prompt, completion, label            judged answers
//   TextLabelHandler                      text, text_pair, ..., label          labels of texts
//
// Answers are written as input_ids, attention_mask and labels; pairs as ids and labels of both;
// judged answers as ids, labels, and 1 for a good answer or 0 for a bad one; texts with labels as
// data/labels/labeled_dataset.h reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/instruct/conversation.h"
#include "data/instruct/record_fields.h"

namespace piton {

enum class RecordFormat : std::uint8_t {
  kText,
  kAlpacaText,
  kStackOverflowText,
  kInstruction,  // instruction, a line end, input, whether or not there is one
  kBelle,
  kMoss,
  kLeetcode,
  kAlpaca,
  kShareGpt,
  kMessages,
  kPrompt,
  kLabeled,  // labeled_texts.h
};

enum class SampleForm : std::uint8_t { kTexts, kAnswers, kPairs, kJudged, kLabels };

// "texts", "answers", "pairs of answers", "judged answers", "labels of texts".
std::string_view name(SampleForm form);

// The prompt around the messages.
enum class PromptRule : std::uint8_t {
  kNone,
  kSeed,           // AscendSpeed's (seed_prompt.h); the last answer is learned
  kSeedEveryTurn,  // the same; each turn is a sample that ends with it
  kBaichuan,       // ids 195 and 196 before the turns
  kNamed,          // --prompt-type, or the model's own template
  kPlain,          // the text with the tokenizer's special tokens
};

struct Handler {
  std::string_view name;
  RecordFormat format;
  SampleForm form;
  PromptRule prompt;
  std::string_view fields;  // RecordFields
};

const std::vector<Handler>& handlers();

// Throws Error(kUsage) for a name that is none, with all names.
const Handler& handler_named(const std::string& name);

// The handler that fits a record: by its keys messages, conversations, chosen and rejected,
// instruction, prompt, text. Of a record that has messages, and chosen and rejected too, the latter
// are read if pairs are `wanted`. Throws Error(kData) with the keys of a record that none fits.
const Handler& handler_of(const nlohmann::ordered_json& record,
                          std::optional<SampleForm> wanted = {});

// The names of the record's keys for a handler.
RecordFields fields_of(const Handler& handler, const std::string& map_keys);

// The conversation of a record. Throws Error(kData) with the reason why the record cannot be used:
// a key is missing or of another type, turns do not alternate. Asserts that the handler is not one
// of texts.
Conversation read_conversation(const Handler& handler, const RecordFields& fields,
                               const nlohmann::ordered_json& record);

// The text of a record, for AlpacaPretrainHandler and StackOverflowPythonPretrainHandler.
std::string read_text(const Handler& handler, const RecordFields& fields,
                      const nlohmann::ordered_json& record);

// The parts of the three files, or four: "input_ids", ... Empty for texts.
std::vector<std::string> sample_columns(SampleForm form);

}  // namespace piton
