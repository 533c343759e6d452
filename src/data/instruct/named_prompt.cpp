#include "data/instruct/named_prompt.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kEmptyThought = "<think>\n\n</think>\n\n";

bool has_thought(const std::string& text) {
  return text.find(kThink) != text.npos || text.find(kThinkEnd) != text.npos;
}

// Without every <think>..</think>, and without line ends before the rest.
std::string without_thoughts(std::string text) {
  std::size_t open = 0;
  while ((open = text.find(kThink, open)) != text.npos) {
    const std::size_t close = text.find(kThinkEnd, open);
    if (close == text.npos) break;
    text.erase(open, close + kThinkEnd.size() - open);
  }
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

// A slot cut at its placeholders, views of `slot` and `values`. Each is replaced once, as upstream.
std::vector<ElementPart> parts_of(std::string_view slot, const Values& values) {
  std::vector<ElementPart> parts{{slot, false}};
  for (const auto& [name, value] : values) {
    const std::string mark = "{{" + name + "}}";
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].is_content) continue;
      const std::string_view text = parts[i].text;
      const std::size_t at = text.find(mark);
      if (at == text.npos) continue;
      parts[i].text = text.substr(0, at);
      parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                   {{value, true}, {text.substr(at + mark.size()), false}});
      break;
    }
  }
  return parts;
}

}  // namespace

NamedPrompt::NamedPrompt(PromptTemplate prompt, const Tokenizer& tokenizer, NamedPromptRules rules)
    : prompt_(std::move(prompt)), tokenizer_(&tokenizer), rules_(rules), special_(tokenizer) {
  const auto require = [&](const std::string& token, std::string_view what) {
    if (const auto id = tokenizer.id_of(token)) return *id;
    throw Error(Fault::kUsage,
                "--prompt-type {}: the tokenizer ({}) has no token {}, {}; the template "
                "is for other models",
                prompt_.name, tokenizer.name(), token, what);
  };
  eos_ = tokenizer.special().eos ? tokenizer.special().eos : tokenizer.special().eod;
  if (prompt_.replace_eos) {
    if (prompt_.stop_words.empty()) {
      throw Error(Fault::kUsage,
                  "--prompt-type {}: replace_eos needs a stop word; the template has "
                  "none",
                  prompt_.name);
    }
    eos_ = require(prompt_.stop_words[0], "which ends a turn");
  }
  bool needs_eos = prompt_.efficient_eos;
  for (const Slots* slots : {&prompt_.prefix, &prompt_.system, &prompt_.user, &prompt_.assistant,
                             &prompt_.function, &prompt_.observation, &prompt_.separator}) {
    for (const Slot& slot : *slots) {
      if (slot.kind == Slot::Kind::kToken) require(slot.text, "which it writes");
      needs_eos = needs_eos || slot.kind == Slot::Kind::kEos;
    }
  }
  if (needs_eos && !eos_) {
    throw Error(Fault::kUsage,
                "--prompt-type {}: the tokenizer ({}) has no end-of-text token, which "
                "ends a turn",
                prompt_.name, tokenizer.name());
  }
}

void NamedPrompt::add_slots(const Slots& slots, const Values& values,
                            std::vector<std::int32_t>& ids) const {
  for (const Slot& slot : slots) {
    switch (slot.kind) {
      case Slot::Kind::kText:
        special_.encode(parts_of(slot.text, values), ids);
        break;
      case Slot::Kind::kToken:
        ids.push_back(*tokenizer_->id_of(slot.text));
        break;
      case Slot::Kind::kBos:
        if (tokenizer_->special().bos) ids.push_back(*tokenizer_->special().bos);
        break;
      case Slot::Kind::kEos:
        ids.push_back(*eos_);
        break;
    }
  }
}

// `before`: text in front of the user's, inside the same slot.
void NamedPrompt::add_message(const Message& message, std::size_t index, const std::string& before,
                              std::vector<std::int32_t>& ids) const {
  switch (message.role) {
    case MessageRole::kUser:
      add_slots(prompt_.user,
                {{"content", before + message.content}, {"idx", std::to_string(index / 2)}}, ids);
      return;
    case MessageRole::kObservation:
      add_slots(prompt_.observation, {{"content", message.content}}, ids);
      return;
    case MessageRole::kAssistant:
      add_slots(prompt_.assistant, {{"content", message.content}}, ids);
      return;
    case MessageRole::kFunction:
      break;
  }
  const ToolCalls calls = tool_calls(message.content);
  if (!message.said.empty()) {
    throw Error(Fault::kData, "the template {} cannot write a text before a tool call",
                prompt_.name);
  }
  if (prompt_.tools == ToolFormat::kQwen) {
    add_slots(prompt_.function, {{"content", qwen_calls(calls)}}, ids);
    return;
  }
  if (calls.calls.size() != 1 || !calls.thought.empty()) {
    throw Error(Fault::kData, "the template {} cannot write {}", prompt_.name,
                calls.thought.empty() ? "several tool calls in one message"
                                      : "a thought before a tool call");
  }
  add_slots(prompt_.function,
            {{"name", calls.calls[0].name}, {"arguments", calls.calls[0].arguments}}, ids);
}

void NamedPrompt::remove_thoughts(std::vector<Message>& messages, bool last_alone) const {
  for (std::size_t i = 1; i < messages.size(); i += 2) {
    const bool earlier = last_alone && i + 1 < messages.size();
    if (earlier || rules_.thinking == Thinking::kRemoved)
      messages[i].content = without_thoughts(messages[i].content);
  }
}

std::vector<NamedPrompt::Turn> NamedPrompt::turns(const Conversation& conversation,
                                                  bool last_alone) const {
  std::vector<Message> messages = conversation.messages;
  const bool reasoning = prompt_.style == PromptTemplate::Style::kReasoning;
  if (reasoning) remove_thoughts(messages, last_alone);
  const std::string system =
      (conversation.system.empty() ? prompt_.default_system : conversation.system) +
      tool_descriptions(prompt_.tools, conversation.tools);
  std::vector<Turn> result;
  for (std::size_t i = 0; i < messages.size(); i += 2) {
    Turn turn;
    std::string before;
    if (i == 0) {
      add_slots(prompt_.prefix, {}, turn.source);
      if (!system.empty() && prompt_.style == PromptTemplate::Style::kLlama2) {
        const Values values{{"content", system}};
        for (const ElementPart& part : parts_of(prompt_.system.at(0).text, values)) {
          before += part.text;
        }
      } else if (!system.empty()) {
        add_slots(prompt_.system, {{"content", system}}, turn.source);
      }
    } else {
      add_slots(prompt_.separator, {}, turn.source);
    }
    add_message(messages[i], i, before, turn.source);
    add_message(messages[i + 1], i + 1, "", turn.target);
    turn.taught = messages[i + 1].taught;
    result.push_back(std::move(turn));
  }
  if (reasoning) add_thoughts(messages, last_alone, result);
  return result;
}

// An answer without a thought gets an empty one.
void NamedPrompt::add_thoughts(const std::vector<Message>& messages, bool last_alone,
                               std::vector<Turn>& turns) const {
  std::vector<std::int32_t> thought;
  special_.encode({{kEmptyThought, false}}, thought);
  for (std::size_t i = last_alone ? turns.size() - 1 : 0; i < turns.size(); ++i) {
    if (has_thought(messages[2 * i + 1].content)) continue;
    if (rules_.thinking == Thinking::kKept) {
      turns[i].target.insert(turns[i].target.begin(), thought.begin(), thought.end());
    } else {
      turns[i].source.insert(turns[i].source.end(), thought.begin(), thought.end());
    }
  }
}

void NamedPrompt::close(TaughtText& sample, bool taught) const {
  if (prompt_.efficient_eos) {
    sample.ids.push_back(*eos_);
    sample.labels.push_back(taught ? *eos_ : kIgnoredLabel);
  }
}

TaughtText NamedPrompt::joined(const std::vector<Turn>& turns,
                               std::optional<std::int64_t> cutoff) const {
  TaughtText sample;
  const std::int64_t at_the_end = (prompt_.efficient_eos ? 1 : 0) + (rules_.append_eod ? 1 : 0);
  bool taught = true;  // the turn before
  for (const Turn& turn : turns) {
    TurnLengths kept{std::ssize(turn.source), std::ssize(turn.target)};
    if (cutoff) {
      const std::int64_t left = *cutoff - at_the_end - std::ssize(sample.ids);
      if (left <= 0) break;
      kept = cut_turn(kept, left);
    }
    const bool ends_turn = !sample.ids.empty() && prompt_.efficient_eos && kept.source > 0;
    sample.ids.insert(sample.ids.end(), turn.source.begin(), turn.source.begin() + kept.source);
    sample.ids.insert(sample.ids.end(), turn.target.begin(), turn.target.begin() + kept.target);
    if (ends_turn) sample.labels.push_back(taught ? *eos_ : kIgnoredLabel);
    taught = turn.taught;
    sample.labels.insert(sample.labels.end(),
                         static_cast<std::size_t>(kept.source - (ends_turn ? 1 : 0)),
                         kIgnoredLabel);
    if (taught) {
      sample.labels.insert(sample.labels.end(), turn.target.begin(),
                           turn.target.begin() + kept.target);
    } else {
      sample.labels.resize(sample.ids.size(), kIgnoredLabel);
    }
  }
  close(sample, taught);
  if (rules_.append_eod) {
    sample.ids.push_back(*eos_);
    sample.labels.push_back(taught ? *eos_ : kIgnoredLabel);
  }
  return sample;
}

// Of a pair, and of a judged answer, only the last answer is learned. Not cut.
TaughtText NamedPrompt::of_pair(const std::vector<Turn>& turns) const {
  Turn last;
  for (std::size_t i = 0; i + 1 < turns.size(); ++i) {
    for (const auto* part : {&turns[i].source, &turns[i].target}) {
      last.source.insert(last.source.end(), part->begin(), part->end());
    }
  }
  last.source.insert(last.source.end(), turns.back().source.begin(), turns.back().source.end());
  last.target = turns.back().target;
  return joined({last}, {});
}

std::vector<TaughtText> NamedPrompt::encode(const Conversation& conversation) const {
  if (!conversation.desirable && !conversation.rejected)
    return {joined(turns(conversation, false), rules_.lengths.cutoff)};
  std::vector<TaughtText> answers{of_pair(turns(conversation, true))};
  if (conversation.rejected) {
    Conversation other = conversation;
    other.messages.back() = *other.rejected;
    answers.push_back(of_pair(turns(other, true)));
  }
  if (rules_.lengths.cutoff) cut_answers(answers, *rules_.lengths.cutoff);
  return answers;
}

}  // namespace piton
