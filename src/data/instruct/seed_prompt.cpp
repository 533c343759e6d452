#include "data/instruct/seed_prompt.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::string_view kSystem =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request. Please note that you need "
    "to think through your response logically and step by step.";

constexpr std::string_view kQuestion = "### Instruction:", kAnswer = "### Response:";

constexpr std::int32_t kBaichuanUser = 195, kBaichuanAssistant = 196;

}  // namespace

std::optional<std::size_t> ids_before(const Tokenizer& tokenizer,
                                      const std::vector<std::int32_t>& ids, std::string_view text,
                                      std::size_t at) {
  const DecodeOptions plain{.skip_special_tokens = true};
  if (tokenizer.decode(ids, plain) != text) return {};
  StreamDecoder decoder(tokenizer, plain);
  std::size_t shown = 0;  // bytes of the text that are certain
  std::size_t run = 0;    // ids since then that are a byte each
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool around = tokenizer.is_special(ids[i]);
    if (!around && shown + run >= at) return i;
    shown += decoder.push(ids[i]).size();
    run = tokenizer.open_ended(ids[i]) ? run + 1 : 0;
  }
  return ids.size();
}

SeedPrompt::SeedPrompt(const Tokenizer& tokenizer, SeedPromptRules rules)
    : tokenizer_(&tokenizer), rules_(rules) {
  PITON_ASSERT(!rules.append_eod || tokenizer.special().eod, "no end-of-document id");
}

SeedText seed_text(const Conversation& conversation, std::size_t count) {
  SeedText result;
  result.text = fmt::format("\n{}\n", kSystem);
  for (std::size_t i = 0; i < count; ++i) {
    const Message& message = conversation.messages[i];
    result.text += message.role == MessageRole::kUser ? kQuestion : kAnswer;
    result.text += '\n';
    result.answer = result.text.size();
    result.text += message.content + "\n";
  }
  return result;
}

std::string seed_chat_template(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> around;
  tokenizer.encode("\n", {.add_special_tokens = true}, around);
  const bool has_bos =
      tokenizer.special().bos && !around.empty() && around.front() == *tokenizer.special().bos;
  const std::string bos = has_bos ? tokenizer.piece(*tokenizer.special().bos) : "";
  return fmt::format(
      "{{% if tools %}}{{{{ raise_exception('this template cannot write tools') }}}}{{% endif %}}"
      "{{% if messages[0]['role'] == 'system' %}}"
      "{{% set system = messages[0]['content'] %}}{{% set turns = messages[1:] %}}"
      "{{% else %}}"
      "{{% set system = '{}' %}}{{% set turns = messages %}}"
      "{{% endif %}}"
      "{{{{ '{}\\n' + system + '\\n' }}}}"
      "{{% for message in turns %}}"
      "{{% if message['role'] == 'user' %}}"
      "{{{{ '{}\\n' + message['content'] + '\\n' }}}}"
      "{{% elif message['role'] == 'assistant' and not message['tool_calls'] %}}"
      "{{{{ '{}\\n' }}}}"
      "{{% generation %}}{{{{ message['content'] + '\\n' }}}}{{% endgeneration %}}"
      "{{% else %}}{{{{ raise_exception('this template has questions and answers alone') }}}}"
      "{{% endif %}}{{% endfor %}}"
      "{{% if add_generation_prompt %}}{{{{ '{}\\n' }}}}{{% endif %}}",
      kSystem, bos, kQuestion, kAnswer, kAnswer);
}

TaughtText SeedPrompt::sample(std::string text, std::size_t answer) const {
  const EncodeOptions around{.add_special_tokens = true};
  TaughtText sample;
  tokenizer_->encode(text, around, sample.ids);
  std::optional<std::size_t> source = ids_before(*tokenizer_, sample.ids, text, answer);
  if (!source) {
    // The tokenizer changes the text, so that places in it are unknown: encode the parts apart.
    sample.ids.clear();
    tokenizer_->encode(std::string_view(text).substr(0, answer), around, sample.ids);
    source = sample.ids.size();
    tokenizer_->encode(std::string_view(text).substr(answer), {}, sample.ids);
  }
  if (rules_.append_eod) sample.ids.push_back(*tokenizer_->special().eod);
  sample.labels = sample.ids;
  std::fill_n(sample.labels.begin(), *source, kIgnoredLabel);
  return rules_.lengths.cutoff ? cut_sample(sample, *rules_.lengths.cutoff) : sample;
}

std::vector<TaughtText> SeedPrompt::encode(const Conversation& conversation) const {
  std::vector<TaughtText> samples;
  const std::size_t count = conversation.messages.size();
  for (std::size_t end = rules_.every_turn ? 2 : count; end <= count; end += 2) {
    SeedText prompt = seed_text(conversation, end);
    samples.push_back(sample(std::move(prompt.text), prompt.answer));
  }
  return samples;
}

PromptTemplate baichuan_template(const Tokenizer& tokenizer) {
  PromptTemplate prompt = prompt_template("baichuan2", "");
  prompt.user =
      parse_slots(fmt::format("{{{{token {}}}}}{{{{content}}}}{{{{token {}}}}}",
                              tokenizer.piece(kBaichuanUser), tokenizer.piece(kBaichuanAssistant)));
  return prompt;
}

BaichuanPrompt::BaichuanPrompt(const Tokenizer& tokenizer, SeedPromptRules rules)
    : tokenizer_(&tokenizer), rules_(rules) {
  if (!tokenizer.special().eos || tokenizer.vocabulary_size() <= kBaichuanAssistant) {
    throw Error(Fault::kUsage,
                "--handler-name MOSSMultiTurnHandler writes Baichuan's ids {} and {} and "
                "its end-of-text token; the tokenizer ({}) lacks {}",
                kBaichuanUser, kBaichuanAssistant, tokenizer.name(),
                tokenizer.special().eos ? "these ids" : "such a token");
  }
}

std::vector<TaughtText> BaichuanPrompt::encode(const Conversation& conversation) const {
  const std::int32_t eos = *tokenizer_->special().eos;
  TaughtText sample;
  for (std::size_t i = 0; i < conversation.messages.size(); i += 2) {
    sample.ids.push_back(kBaichuanUser);
    sample.labels.push_back(eos);
    tokenizer_->encode(conversation.messages[i].content, {}, sample.ids);
    sample.ids.push_back(kBaichuanAssistant);
    sample.labels.resize(sample.ids.size(), kIgnoredLabel);
    tokenizer_->encode(conversation.messages[i + 1].content, {}, sample.ids);
    sample.labels.insert(sample.labels.end(), sample.ids.begin() + std::ssize(sample.labels),
                         sample.ids.end());
  }
  sample.ids.push_back(eos);
  sample.labels.push_back(eos);
  if (rules_.append_eod) {
    sample.ids.push_back(eos);
    sample.labels.push_back(eos);
  }
  return {rules_.lengths.cutoff ? cut_sample(sample, *rules_.lengths.cutoff) : sample};
}

}  // namespace piton
