// The recorded conversations and templates of tests/golden/chat.
#pragma once

#include <ctime>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "base/json.h"
#include "text/chat/chat_template.h"

namespace piton {

inline const std::string kChatGolden = PITON_SOURCE_DIR "/tests/golden/chat/";

inline std::map<std::string, ChatInput> chat_inputs() {
  // The oracle's clock: 2026-01-05 07:08:09, in any time zone.
  std::tm parts{};
  parts.tm_year = 126;
  parts.tm_mday = 5;
  parts.tm_hour = 7;
  parts.tm_min = 8;
  parts.tm_sec = 9;
  parts.tm_isdst = -1;
  std::map<std::string, ChatInput> inputs;
  for (const auto& json :
       read_json<nlohmann::ordered_json>(read_text_file(kChatGolden + "conversations.json"))) {
    ChatInput input;
    input.messages = json["messages"];
    if (json.contains("tools")) input.tools = json["tools"];
    if (json.contains("documents")) input.documents = json["documents"];
    if (json.contains("variables")) input.variables = json["variables"];
    input.now_seconds = std::mktime(&parts);
    inputs[json["name"].get<std::string>()] = std::move(input);
  }
  return inputs;
}

inline ChatTemplate chat_template_named(const std::string& name) {
  return ChatTemplate(
      read_text_file(kChatGolden + "templates/" + name + ".jinja"),
      {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}},
      name);
}

// The lines of a JSONL file after its head.
inline std::vector<nlohmann::ordered_json> chat_cases(const std::string& file) {
  std::istringstream lines(read_text_file(kChatGolden + file));
  std::vector<nlohmann::ordered_json> cases;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) cases.push_back(read_json<nlohmann::ordered_json>(line));
  return cases;
}

}  // namespace piton
