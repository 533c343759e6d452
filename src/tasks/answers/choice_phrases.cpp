#include "tasks/answers/choice_phrases.h"

#include <fmt/format.h>

#include <vector>

#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"

namespace piton {
namespace {

constexpr std::string_view kChoices = "ABCD";

// Phrases with the letter after any white space, or after one character of it at most.
constexpr const char* kBeforeLetter[] = {
    "答案是?",          "答案是?\\s*：", "答案是?\\s*:", "答案选项应?该?是",
    "答案选项应?该?为", "答案应该?是",   "答案应该?选",  "答案选项为?\\s*：",
    "答案选项是?\\s*:", "答案为",        "答案选",       "选择?",
};
constexpr const char* kCloseBeforeLetter[] = {
    "说法不?对选?项?的?是",
    "说法不?正确选?项?的?是",
    "说法错误选?项?的?是",
    "所以答",
};

// Whole expressions.
constexpr const char* kConclusions[] = {
    "所以\\s?[A-D][.。$]?$",
    "所有\\s?[A-D][.。$]?$",
    "Answer:\\s*\\n\\s*[A-D]",
    "(?i)ANSWER\\s*:\\s*[ABCD]",
    "[\\s，：:,][A-D][。，,.]?$",
    "[\\s，,：:][故即][A-D][。.]?$",
    "[\\s，,：:]因此[A-D][。.]?$",
    "[是为。]\\s?[A-D][。.]?$",
    "因此\\s?[A-D][。.]?$",
    "显然\\s?[A-D][。.]?$",
    "答案是\\s?\\S+(?:。|$)",
    "答案应该是\\s?\\S+(?:。|$)",
    "答案为\\s?\\S+(?:。|$)",
    "[Tt]he answer is:?\\s+\\(?[A-D]\\)?",
    "[Tt]he answer is option:?\\s+\\(?[A-D]\\)?",
    "[Tt]he correct answer is:?\\s+\\(?[A-D]\\)?",
    "[Tt]he correct answer is option:?\\s+\\(?[A-D]\\)?",
    "[Tt]he answer to the question is:?\\s+\\(?[A-D]\\)?",
    "^选项\\s?[A-D]",
    "1.\\s?.*?$",
    "1.\\s?[A-D][.。$]?$",
    "[A-D]",
};

std::vector<Pattern> make_patterns() {
  std::vector<Pattern> patterns;
  // As re.DOTALL.
  const auto add = [&](const std::string& text) { patterns.emplace_back("(?s)" + text, "phrase"); };
  for (const char* phrase : kBeforeLetter) add(fmt::format("{}\\s*[A-D]", phrase));
  for (const char* phrase : kCloseBeforeLetter) add(fmt::format("{}\\s?[A-D]", phrase));
  for (const char* text : kConclusions) add(text);
  return patterns;
}

}  // namespace

std::string choice_after_phrases(std::string_view text) {
  static const std::vector<Pattern> kPatterns = make_patterns();
  const std::string answer =
      python_replaced(text, "Answer the question by replying A, B, C or D.", "");
  const std::string_view bare = python_stripped(answer);
  for (const Pattern& pattern : kPatterns) {
    const auto matches = pattern.matches(bare);
    if (matches.empty()) continue;
    const char last = bare[matches.front().second - 1];
    if (kChoices.find(last) != kChoices.npos) return std::string(1, last);
  }
  return "";
}

}  // namespace piton
