// A model of bytes for tests of evaluations: a function says how likely a continuation is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evaluate/evaluated_model.h"
#include "text/files/byte_tokenizer.h"

namespace piton::test {

class ScriptedModel final : public EvaluatedModel {
 public:
  // The log-likelihood of `continuation` after `context`, and the text that follows a prompt.
  std::function<double(const std::string& context, const std::string& continuation)> likelihood =
      [](const std::string&, const std::string& text) { return -1.0 * std::ssize(text); };
  std::function<std::string(const std::string& prompt)> answer = [](const std::string&) {
    return "";
  };
  // The same where answers are drawn.
  std::function<std::string(const std::string& prompt, std::uint64_t draw)> drawn;
  std::function<double(const std::string& text)> reward = [](const std::string& text) {
    return static_cast<double>(std::ssize(text));
  };
  std::int64_t longest = 4096;
  std::int64_t scored = 0;
  std::int64_t generated = 0;
  std::int64_t fails_after = 1'000'000;  // requests

  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  bool adds_special_tokens() const override { return false; }
  std::int64_t longest_sequence() const override { return longest; }

  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    std::vector<ContinuationScore> scores;
    for (const ContinuationRequest& one : requests) {
      const std::span<const std::int32_t> ids(one.ids);
      const double value = likelihood(tokenizer_->decode(ids.first(one.given)),
                                      tokenizer_->decode(ids.subspan(one.given)));
      scores.push_back({.log_likelihood = value, .greedy = value > -1});
    }
    if (scored >= fails_after) throw std::runtime_error("killed");
    scored += std::ssize(requests);
    return scores;
  }
  std::int64_t computed_tokens() const override { return 3 * scored; }
  std::vector<double> rewards(std::span<const std::vector<std::int32_t>> texts) override {
    std::vector<double> all;
    for (const auto& ids : texts) all.push_back(reward(tokenizer_->decode(ids)));
    if (scored >= fails_after) throw std::runtime_error("killed");
    scored += std::ssize(texts);
    return all;
  }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd&, const AnswerDraws& draws) override {
    std::vector<std::string> texts;
    for (const auto& prompt : prompts) texts.push_back(answer(tokenizer_->decode(prompt)));
    for (std::size_t i = 0; i < draws.draws.size(); ++i)
      texts[i] = drawn(tokenizer_->decode(prompts[i]), draws.draws[i]);
    if (generated >= fails_after) throw std::runtime_error("killed");
    generated += std::ssize(prompts);
    return texts;
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_ = std::make_unique<ByteTokenizer>();
};

}  // namespace piton::test
