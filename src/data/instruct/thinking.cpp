#include "data/instruct/thinking.h"

#include <fmt/ranges.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::array kEveryThinking = {Thinking::kKept, Thinking::kRemoved, Thinking::kAsGiven};

}  // namespace

std::string_view name(Thinking thinking) {
  switch (thinking) {
    case Thinking::kAsGiven:
      return "none";
    case Thinking::kKept:
      return "true";
    case Thinking::kRemoved:
      return "false";
  }
  PITON_ASSERT(false, "thinking {}", static_cast<int>(thinking));
  return "";
}

BoundOption bind_option(Option option, Thinking& value) {
  for (const Thinking one : kEveryThinking) option.rules.choices.emplace_back(name(one));
  BoundOption bound;
  bound.option = option;
  bound.is_flag = true;
  bound.set = [option, &value](const std::vector<std::string>& words) {
    for (const Thinking one : kEveryThinking) {
      if (words.size() != 1 || words.front() != name(one)) continue;
      value = one;
      return;
    }
    throw Error(Fault::kUsage, "--{}: got \"{}\", wanted true, false or none", option.name,
                fmt::join(words, " "));
  };
  bound.toml = [&value] {
    return value == Thinking::kAsGiven ? std::string() : std::string(name(value));
  };
  bound.type = [] { return std::string("true, false or none"); };
  return bound;
}

}  // namespace piton
