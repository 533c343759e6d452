#include "cli/text/tokenize_chat.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "data/instruct/chosen_chat_template.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/conversations.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplate template_of(const ChatDisplay& display, bool with_tools) {
  const std::string& wanted = display.options.chat_template;
  if (!display.templates.fault.empty()) throw Error(Fault::kData, "{}", display.templates.fault);
  const ChatTemplateFiles& files = display.templates.files;
  if (files.where.empty() && wanted.empty()) {
    throw Error(Fault::kUsage,
                "--chat: the tokenizer has no folder with a chat template; give --chat-template");
  }
  ChatTemplate chat_template = chosen_chat_template(files, wanted, with_tools, display.tokenizer);
  display.options.variables.set_in(chat_template);
  return chat_template;
}

struct ShownChat {
  RenderedChat chat;
  ChatTokens tokens;
  std::string no_mask;  // why there is no mask; "" if there is one
};

bool is_set(const Json& value, const char* key, const std::string& where) {
  if (!value.is_boolean())
    throw Error(Fault::kData, "{}: \"{}\": got {}, wanted true or false", where, key,
                value.type_name());
  return value.get<bool>();
}

// A conversation may have two fields that are no variables: "add_generation_prompt", instead of the
// option, and "chat_template_kwargs", an object of variables. Takes them out of `input`; returns
// whether the prompt for the next answer is added.
bool take_fields(const ChatDisplay& display, const std::string& where, ChatInput& input) {
  bool adds = display.options.add_generation_prompt;
  Json& variables = input.variables;
  if (!variables.is_object()) return adds;
  if (const auto found = variables.find("add_generation_prompt"); found != variables.end()) {
    adds = is_set(*found, "add_generation_prompt", where);
    variables.erase(found);
  }
  if (const auto found = variables.find("chat_template_kwargs"); found != variables.end()) {
    const Json given = *found;
    if (!given.is_object() && !given.is_null())
      throw Error(Fault::kData, "{}: \"chat_template_kwargs\": got {}, wanted an object", where,
                  given.type_name());
    variables.erase(found);
    for (const auto& [key, value] : given.items()) variables[key] = value;
  }
  return adds;
}

// Text and ids can be shown even if it cannot be found what the assistant wrote.
ShownChat shown_chat(const ChatDisplay& display, const std::string& where, ChatInput input) {
  const bool adds_prompt = take_fields(display, where, input);
  const ChatTemplate chat_template = template_of(display, !input.tools.is_null());
  ShownChat shown;
  shown.chat = chat_template.render(input, adds_prompt);
  if (!adds_prompt) {
    try {
      shown.chat = chat_template.render_with_assistant(input);
    } catch (const Error& error) {
      shown.no_mask = error.what();
    }
  } else if (!chat_template.has_generation_blocks()) {
    shown.no_mask =
        "a prompt for the next answer works with a mask only if the template has generation "
        "blocks";
  }
  shown.tokens = encode_chat(display.tokenizer, shown.chat);
  return shown;
}

std::vector<std::string> pieces_of(const ChatDisplay& display, const ShownChat& shown) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : shown.tokens.ids) pieces.push_back(display.tokenizer.piece(id));
  return pieces;
}

std::string json_line(const ChatDisplay& display, const ShownChat& shown) {
  Json object;
  object["count"] = shown.tokens.ids.size();
  object["text"] = shown.chat.text;
  object["ids"] = shown.tokens.ids;
  if (display.pieces) object["pieces"] = pieces_of(display, shown);
  if (shown.no_mask.empty()) {
    object["mask"] = shown.tokens.assistant;
  } else {
    object["mask"] = nullptr;
    object["why_no_mask"] = shown.no_mask;
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string shown_text(const ChatDisplay& display, const ShownChat& shown, std::size_t number) {
  const auto& mask = shown.tokens.assistant;
  std::string out = fmt::format("conversation {}: {} tokens", number, shown.tokens.ids.size());
  if (shown.no_mask.empty()) {
    out += fmt::format(", {} of the assistant", std::count(mask.begin(), mask.end(), 1));
  }
  out += "\ntext:\n" + shown.chat.text;
  if (!out.ends_with('\n')) out.push_back('\n');
  if (display.pieces) {
    out += fmt::format("pieces: {}\n", fmt::join(pieces_of(display, shown), " "));
  } else {
    out += fmt::format("ids: {}\n", fmt::join(shown.tokens.ids, " "));
  }
  out += shown.no_mask.empty() ? fmt::format("mask: {}\n", fmt::join(mask, " "))
                               : fmt::format("mask: none: {}\n", shown.no_mask);
  return out;
}

}  // namespace

void print_chats(const ChatDisplay& display, const std::string& text) {
  std::size_t number = 0;
  for (const ChatInput& input : read_conversations(text, display.where)) {
    ++number;
    const std::string where = fmt::format("{}: conversation {}", display.where, number);
    const ShownChat shown = shown_chat(display, where, input);
    const std::string out =
        display.json ? json_line(display, shown) : shown_text(display, shown, number);
    std::fwrite(out.data(), 1, out.size(), stdout);
  }
}

}  // namespace piton::cli
