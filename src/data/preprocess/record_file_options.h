// Options of a run whose --data-path names files of conversations: how they become samples. They
// are those of `piton preprocess`.
#pragma once

#include <string>

#include "base/options/options.h"
#include "data/instruct/thinking.h"

namespace piton {

struct RecordFileOptions {
  std::string handler_name = "auto";
  std::string prompt_type;
  std::string prompt_type_path;
  std::string map_keys;
  Thinking thinking = Thinking::kAsGiven;

  // Configurations of earlier versions have "enable-thinking = false", the default then.
  bool keeps_thoughts() const { return thinking == Thinking::kKept; }
  bool given() const {
    return handler_name != "auto" || !prompt_type.empty() || !prompt_type_path.empty() ||
           !map_keys.empty() || keeps_thoughts();
  }

  template <typename Visitor>
  void visit(Visitor&& v) {
    const auto rules = [](const char* placeholder) {
      return OptionRules{.resume = Resume::kMustMatch, .placeholder = placeholder};
    };
    v(Option{"handler-name",
             "how records of files in --data-path are read: auto (from the first record), or a "
             "handler; see docs/instruction_data.md",
             rules("NAME")},
      handler_name);
    v(Option{"prompt-type",
             "named template of the prompt around records of files in --data-path (default: the "
             "chat template of the model)",
             rules("NAME")},
      prompt_type);
    v(Option{"prompt-type-path",
             "JSON file with the template that --prompt-type names",
             {.placeholder = "FILE"}},  // the samples that are made with it are compared
      prompt_type_path);
    v(Option{"map-keys",
             "JSON object that maps keys to their names in files of --data-path: "
             "{\"prompt\": \"question\"}; needs --handler-name",
             rules("JSON")},
      map_keys);
    v(
        Option{
            "enable-thinking",
            "reasoning templates (qwen3): learn the thoughts of answers in files of --data-path, "
            "and an empty one where there is none (true, or no value), remove thoughts (false), or "
            "learn those that there are (none, the default)"},
        thinking);  // the samples that are made with it are compared
  }
};

}  // namespace piton
