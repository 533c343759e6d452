#include "tasks/chat_prompts.h"

#include <utility>

#include "base/error.h"

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
std::string rendered_chat(const ChatTemplate& chat_template, OrderedJson messages, bool prompt) {
  ChatInput input;
  const bool has_system = messages.front()["role"] == "system";
  input.messages = messages;
  try {
    return chat_template.render(input, prompt).text;
  } catch (const Error&) {
    if (!has_system) throw;
  }
  messages.erase(messages.begin());
  input.messages = std::move(messages);
  return chat_template.render(input, prompt).text;
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
    for (const std::string& asked : sample.asked)
      sample.contexts.push_back(
          rendered_chat(chat_template, conversation(task, sample, asked, rules), true));
    if (task.kind != TaskKind::kMultipleChoice) continue;
    for (std::string& continuation : sample.continuations) {
      if (continuation.starts_with(task.answer_delimiter))
        continuation.erase(0, task.answer_delimiter.size());
    }
  }
  data.is_chat = true;
  data.prompt_hash = hash_of_prompts(data.samples);
}

void make_preference_texts(TaskData& data, const ChatTemplate& chat_template) {
  for (TaskSample& sample : data.samples) {
    sample.contexts.clear();
    const OrderedJson asked = conversation(data.task, sample, sample.asked.front(), {});
    for (const std::string& answer : sample.choices) {
      OrderedJson messages = asked;
      messages.push_back(message("assistant", answer));
      sample.contexts.push_back(rendered_chat(chat_template, std::move(messages), false));
    }
    sample.continuations = sample.choices;
  }
  data.is_chat = true;
  data.prompt_hash = hash_of_prompts(data.samples);
}

}  // namespace piton
