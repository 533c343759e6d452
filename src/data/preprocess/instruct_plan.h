// What a run of preprocessing does with records of instruction data: the handler, the prompt and
// the lengths, from the options and from the first record.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/instruct/conversation_encoder.h"
#include "data/instruct/handlers.h"
#include "data/preprocess/preprocess_options.h"
#include "data/preprocess/sample_encoder.h"
#include "data/records/input_files.h"
#include "text/tokenizer.h"

namespace piton {

struct InstructPlan {
  const Handler* handler = nullptr;
  RecordFields fields{"", "", ""};
  std::shared_ptr<const ConversationEncoder> prompt;  // null for texts
  std::string prompt_name;                            // for reports; "" for texts
  KnownLabels labels;                                 // of texts with labels
  std::string chat_template;                          // of a named prompt, in Jinja
  std::string work;                                   // what determines the output, for the journal
};

// The plan, or nothing where the records are texts under --json-keys. Reports the choice and the
// first sample in the log. Throws Error(kUsage) for options that contradict each other or the
// tokenizer, Error(kData) if the first record fits no handler.
std::optional<InstructPlan> make_instruct_plan(const PreprocessOptions& options,
                                               const Tokenizer& tokenizer,
                                               const std::vector<InputFile>& files, Log& log);

// Names --pack, --mix-strategy and others that contradict each other: Error(kUsage).
void check_instruct_options(const PreprocessOptions& options);

// The columns to read: all records have `columns`, some `optional_columns`.
BlockReader::Rules reader_rules(const PreprocessOptions& options, const InstructPlan& plan);

}  // namespace piton
