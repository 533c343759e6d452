#include "data/instruct/model_prompt.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/nesting.h"
#include "data/instruct/tool_text.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/written_tools.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// Between results of tools in one message (chat_records.h).
constexpr std::string_view kNextResult = "\n</tool_response>\n<tool_response>\n";

// A character of private use, which shows what a template writes of a part that it replaces.
constexpr const char* kOtherText = "\uE000";

Json calls_message(const Message& message) {
  const ToolCalls calls = tool_calls(message.content);
  Json list = Json::array();
  for (const ToolCall& call : calls.calls) {
    list.push_back(
        {{"type", "function"},
         {"function", {{"name", call.name}, {"arguments", read_json<Json>(call.arguments)}}}});
  }
  if (message.given.is_null()) {
    return {{"role", "assistant"}, {"content", calls.thought + message.said}, {"tool_calls", list}};
  }
  Json given = message.given.front();
  for (std::size_t i = 0; i < list.size(); ++i) {
    // A value in place of its text, as a server gives it to the template.
    given["tool_calls"][i]["function"]["arguments"] = list[i]["function"]["arguments"];
  }
  return given;
}

void add_results(std::string_view content, Json& messages) {
  while (true) {
    const std::size_t end = std::min(content.find(kNextResult), content.size());
    messages.push_back({{"role", "tool"}, {"content", std::string(content.substr(0, end))}});
    if (end == content.size()) return;
    content.remove_prefix(end + kNextResult.size());
  }
}

Json tools_list(const std::string& tools) {
  if (tools.empty()) return nullptr;
  check_json_depth(tools, "the tools");
  const Json list = read_json_or_discarded<Json>(tools);
  if (!list.is_array()) throw Error(Fault::kData, "the tools are no list in JSON");
  Json wrapped = Json::array();
  for (const Json& tool : list) {
    const bool typed = tool.is_object() && tool.contains("function");
    wrapped.push_back(typed ? tool : Json{{"type", "function"}, {"function", tool}});
  }
  return wrapped.empty() ? Json(nullptr) : wrapped;
}

// Where the text first differs from that of the same conversation with another last answer, a
// character of private use. A template may write an answer in several ranges.
std::size_t begin_of_last_answer(const ChatTemplate& chat, Conversation conversation,
                                 const ChatInput& input, const std::string& text) {
  conversation.messages.back() = {MessageRole::kAssistant, kOtherText};
  ChatInput other = chat_input(conversation);
  other.variables = input.variables;
  const std::string changed = chat.render(other, false).text;
  const auto differing =
      std::mismatch(text.begin(), text.end(), changed.begin(), changed.end()).first;
  return static_cast<std::size_t>(differing - text.begin());
}

// The text with the ranges of its last answer alone, so that templates may write earlier messages
// in another way once others follow.
RenderedChat with_last_answer(const ChatTemplate& chat, const Conversation& conversation,
                              const ChatInput& input) {
  if (chat.has_generation_blocks()) {
    RenderedChat rendered = chat.render_with_assistant(input);
    const std::size_t begin = begin_of_last_answer(chat, conversation, input, rendered.text);
    std::erase_if(rendered.assistant, [&](const TextRange& range) { return range.end <= begin; });
    return rendered;
  }
  RenderedChat rendered{.text = chat.render(input, false).text, .assistant = {}};
  ChatInput before = input;
  before.messages.erase(before.messages.size() - 1);
  const std::string asked = chat.render(before, true).text;
  // Throws with what differs.
  if (!rendered.text.starts_with(asked)) return chat.render_with_assistant(input);
  rendered.assistant = {{asked.size(), rendered.text.size()}};
  return rendered;
}

// A template that leaves tools or calls out: the model would learn an empty answer in place of a
// call.
void check_tools_are_written(const ChatTemplate& chat, const ChatInput& input) {
  const auto what = left_out_of_text(chat, input);
  if (!what) return;
  throw Error(Fault::kData,
              "{}: this template cannot write {}, which the record has; name one that can with "
              "--prompt-type, or leave the {} out",
              chat.name(), *what, *what);
}

// Gives an empty content to messages without one; false if there is none.
bool fill_contents(Conversation& conversation) {
  bool filled = false;
  for (Message& message : conversation.messages) {
    if (message.given.is_null()) continue;
    for (Json& given : message.given) {
      if (!given["content"].is_null()) continue;
      given["content"] = "";
      filled = true;
    }
  }
  return filled;
}

RenderedChat rendered_sample(const ChatTemplate& chat, const Conversation& conversation,
                             const Json& variables, bool last_alone) {
  ChatInput input = chat_input(conversation);
  input.variables = variables;
  RenderedChat rendered =
      last_alone ? with_last_answer(chat, conversation, input) : chat.render_with_assistant(input);
  check_tools_are_written(chat, input);
  return rendered;
}

std::string quoted(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                   std::size_t at) {
  if (at >= ids.size()) return "the end";
  const auto some = std::span(ids).subspan(at, std::min<std::size_t>(8, ids.size() - at));
  return nlohmann::json(tokenizer.decode(some))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

ChatInput chat_input(const Conversation& conversation) {
  ChatInput input;
  input.messages = Json::array();
  if (conversation.has_system || !conversation.system.empty()) {
    input.messages.push_back({{"role", "system"}, {"content", conversation.system}});
  }
  for (const Message& message : conversation.messages) {
    if (!message.taught) input.untaught.insert(input.messages.size());
    if (message.role == MessageRole::kFunction) {
      input.messages.push_back(calls_message(message));
    } else if (!message.given.is_null()) {
      input.messages.insert(input.messages.end(), message.given.begin(), message.given.end());
    } else if (message.role == MessageRole::kObservation) {
      add_results(message.content, input.messages);
    } else {
      input.messages.push_back({{"role", name(message.role)}, {"content", message.content}});
    }
  }
  input.tools = tools_list(conversation.tools);
  input.now_seconds = kDateOfPrompts;
  return input;
}

ModelPrompt::ModelPrompt(const ModelChatTemplates& templates, const Tokenizer& tokenizer,
                         ModelPromptRules rules)
    : tokenizer_(&tokenizer), rules_(rules) {
  if (!templates.fault.empty()) throw Error(Fault::kData, "{}", templates.fault);
  const ChatTemplateFiles& files = templates.files;
  if (files.templates.empty()) {
    throw Error(Fault::kUsage,
                "{} has no chat template; name one with --prompt-type (qwen, llama2, "
                "llama3, default, ...)",
                files.where.empty() ? "the tokenizer" : files.where);
  }
  const auto named = [&](std::string_view name) {
    return std::any_of(files.templates.begin(), files.templates.end(),
                       [&](const ChatTemplateSource& source) { return source.name == name; });
  };
  if (named("default")) plain_ = choose_chat_template(files, "default", false);
  if (named("tool_use") || named("default")) with_tools_ = choose_chat_template(files, "", true);
  if (!plain_ && !with_tools_) plain_ = choose_chat_template(files, "", false);
}

std::string ModelPrompt::source() const {
  return (plain_ ? plain_->source() : "") + (with_tools_ ? with_tools_->source() : "");
}

TaughtText ModelPrompt::sample(const Conversation& conversation, bool last_alone) const {
  const bool has_tools = !tools_list(conversation.tools).is_null();
  const ChatTemplate& chat = *(plain_ && !has_tools ? plain_ : with_tools_);
  Json variables;
  if (rules_.thinking != Thinking::kAsGiven)
    variables = {{"enable_thinking", rules_.thinking == Thinking::kKept}};
  RenderedChat rendered;
  try {
    rendered = rendered_sample(chat, conversation, variables, last_alone);
  } catch (const Error&) {
    // Templates that want a content of every message, of calls too, are served as well.
    Conversation filled = conversation;
    if (!fill_contents(filled)) throw;
    rendered = rendered_sample(chat, filled, variables, last_alone);
  }
  ChatTokens tokens = encode_chat(*tokenizer_, rendered);
  TaughtText sample{std::move(tokens.ids), {}};
  for (std::size_t i = 0; i < sample.ids.size(); ++i) {
    sample.labels.push_back(tokens.assistant[i] != 0 ? sample.ids[i] : kIgnoredLabel);
  }
  if (rules_.append_eod) {
    sample.ids.push_back(*tokenizer_->special().eod);
    sample.labels.push_back(conversation.messages.back().taught ? sample.ids.back()
                                                                : kIgnoredLabel);
  }
  return sample;
}

std::vector<TaughtText> ModelPrompt::encode(const Conversation& conversation) const {
  const std::optional<std::int64_t>& cutoff = rules_.lengths.cutoff;
  if (!conversation.desirable && !conversation.rejected) {
    const TaughtText whole = sample(conversation, false);
    return {cutoff ? cut_sample(whole, *cutoff) : whole};
  }
  std::vector<TaughtText> answers{sample(conversation, true)};
  if (conversation.rejected) {
    Conversation other = conversation;
    other.messages.back() = *other.rejected;
    answers.push_back(sample(other, true));
  }
  if (cutoff) cut_answers(answers, *cutoff);
  return answers;
}

std::string difference_from_model(const ModelChatTemplates& templates, const Tokenizer& tokenizer,
                                  const Conversation& conversation, const TaughtText& sample) {
  std::vector<std::int32_t> own;
  try {
    own = ModelPrompt(templates, tokenizer, {}).encode(conversation).at(0).ids;
  } catch (const Error&) {
    return "";  // there is no template, or it has no form for this conversation
  }
  const auto differing =
      std::mismatch(sample.ids.begin(), sample.ids.end(), own.begin(), own.end());
  const auto at = static_cast<std::size_t>(differing.first - sample.ids.begin());
  if (at == sample.ids.size() && at == own.size()) return "";
  return fmt::format(
      "--prompt-type: the first sample differs from the model's own chat template: token {} begins "
      "{} here, and {} there",
      at, quoted(tokenizer, sample.ids, at), quoted(tokenizer, own, at));
}

}  // namespace piton
