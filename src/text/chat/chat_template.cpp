#include "text/chat/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/jinja/jinja_template.h"

namespace piton {
namespace {

using jinja::JinjaValue;
using Json = nlohmann::ordered_json;

// Names under which programs give reasoning; templates read the first one.
constexpr auto kReasoningFields =
    std::to_array<const char*>({"reasoning_content", "thinking", "reasoning"});

// A message as Transformers gives it to the template: without fields that are null, and with its
// reasoning under each name that templates read.
Json prepared(const Json& message) {
  Json kept = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  const auto* const name = std::find_if(kReasoningFields.begin(), kReasoningFields.end(),
                                        [&](const char* field) { return kept.contains(field); });
  if (name == kReasoningFields.end()) return kept;
  Json result = Json::object();
  const Json reasoning = kept[*name];
  result["thinking"] = reasoning;
  for (const auto& [key, value] : kept.items()) result[key] = value;
  result["reasoning_content"] = reasoning;
  return result;
}

// Whether `word` is in `text`, not as a part of a longer name.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_name = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (word.empty()) return false;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || !is_name(text[at - 1]);
    if (begins && (end == text.size() || !is_name(text[end]))) return true;
  }
  return false;
}

void check_objects(const Json& list, const char* what, const std::string& name) {
  if (!list.is_array()) {
    throw Error(Fault::kData, "{}: {}: got {}, wanted a list of objects", name, what,
                list.type_name());
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) {
      throw Error(Fault::kData, "{}: {}: item {} is {}, wanted an object", name, what, i + 1,
                  list[i].type_name());
    }
  }
}

jinja::Values prepared_messages(const ChatInput& input, const std::string& name) {
  check_objects(input.messages, "messages", name);
  if (input.messages.empty()) {
    throw Error(Fault::kData,
                "{}: messages: got none, wanted at least one; leave the conversation "
                "out",
                name);
  }
  jinja::Values messages;
  for (const Json& message : input.messages) {
    messages.push_back(jinja::value_of(prepared(message), name + ": messages"));
  }
  return messages;
}

}  // namespace

struct ChatTemplate::Parts {
  jinja::JinjaTemplate source;
  Json special_tokens;
  Json variables;  // of every conversation; null: none

  void check_names(const Json& given) const {
    if (given.is_null()) return;
    if (!given.is_object()) {
      throw Error(Fault::kData, "{}: variables: got {}, wanted an object", source.name(),
                  given.type_name());
    }
    for (const char* taken : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (!given.contains(taken)) continue;
      throw Error(Fault::kData, "{}: variables: got \"{}\", which is given separately",
                  source.name(), taken);
    }
  }

  // Variables other than the messages and add_generation_prompt.
  jinja::Surroundings surroundings(const ChatInput& input) const {
    const std::string& name = source.name();
    jinja::Surroundings result;
    result.now_seconds = input.now_seconds ? *input.now_seconds : std::time(nullptr);
    check_names(input.variables);
    if (!input.tools.is_null()) check_objects(input.tools, "tools", name);
    if (!input.documents.is_null()) check_objects(input.documents, "documents", name);
    result.variables.emplace_back("tools", jinja::value_of(input.tools, name + ": tools"));
    result.variables.emplace_back("documents",
                                  jinja::value_of(input.documents, name + ": documents"));
    // The first of a name wins: of the conversation, of the caller, a special token.
    for (const Json* more : {&input.variables, &variables, &special_tokens}) {
      if (more->is_null()) continue;
      for (const auto& [key, value] : more->items()) {
        result.variables.emplace_back(key, jinja::value_of(value, name + ": " + key));
      }
    }
    return result;
  }

  // The first `count` messages.
  jinja::Rendering render(jinja::Surroundings surroundings, const jinja::Values& messages,
                          std::size_t count, bool add_generation_prompt) const {
    const auto end = messages.begin() + static_cast<std::ptrdiff_t>(count);
    surroundings.variables.emplace_back("messages",
                                        JinjaValue::list(jinja::Values(messages.begin(), end)));
    surroundings.variables.emplace_back("add_generation_prompt",
                                        JinjaValue::boolean(add_generation_prompt));
    return source.render(surroundings);
  }
};

ChatTemplate::ChatTemplate(const std::string& source, nlohmann::ordered_json special_tokens,
                           std::string name)
    : parts_(std::make_unique<Parts>(
          Parts{jinja::JinjaTemplate(source, name), std::move(special_tokens), nullptr})),
      name_(std::move(name)) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

void ChatTemplate::set_variables(nlohmann::ordered_json variables) {
  parts_->check_names(variables);
  parts_->variables = std::move(variables);
}

std::optional<std::string> ChatTemplate::unread_variable(
    const nlohmann::ordered_json& variables) const {
  if (variables.is_null()) return std::nullopt;
  for (const auto& [key, value] : variables.items()) {
    if (!has_word(source(), key)) return key;
  }
  return std::nullopt;
}

bool ChatTemplate::has_generation_blocks() const { return parts_->source.has_generation(); }

const std::string& ChatTemplate::source() const { return parts_->source.source(); }

namespace {

RenderedChat chat_of(jinja::Rendering rendering) {
  RenderedChat chat;
  chat.text = std::move(rendering.text);
  for (const jinja::GenerationRange& range : rendering.generation) {
    chat.assistant.push_back({range.begin, range.end});
  }
  return chat;
}

}  // namespace

RenderedChat ChatTemplate::render(const ChatInput& input, bool add_generation_prompt) const {
  const jinja::Values messages = prepared_messages(input, name_);
  return chat_of(parts_->render(parts_->surroundings(input), messages, messages.size(),
                                add_generation_prompt));
}

// The ranges of messages[i] are those of the text of messages[0..i] that the text of
// messages[0..i) has not.
void ChatTemplate::remove_untaught(const ChatInput& input, RenderedChat& chat) const {
  if (input.untaught.empty()) return;
  const jinja::Values messages = prepared_messages(input, name_);
  const jinja::Surroundings surroundings = parts_->surroundings(input);
  const auto ranges_of = [&](std::size_t count) {
    return chat_of(parts_->render(surroundings, messages, count, false)).assistant;
  };
  std::vector<bool> removed(chat.assistant.size(), false);
  for (const std::size_t i : input.untaught) {
    const std::vector<TextRange> before = i == 0 ? std::vector<TextRange>{} : ranges_of(i);
    const std::vector<TextRange> after = ranges_of(i + 1);
    const bool same = before.size() <= after.size() && after.size() <= chat.assistant.size() &&
                      std::equal(before.begin(), before.end(), after.begin()) &&
                      std::equal(after.begin(), after.end(), chat.assistant.begin());
    if (!same) {
      throw Error(Fault::kData,
                  "{}: what message {} wrote, which is not learned, cannot be found: later "
                  "messages change what the template writes of it",
                  name_, i + 1);
    }
    std::fill(removed.begin() + static_cast<std::ptrdiff_t>(before.size()),
              removed.begin() + static_cast<std::ptrdiff_t>(after.size()), true);
  }
  std::vector<TextRange> kept;
  for (std::size_t i = 0; i < removed.size(); ++i) {
    if (!removed[i]) kept.push_back(chat.assistant[i]);
  }
  chat.assistant = std::move(kept);
}

RenderedChat ChatTemplate::render_with_assistant(const ChatInput& input) const {
  const jinja::Values messages = prepared_messages(input, name_);
  const jinja::Surroundings surroundings = parts_->surroundings(input);
  jinja::Rendering whole = parts_->render(surroundings, messages, messages.size(), false);
  if (whole.misplaced_generation) {
    throw Error(Fault::kData,
                "{}: a generation block is inside a macro, a set block or another generation "
                "block, so that its place in the text is not known; move it to the loop over the "
                "messages",
                name_);
  }
  RenderedChat chat = chat_of(std::move(whole));
  if (has_generation_blocks()) {
    remove_untaught(input, chat);
    return chat;
  }
  const auto text_of = [&](std::size_t count, bool prompt) {
    return count == messages.size() && !prompt
               ? chat.text
               : parts_->render(surroundings, messages, count, prompt).text;
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const JinjaValue* role = messages[i].dict().find("role");
    if (role == nullptr || !role->is_text() || role->str() != "assistant") continue;
    if (input.untaught.contains(i)) continue;
    if (i == 0) {
      throw Error(Fault::kData,
                  "{}: the first message is the assistant's: where its text begins cannot be found "
                  "without a message before it; add one, or use a template with generation blocks",
                  name_);
    }
    const std::string before = text_of(i, true);
    const std::string after = text_of(i + 1, false);
    if (!after.starts_with(before) || !chat.text.starts_with(after)) {
      throw Error(Fault::kData,
                  "{}: what the assistant wrote cannot be found: the text of messages 1 to {} "
                  "{} is not the beginning of the text of {}; the template changes earlier "
                  "messages (drops their reasoning?): use one with generation blocks, or train on "
                  "conversations that end with their only answer",
                  name_, after.starts_with(before) ? i + 1 : i,
                  after.starts_with(before) ? "alone" : "with a generation prompt",
                  after.starts_with(before) ? fmt::format("all {}", messages.size())
                                            : fmt::format("messages 1 to {}", i + 1));
    }
    chat.assistant.push_back({before.size(), after.size()});
  }
  return chat;
}

}  // namespace piton
