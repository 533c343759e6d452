// A model of bytes for tests of the server: a function writes the texts.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "serve/served_model.h"
#include "text/files/byte_tokenizer.h"

namespace piton::test {

// Writes one byte of each text in a pass. Under a constraint, a byte that is not allowed becomes
// the largest one that is.
class ScriptedEngine final : public DecodingEngine {
 public:
  std::function<std::string(const std::string& prompt, std::uint64_t draw)> write =
      [](const std::string&, std::uint64_t) { return "ok"; };
  std::vector<std::string> by_adapter;  // what texts with each adapter are
  std::chrono::milliseconds delay{0};   // of a pass
  std::int64_t fails_after = 1 << 30;   // passes
  std::int64_t cancelled = 0;
  std::int64_t reused = 0;  // tokens of each prompt

  std::int64_t submit(DecodingRequest request) override {
    std::string prompt;
    for (const std::int32_t id : request.prompt) prompt += static_cast<char>(id);
    if (prompt == "refuse") throw Error(Fault::kUsage, "generate: refused");
    if (request.only_scores() && prompt[0] == '!') throw Error(Fault::kUsage, "score: refused");
    std::string whole = request.adapter ? by_adapter.at(static_cast<std::size_t>(*request.adapter))
                                        : write(prompt, request.draw);
    Text text{std::move(whole), 0, std::move(request)};
    counts_.prompt_tokens += std::ssize(text.request.prompt);
    texts_.emplace(submitted_, std::move(text));
    return submitted_++;
  }
  void cancel(std::int64_t request) override {
    cancelled += static_cast<std::int64_t>(texts_.erase(request));
  }
  std::vector<DecodingEvent> step() override {
    std::this_thread::sleep_for(delay);
    if (counts_.passes++ >= fails_after) throw Error(Fault::kData, "generate: the weights are bad");
    std::vector<DecodingEvent> events;
    for (auto at = texts_.begin(); at != texts_.end();) {
      events.push_back(next(at->first, at->second));
      events.back().reused_tokens = reused;
      at = events.back().finish == FinishReason::kNone ? std::next(at) : texts_.erase(at);
    }
    counts_.generated_tokens += std::ssize(events);
    return events;
  }
  bool idle() const override { return texts_.empty(); }
  DecodingCounts counts() const override { return counts_; }

 private:
  struct Text {
    std::string whole;
    std::size_t at = 0;
    DecodingRequest request;
  };

  static DecodingEvent scored(std::int64_t number, const DecodingRequest& request) {
    DecodingEvent event{
        .request = number, .token = {{-1, 0}, {}}, .finish = FinishReason::kLength, .scored = {}};
    for (auto at = request.prompt.begin() + request.scored_from; at != request.prompt.end(); ++at) {
      GeneratedToken& token = event.scored.emplace_back(GeneratedToken{{*at, -1.0}, {}});
      for (std::int64_t i = 0; i < request.sampling.log_probabilities.value_or(0); ++i)
        token.likeliest.push_back({static_cast<std::int32_t>('a' + i), -1.0 - i});
    }
    return event;
  }

  static DecodingEvent next(std::int64_t number, Text& text) {
    if (text.request.only_scores()) return scored(number, text.request);
    DecodingEvent event{.request = number};
    std::int32_t id = text.at < text.whole.size() ? static_cast<std::uint8_t>(text.whole[text.at])
                                                  : ByteTokenizer::kEndOfDocument;
    TokenConstraint* constraint = text.request.constraint.get();
    if (constraint != nullptr && text.at == 0 && constraint->done()) {
      event.token = {{-1, 0}, {}};
      event.finish = FinishReason::kStop;
      return event;
    }
    if (constraint != nullptr) {
      std::vector<bool> allowed(ByteTokenizer::kVocabularySize);
      constraint->allow(allowed);
      for (std::int32_t other = ByteTokenizer::kEndOfDocument; !allowed[id]; --other) {
        if (allowed[other]) id = other;
      }
      constraint->advance(id);
    }
    ++text.at;
    event.token.id = id;
    event.token.log_probability = -0.5;
    for (std::int64_t i = 0; i < text.request.sampling.log_probabilities.value_or(0); ++i)
      event.token.likeliest.push_back({static_cast<std::int32_t>('a' + i), -0.5 - i});
    if (id == ByteTokenizer::kEndOfDocument || (constraint != nullptr && constraint->done())) {
      event.finish = FinishReason::kStop;
    } else if (static_cast<std::int64_t>(text.at) >= text.request.sampling.max_new_tokens) {
      event.finish = FinishReason::kLength;
    }
    return event;
  }

  std::map<std::int64_t, Text> texts_;
  std::int64_t submitted_ = 0;
  DecodingCounts counts_;
};

class ScriptedServedModel final : public ServedModel {
 public:
  ScriptedEngine engine_of_it;
  std::vector<std::string> adapter_names;
  std::optional<std::int32_t> bos;  // before each prompt
  bool is_reward_model = false;     // whose reward is the number of tokens
  // Of a classifier: the last logit is the number of tokens, the others are 0. Of one label the
  // number is that of the tokens of the pair.
  std::vector<std::string> names_of_labels;
  bool has_several_labels = false;
  ChatTemplate template_of_it{
      "{%- if messages[0].content == 'raise' %}{{ raise_exception('no') }}{% endif -%}"
      "{%- for t in tools or [] %}T:{{ t.function.name }};{% endfor -%}"
      "{%- for m in messages %}{{ m.role }}:{{ m.content }}"
      "{%- for c in m.tool_calls or [] %}{{ c.function.name }}={{ c.function.arguments | tojson }}"
      "{%- endfor %};{% endfor -%}"
      "{%- if add_generation_prompt %}assistant:{% endif -%}",
      nlohmann::ordered_json::object(), "test.jinja"};

  const std::string& name() const override { return name_; }
  const std::vector<std::string>& adapters() const override { return adapter_names; }
  std::shared_ptr<const Tokenizer> other_tokenizer;  // instead of bytes
  const Tokenizer& tokenizer() const override {
    return other_tokenizer ? *other_tokenizer : tokenizer_;
  }
  std::int64_t vocabulary() const override { return ByteTokenizer::kVocabularySize; }
  std::int64_t longest_sequence() const override { return 200; }
  const std::vector<std::int32_t>& ends() const override { return ends_; }
  std::vector<std::int32_t> encode_prompt(const std::string& text) const override {
    std::vector<std::int32_t> ids = tokenizer_.encode(text);
    if (bos) ids.insert(ids.begin(), *bos);
    return ids;
  }
  bool gives_rewards() const override { return is_reward_model; }
  const ChatTemplate* chat_template(bool) const override { return &template_of_it; }
  DecodingEngine& engine() override { return engine_of_it; }
  const std::vector<std::string>& labels() const override { return names_of_labels; }
  bool several_labels() const override { return has_several_labels; }
  TextToEmbed read_text(const std::string& text,
                        const std::optional<std::string>& pair) const override {
    if (text.empty()) throw Error(Fault::kData, "it has no tokens");
    TextToEmbed read{.ids = encode_prompt(text), .adapter = {}, .types = {}};
    read.types.resize(read.ids.size(), 0);
    if (!pair) return read;
    const std::vector<std::int32_t> ids = encode_prompt(*pair);
    read.ids.insert(read.ids.end(), ids.begin(), ids.end());
    read.types.resize(read.ids.size(), 1);
    return read;
  }
  std::vector<std::vector<float>> embed(std::span<const TextToEmbed> texts) override {
    std::vector<std::vector<float>> vectors;
    for (const TextToEmbed& text : texts) vectors.push_back(vector_of(text));
    return vectors;
  }

 private:
  // 3 and 4 times the first id, so that the direction is always the same.
  std::vector<float> vector_of(const TextToEmbed& text) const {
    if (text.ids.at(0) == '!') throw Error(Fault::kUsage, "score: refused");
    if (is_reward_model) return {static_cast<float>(text.ids.size())};
    if (!names_of_labels.empty()) {
      std::vector<float> logits(names_of_labels.size(), 0.0F);
      const auto of_pair = static_cast<float>(std::ranges::count(text.types, 1));
      logits.back() = names_of_labels.size() == 1 ? of_pair : static_cast<float>(text.ids.size());
      return logits;
    }
    const auto first = static_cast<float>(text.ids[0]);
    if (text.adapter) return {-4 * first, 3 * first};
    return {3 * first, -4 * first};
  }

  std::string name_ = "scripted";
  ByteTokenizer tokenizer_;
  std::vector<std::int32_t> ends_ = {ByteTokenizer::kEndOfDocument};
};

}  // namespace piton::test
