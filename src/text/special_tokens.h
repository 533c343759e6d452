// The special tokens around a text (<s>, [CLS] .. [SEP]): which ones a tokenizer adds, and whether
// a command does. The rule is the same for all commands:
//
//   1. --add-special-tokens and --no-add-special-tokens decide.
//   2. A corpus has none, as Megatron's; its card says what was done.
//   3. A text for a run is encoded as the run's corpus was.
//   4. A text for another model, or for a run whose corpus is not known, by the tokenizer's own
//      setting (tokenizer_config.json, tokenizer.json, tokenizer.ggml.add_bos_token).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "text/tokenizer.h"

namespace piton {

struct SpecialTokensOptions {
  std::optional<bool> add;  // unset: by the rule above

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"add-special-tokens",
             "add the tokens that the tokenizer puts around a text (<s>, [CLS] ... [SEP]), or add "
             "none (default: as the run's corpus, else the tokenizer's own setting)",
             {.negation = "no-add-special-tokens"}},
      add);
  }
  // The flag that was given.
  std::string flag() const {
    return add.value_or(true) ? "--add-special-tokens" : "--no-add-special-tokens";
  }
};

// What a tokenizer adds around a text by its own setting.
struct TextFrame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool empty() const { return before.empty() && after.empty(); }
};
TextFrame frame_of(const Tokenizer& tokenizer);
// "<s> before a text, </s> after it"; "none".
std::string describe_frame(const Tokenizer& tokenizer);

struct SpecialTokensRule {
  bool add = true;
  std::string why = "the tokenizer's own setting";
};

// `otherwise`: the rule if no flag was given.
SpecialTokensRule rule_of(const SpecialTokensOptions& options, const SpecialTokensRule& otherwise);

// "special tokens: <s> before a text (the tokenizer's own setting)", for the log; "" if the
// tokenizer adds none and nobody asked for any.
std::string describe_rule(const SpecialTokensRule& rule, const Tokenizer& tokenizer);

}  // namespace piton
