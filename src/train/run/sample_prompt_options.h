// Prompts that a run answers at each evaluation, so that one sees what it learns.
#pragma once

#include <cstdint>
#include <string>

#include "base/options/options.h"

namespace piton {

struct SamplePromptOptions {
  std::string file;
  std::int64_t max_new_tokens = 64;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"sample-prompts",
             "file of prompts to answer at each evaluation: conversations in JSON or JSON lines, "
             "or a prompt on each line; answers are in metrics.jsonl and the report",
             {.placeholder = "FILE"}},
      file);
    v(Option{"sample-prompts-tokens", "largest number of tokens of an answer to --sample-prompts"},
      max_new_tokens);
  }
};

}  // namespace piton
