// What generate continues: a text, ids, or a file of prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/model.h"
#include "base/log.h"
#include "base/options/options.h"
#include "text/special_tokens.h"

namespace piton::cli {

struct PromptOptions {
  std::string prompt;
  std::string prompt_ids_text;
  std::string prompt_file;
  std::string prompts;
  std::string ids_file;
  std::int64_t prompts_at_once = 8;
  SpecialTokensOptions special_tokens;

  // `text_given`: --prompt was.
  bool reads_standard_input(bool text_given) const {
    if (prompt_ids_text.empty() && prompt_file.empty() && !many())
      return !text_given || prompt == "-";
    return prompt_file == "-" || prompts == "-" || ids_file == "-";
  }
  // A file of several.
  bool many() const { return !prompts.empty() || !ids_file.empty(); }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"prompt",
             "text to continue; special tokens in it become their ids (- or not given: standard "
             "input; \"\": start from the model's first token)",
             {.placeholder = "TEXT"}},
      prompt);
    v(Option{"prompt-ids", "token ids to continue, separated by commas", {.placeholder = "1,2,3"}},
      prompt_ids_text);
    v(Option{"prompt-file", "file with the text to continue", {.placeholder = "FILE"}},
      prompt_file);
    v(Option{"prompts",
             "file with one prompt per line: text, or in a .jsonl file a JSON string or an object "
             "with \"prompt\" (and \"model\", one of --lora-modules); prints one JSON object per "
             "prompt",
             {.placeholder = "FILE"}},
      prompts);
    v(Option{"ids-file",
             "JSON file with lists of token ids to continue; prints one JSON object per list",
             {.placeholder = "F.json"}},
      ids_file);
    v(Option{"prompts-at-once",
             "number of --prompts or lists of --ids-file that are continued at the same time"},
      prompts_at_once);
    special_tokens.visit(v);
  }
};

struct Prompt {
  std::string text;  // "" where ids were given
  std::vector<std::int32_t> ids;
  std::optional<std::int64_t> adapter = {};  // Model::adapter_names(); nothing: none of them
  std::uint64_t first_draw = 0;              // DecodingRequest::draw of its first continuation
};

// Before a model is read. Throws Error(kUsage) for several ways to say a prompt at once.
// `text_given`: --prompt was.
void check_one_way(const PromptOptions& options, bool text_given);

// In order, one but for --prompts and --ids-file. `text_given`: --prompt was. `log` receives the
// rule for special tokens. `name`: by which a line of --prompts names the model without an adapter.
// Throws Error(kUsage) for none and for several ways at once, Error(kData) for a file that holds
// none, and for a line that names another model.
std::vector<Prompt> read_prompts(const PromptOptions& options, bool text_given, const Model& model,
                                 const std::string& name, Log& log);

}  // namespace piton::cli
