#include "text/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>

namespace piton {
namespace {

std::string names(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : " ") + tokenizer.piece(id);
  return text;
}

}  // namespace

TextFrame frame_of(const Tokenizer& tokenizer) {
  // The ids of a text are between the two parts whatever it is.
  const std::vector<std::int32_t> plain = tokenizer.encode("a");
  const std::vector<std::int32_t> framed = tokenizer.encode("a", {.add_special_tokens = true});
  const auto inside = std::search(framed.begin(), framed.end(), plain.begin(), plain.end());
  TextFrame frame;
  if (inside == framed.end()) return frame;
  frame.before.assign(framed.begin(), inside);
  frame.after.assign(inside + static_cast<std::ptrdiff_t>(plain.size()), framed.end());
  return frame;
}

std::string describe_frame(const Tokenizer& tokenizer) {
  const TextFrame frame = frame_of(tokenizer);
  const std::string before = names(frame.before, tokenizer);
  const std::string after = names(frame.after, tokenizer);
  if (frame.empty()) return "none";
  if (after.empty()) return before + " before a text";
  if (before.empty()) return after + " after a text";
  return before + " before a text, " + after + " after it";
}

SpecialTokensRule rule_of(const SpecialTokensOptions& options, const SpecialTokensRule& otherwise) {
  if (!options.add) return otherwise;
  return {.add = *options.add, .why = options.flag()};
}

std::string describe_rule(const SpecialTokensRule& rule, const Tokenizer& tokenizer) {
  const std::string frame = describe_frame(tokenizer);
  const bool asked = rule.why == SpecialTokensOptions{.add = rule.add}.flag();
  if (frame == "none") {
    return asked && rule.add ? "special tokens: none, as the tokenizer has none around a text" : "";
  }
  if (rule.add) return fmt::format("special tokens: {} ({})", frame, rule.why);
  if (asked) return fmt::format("special tokens: none ({})", rule.why);
  return fmt::format("special tokens: none ({}; the tokenizer's own setting: {})", rule.why, frame);
}

}  // namespace piton
