// Prompts as conversations, by the chat template of a model.
//
// As lm-evaluation-harness 0.4 with apply_chat_template (api/task.py, fewshot_context): what comes
// first (the description) is the system message; examples and question are one message of the user,
// or under `multiturn` each example is a question of the user and an answer of the assistant. The
// choices of a multiple-choice task follow the prompt without a space. A template that refuses a
// system message gets none. Of Task::asks_in_chat, the description begins the first message of the
// user, as in MindSpeed-LLM.
#pragma once

#include "tasks/task_samples.h"
#include "text/chat/chat_template.h"

namespace piton {

struct ChatPromptRules {
  bool multiturn = false;
};

// Replaces the contexts of `data`, except of texts whose perplexity or reward is measured. Throws
// Error(kUsage) for examples that are one written text and cannot be turns, Error(kData) if the
// template refuses the conversation.
void make_chat_prompts(TaskData& data, const ChatTemplate& chat_template,
                       const ChatPromptRules& rules);

// Puts each prompt into `text`, in the place of {instruction}: --instruction-template of
// AscendSpeed's and MindSpeed-LLM's evaluation. Not texts whose perplexity, reward or last token is
// asked for. Throws Error(kUsage) for a text without that word.
void put_prompts_into(const std::string& text, TaskData& data);

// Of kPreference: replaces the context of each sample by the two conversations whose rewards are
// compared: the description as the system message, the prompt, an answer. Those of
// TaskSample::pair are its messages, and the description is their system message if they have none.
// The date of today is that of data (data/instruct/model_prompt.h), so that results do not depend
// on the day. Throws Error(kData) if the template refuses one.
void make_preference_texts(TaskData& data, const ChatTemplate& chat_template);

}  // namespace piton
