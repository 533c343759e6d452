#include "generate/constraints/run_breakers.h"

#include <algorithm>

#include "generate/constraints/token_bytes.h"

namespace piton {
namespace {

using Tail = std::vector<std::int32_t>;

constexpr std::size_t kMostBytes = 40;  // of a text that are looked at, as llama.cpp has it
constexpr std::size_t kMostTail = 20;   // ids

void add(RunBreakers& breakers, std::int32_t id, const Tail& tail) {
  const auto [begin, end] = breakers.runs.equal_range(id);
  if (std::any_of(begin, end, [&](const auto& one) { return one.second == tail; })) return;
  breakers.runs.emplace(id, tail);
}

void add_breaker(RunBreakers& breakers, const Tokenizer& tokenizer, const TokenTree& tokens,
                 const std::string& text) {
  // Of the text without its first bytes; one for each end of a token that begins it.
  std::vector<Tail> tails(text.size());
  for (std::size_t first = 1; first < text.size(); ++first) {
    tails[first] = tokenizer.encode(text.substr(first));
    if (tails[first].size() > kMostTail) tails[first].resize(kMostTail);
  }
  for (std::int32_t id = 0; id < tokens.vocabulary(); ++id) {
    const std::string& word = tokenizer.is_special(id) ? tokenizer.piece(id) : tokens.bytes(id);
    if (word.find(text) != std::string::npos) {
      add(breakers, id, {});
      continue;
    }
    for (std::size_t length = 1; length < text.size() && length <= word.size(); ++length)
      if (word.ends_with(text.substr(0, length))) add(breakers, id, tails[length]);
  }
}

}  // namespace

std::shared_ptr<const RunBreakers> run_breakers(const Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts) {
  auto breakers = std::make_shared<RunBreakers>();
  const std::vector<std::string> usual{"\n", ":", "\"", "*"};
  if (texts == std::vector<std::string>{"none"}) return breakers;
  const TokenTree tokens(tokenizer, tokenizer.vocabulary_size());
  for (const std::string& text : texts.empty() ? usual : texts)
    if (!text.empty()) add_breaker(*breakers, tokenizer, tokens, text.substr(0, kMostBytes));
  return breakers;
}

}  // namespace piton
