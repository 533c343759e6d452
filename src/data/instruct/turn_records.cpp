#include "data/instruct/turn_records.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

Conversation of_pair(std::string user, std::string answer) {
  Conversation conversation;
  conversation.messages.push_back({MessageRole::kUser, std::move(user)});
  conversation.messages.push_back({MessageRole::kAssistant, std::move(answer)});
  return conversation;
}

std::string without(std::string text, std::string_view mark) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos;) text.erase(at, mark.size());
  return text;
}

}  // namespace

Conversation read_instruction(const RecordFields& fields, const nlohmann::ordered_json& record) {
  return of_pair(text_at(record, fields.key("instruction")) + "\n" +
                     optional_text_at(record, fields.key("input")),
                 text_at(record, fields.key("output")));
}

Conversation read_belle(const RecordFields& fields, const nlohmann::ordered_json& record) {
  constexpr std::string_view kHuman = "Human:", kAssistant = "Assistant:";
  const std::string text = text_at(record, fields.key("instruction"));
  Conversation conversation;
  std::size_t at = text.find(kHuman);
  if (at == text.npos || !stripped(std::string_view(text).substr(0, at)).empty()) {
    throw Error(Fault::kData, "\"{}\" begins with something other than \"Human:\"",
                fields.key("instruction"));
  }
  while (at != text.npos) {
    const std::size_t next = text.find(kHuman, at + kHuman.size());
    const std::string_view turn = std::string_view(text).substr(
        at + kHuman.size(), next == text.npos ? std::string_view::npos : next - at - kHuman.size());
    const std::size_t middle = turn.find(kAssistant);
    conversation.messages.push_back(
        {MessageRole::kUser, std::string(stripped(turn.substr(0, std::min(middle, turn.size()))))});
    const std::string_view answer =
        middle == turn.npos ? "" : stripped(turn.substr(middle + kAssistant.size()));
    if (next != text.npos && answer.empty()) {
      throw Error(Fault::kData, "turn {} of \"{}\" has no answer after \"Assistant:\"",
                  conversation.messages.size() / 2 + 1, fields.key("instruction"));
    }
    if (next == text.npos && !answer.empty()) {
      throw Error(Fault::kData, "the last turn of \"{}\" has an answer, and so has \"{}\"",
                  fields.key("instruction"), fields.key("output"));
    }
    if (!answer.empty()) {
      conversation.messages.push_back({MessageRole::kAssistant, std::string(answer)});
    }
    at = next;
  }
  conversation.messages.push_back(
      {MessageRole::kAssistant, std::string(stripped(text_at(record, fields.key("output"))))});
  return conversation;
}

Conversation read_moss(const RecordFields& fields, const nlohmann::ordered_json& record) {
  const std::string& key = fields.key("chat");
  const auto at = record.find(key);
  if (at == record.end() || !at->is_object()) {
    throw Error(Fault::kData, "key \"{}\" is {}, wanted an object of turns", key,
                at == record.end() ? "missing" : at->type_name());
  }
  Conversation conversation;
  for (const auto& [turn, value] : at->items()) {
    if (value.is_null()) continue;
    if (!value.is_object()) {
      throw Error(Fault::kData, "\"{}\" of \"{}\" holds {}, wanted an object", turn, key,
                  value.type_name());
    }
    const std::string user = without(without(text_at(value, "Human"), "<eoh>"), "<|Human|>: ");
    const std::string answer = without(without(text_at(value, "MOSS"), "<|MOSS|>:"), "<eom>");
    conversation.messages.push_back({MessageRole::kUser, std::string(stripped(user))});
    conversation.messages.push_back({MessageRole::kAssistant, std::string(stripped(answer))});
  }
  return conversation;
}

Conversation read_leetcode(const RecordFields& fields, const nlohmann::ordered_json& record) {
  const std::string problem = text_at(record, fields.key("code_with_problem"));
  const std::size_t fence = std::min(problem.find("```"), problem.size());
  return of_pair(std::string(stripped(std::string_view(problem).substr(0, fence))),
                 text_at(record, fields.key("code_only")) + "\n" +
                     text_at(record, fields.key("explanation_only")));
}

}  // namespace piton
