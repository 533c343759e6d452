// Answers of the model of a run to fixed prompts (train/run/sample_prompt_options.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "session/session.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_plan.h"
#include "train/sinks/metrics.h"

namespace piton {

// What prompts are read with.
struct PromptReading {
  const Tokenizer& tokenizer;
  // Of the tokenizer's folder, and the Jinja of the corpora, which comes first; "": none.
  ChatTemplateFiles templates;
  std::string own_template;
  std::vector<std::int32_t> ends;   // of a text; those of the templates' turns are added
  bool adds_special_tokens = true;  // to prompts that are no conversations
  std::int64_t sequence = 0;        // most tokens of a prompt with its answer
};

class SamplePrompts {
 public:
  // Reads the file: .json and .jsonl hold conversations (text/chat/conversations.h), others a
  // prompt on each line. Throws Error(kData) for a file without prompts or one that cannot be read,
  // and Error(kUsage) for a prompt that leaves no room, naming it.
  SamplePrompts(const SamplePromptOptions& options, const PromptReading& reading);

  // The most likely continuations, of the weights as they are, without dropout. They end where
  // those of `piton chat` do. Collective over all ranks, which get the same.
  std::vector<PromptAnswer> answers(Session& session, const Tokenizer& tokenizer) const;

 private:
  void read_conversations_of(const std::string& text, const PromptReading& reading);
  void read_lines(const std::string& text, const PromptReading& reading);

  SamplePromptOptions options_;
  std::vector<std::string> prompts_;            // as they are shown
  std::vector<std::vector<std::int32_t>> ids_;  // of each
  std::vector<std::int32_t> ends_;              // of an answer
};

// What prompts of a run are opened with.
struct RunPrompts {
  const PretrainOptions& options;  // settled
  const RunPlan& plan;
  const Tokenizer* tokenizer = nullptr;  // null: the run has none
  const ModelChatTemplates& templates;
  std::string own_template;  // PromptReading::own_template
  bool adds_special_tokens = true;
};

// Reads the file of --sample-prompts. Throws Error(kUsage) for a run that cannot answer, and as
// SamplePrompts().
std::unique_ptr<SamplePrompts> open_sample_prompts(const RunPrompts& run);

}  // namespace piton
