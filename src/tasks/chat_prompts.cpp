#include "tasks/chat_prompts.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/instruct/model_prompt.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

OrderedJson conversation(const Task& task, const TaskSample& sample, const std::string& asked,
                         const ChatPromptRules& rules) {
  OrderedJson messages = OrderedJson::array();
  std::string text;
  if (task.asks_in_chat)
    text = sample.system;
  else if (!sample.system.empty())
    messages.push_back(message("system", sample.system));
  for (const ShotTurns& shot : sample.shot_turns) {
    if (rules.multiturn) {
      messages.push_back(message("user", std::exchange(text, "") + shot.question));
      messages.push_back(message("assistant", shot.answer));
    } else {
      text += shot.question + task.answer_delimiter + shot.answer + task.shot_delimiter;
    }
  }
  messages.push_back(message("user", text + asked));
  return messages;
}

// `prompt`: what the assistant answers to follows; else the conversation is complete.
// `system`: the task's description, which is left out if the template refuses it.
std::string rendered_chat(const ChatTemplate& chat_template, ChatInput input, bool prompt,
                          bool system) {
  try {
    return chat_template.render(input, prompt).text;
  } catch (const Error&) {
    if (!system) throw;
  }
  input.messages.erase(input.messages.begin());
  return chat_template.render(input, prompt).text;
}

bool begins_with_system(const OrderedJson& messages) {
  return messages.front()["role"] == "system";
}

// The two conversations of a pair.
std::vector<std::string> rendered_pair(const ChatTemplate& chat_template, const TaskData& data,
                                       const TaskSample& sample) {
  std::vector<std::string> texts;
  if (!sample.pair) {
    const OrderedJson asked = conversation(data.task, sample, sample.asked.front(), {});
    for (const std::string& answer : sample.choices) {
      ChatInput input{.messages = asked, .now_seconds = kDateOfPrompts};
      input.messages.push_back(message("assistant", answer));
      texts.push_back(rendered_chat(chat_template, input, false, begins_with_system(asked)));
    }
    return texts;
  }
  Conversation pair = *sample.pair;
  const bool described = pair.system.empty() && !sample.system.empty();
  if (described) pair.system = sample.system;
  for (const Message& answer : {pair.messages.back(), *pair.rejected}) {
    pair.messages.back() = answer;
    texts.push_back(rendered_chat(chat_template, chat_input(pair), false, described));
  }
  return texts;
}

}  // namespace

void make_chat_prompts(TaskData& data, const ChatTemplate& chat_template,
                       const ChatPromptRules& rules) {
  const Task& task = data.task;
  if (task.kind == TaskKind::kPerplexity || task.kind == TaskKind::kPreference) return;
  if (rules.multiturn && !task.shot_texts.empty() && data.num_shots > 0)
    throw Error(Fault::kUsage,
                "--fewshot-as-multiturn: the examples of {} are one written text; leave it out",
                task.name);
  for (TaskSample& sample : data.samples) {
    sample.contexts.clear();
    for (const std::string& asked : sample.asked) {
      const OrderedJson messages = conversation(task, sample, asked, rules);
      sample.contexts.push_back(
          rendered_chat(chat_template, {.messages = messages}, true, begins_with_system(messages)));
    }
    if (task.kind != TaskKind::kMultipleChoice) continue;
    for (std::string& continuation : sample.continuations) {
      if (continuation.starts_with(task.answer_delimiter))
        continuation.erase(0, task.answer_delimiter.size());
    }
  }
  data.is_chat = true;
  data.prompt_hash = hash_of_prompts(data.samples);
}

void put_prompts_into(const std::string& text, TaskData& data) {
  constexpr std::string_view kInstruction = "{instruction}";
  const std::size_t at = text.find(kInstruction);
  if (at == text.npos)
    throw Error(Fault::kUsage, "--instruction-template: got \"{}\", wanted a text with {}", text,
                kInstruction);
  const TaskKind kind = data.task.kind;
  if (kind == TaskKind::kPerplexity || kind == TaskKind::kPreference ||
      kind == TaskKind::kLastToken)
    return;
  for (TaskSample& sample : data.samples) {
    for (std::string& context : sample.contexts)
      context = text.substr(0, at) + context + text.substr(at + kInstruction.size());
  }
  data.prompt_hash = hash_of_prompts(data.samples);
}

void make_preference_texts(TaskData& data, const ChatTemplate& chat_template) {
  for (TaskSample& sample : data.samples) {
    sample.contexts = rendered_pair(chat_template, data, sample);
    sample.continuations = sample.choices;
  }
  data.is_chat = true;
  data.prompt_hash = hash_of_prompts(data.samples);
}

}  // namespace piton
