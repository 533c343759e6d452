// The reasoning that a model writes before its answer: <think> ... </think>, as DeepSeek-R1, Qwen 3
// and GLM-4.5 do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace piton {

inline constexpr std::string_view kReasoningOpen = "<think>";
inline constexpr std::string_view kReasoningClose = "</think>";

enum class ReasoningPlace : std::uint8_t {
  kNone,      // all is answer
  kMayBegin,  // reasoning if the text begins with <think>
  kInside,    // the prompt ends with <think>
};

// What follows a prompt that a chat template has written; `source`: of the template. kNone if
// neither word is in it.
ReasoningPlace reasoning_after(std::string_view prompt, std::string_view source);

// A text that grows part by part. White space around reasoning, and before the answer after it, is
// in neither.
class ReasoningText {
 public:
  explicit ReasoningText(ReasoningPlace place)
      : place_(place), skips_space_(place != ReasoningPlace::kNone) {}

  struct Parts {
    std::string reasoning;
    std::string answer;
  };
  // What is certain after this part. What may be one of the two words is withheld.
  Parts push(std::string_view part);
  // The rest.
  Parts finish();
  // Whether what comes next is reasoning.
  bool is_inside() const { return place_ == ReasoningPlace::kInside; }

 private:
  bool open();                // <think> at the beginning; false: more text is needed
  void reason(Parts& parts);  // up to </think>

  ReasoningPlace place_;
  bool skips_space_;  // before the first word of reasoning, or of the answer after it
  std::string held_;
};

}  // namespace piton
