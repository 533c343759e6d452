#include "cli/compatibility/pipeline_layout.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr std::size_t kLongest = 1 << 16;  // letters, after repetition

// Reads the text letter by letter.
class LayoutText {
 public:
  explicit LayoutText(std::string_view text) : text_(text) {}

  std::string unrolled() {
    std::string plain(text_);
    std::erase(plain, ',');
    return repeat_letters(repeat_groups(plain));
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) const {
    throw Error(Fault::kUsage, "--pipeline-model-parallel-layout: got \"{}\": {}", text_,
                fmt::format(what, std::forward<Args>(args)...));
  }

 private:
  // (...)*N, which are not within each other.
  std::string repeat_groups(const std::string& text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '(') {
        result += text[at];
        continue;
      }
      const std::size_t end = text.find(')', at);
      if (end == std::string::npos || end == at + 1 || end + 1 >= text.size() ||
          text[end + 1] != '*') {
        refuse("wanted (...)*N behind \"{}\"", text.substr(0, at));
      }
      const std::string group = text.substr(at + 1, end - at - 1);
      at = end + 1;
      append(result, group, number_behind(text, at));
    }
    return result;
  }

  // x*N
  std::string repeat_letters(const std::string& text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (at + 1 >= text.size() || text[at + 1] != '*') {
        result += text[at];
        continue;
      }
      const std::string letter(1, text[at]);
      ++at;
      append(result, letter, number_behind(text, at));
    }
    return result;
  }

  // The number behind the asterisk at `at`, which becomes the place of its last digit.
  std::size_t number_behind(const std::string& text, std::size_t& at) const {
    std::size_t number = 0;
    const char* const begin = text.data() + at + 1;
    const auto [end, code] = std::from_chars(begin, text.data() + text.size(), number);
    if (code != std::errc() || number > kLongest) {
      refuse("wanted a number of at most {} behind \"{}\"", kLongest, text.substr(0, at + 1));
    }
    at = static_cast<std::size_t>(end - text.data()) - 1;
    return number;
  }

  void append(std::string& result, const std::string& part, std::size_t times) const {
    if (result.size() + part.size() * times > kLongest)
      refuse("has more than {} letters when it is repeated", kLongest);
    for (std::size_t i = 0; i < times; ++i) result += part;
  }

  std::string_view text_;
};

}  // namespace

std::vector<std::int64_t> layers_of_layout(std::string_view layout) {
  LayoutText text(layout);
  const std::string letters = text.unrolled();
  std::vector<std::int64_t> counts{0};
  for (const char letter : letters) {
    if (letter == '|') {
      counts.push_back(0);
    } else if (letter == 't') {
      ++counts.back();
    } else if (letter == 'm') {
      text.refuse("m is a layer that predicts further tokens, which no model here has");
    } else if (letter != 'E' && letter != 'L') {
      text.refuse("wanted E, t, L, | and repetitions of them, not \"{}\"", letter);
    }
  }
  std::string order = letters;
  std::erase(order, '|');
  if (order.empty() || order.front() != 'E' || std::ranges::count(order, 'E') != 1)
    text.refuse("wanted the embedding, E, once, before all others");
  if (order.back() != 'L' || std::ranges::count(order, 'L') != 1)
    text.refuse("wanted the loss, L, once, behind all others");
  const auto empty = std::ranges::find(counts, 0);
  if (empty != counts.end()) {
    text.refuse("chunk {} of {} has no transformer layer, and every one needs one",
                empty - counts.begin(), counts.size());
  }
  return counts;
}

}  // namespace piton::cli
