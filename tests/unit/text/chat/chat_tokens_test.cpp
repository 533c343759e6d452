#include "text/chat/chat_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/chat_cases.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_folder.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

std::string digits_of(const std::vector<std::uint8_t>& mask) {
  std::string digits;
  for (const std::uint8_t one : mask) digits.push_back(one != 0 ? '1' : '0');
  return digits;
}

TEST(ChatTokens, AndTheirMaskAreThoseOfTransformers) {
  const auto inputs = chat_inputs();
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::map<std::string, ChatTemplate> templates;
  int count = 0;
  for (const Json& one : chat_cases("tokens.jsonl")) {
    const auto kind = one["tokenizer"].get<std::string>();
    const auto name = one["template"].get<std::string>();
    const auto conversation = one["conversation"].get<std::string>();
    auto& tokenizer = tokenizers[kind];
    if (tokenizer == nullptr) tokenizer = open_tokenizer_folder(kChatGolden + kind, false);
    if (templates.find(name) == templates.end()) {
      templates.emplace(name, chat_template_named(name));
    }
    const ChatTokens tokens =
        encode_chat(*tokenizer, templates.at(name).render(inputs.at(conversation), false));
    const std::string where = kind + " / " + name + " / " + conversation;
    EXPECT_EQ(tokens.ids, one["ids"].get<std::vector<std::int32_t>>()) << where;
    EXPECT_EQ(digits_of(tokens.assistant), one["mask"].get<std::string>()) << where;
    ++count;
  }
  EXPECT_GT(count, 300);
}

TEST(ChatTokens, AreMaskedIfABytePartIsInARange) {
  // Ids of single bytes: the mask is exact, also inside of a character's bytes.
  const ByteTokenizer tokenizer;
  RenderedChat chat;
  chat.text = "aé😀b";
  chat.assistant = {{1, 3}, {7, 8}};
  EXPECT_EQ(digits_of(encode_chat(tokenizer, chat).assistant), "01100001");
  chat.assistant = {{0, 0}, {3, 7}};
  EXPECT_EQ(digits_of(encode_chat(tokenizer, chat).assistant), "00011110");
}

TEST(ChatTokens, OfAnIdOverTheEndOfARangeCount) {
  const auto tokenizer = open_tokenizer_folder(kChatGolden + "bpe", false);
  RenderedChat chat;
  chat.text = "The quick brown fox.";
  const std::vector<std::int32_t> ids = tokenizer->encode(chat.text);
  ASSERT_LT(ids.size(), 10U);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t end = begin + tokenizer->decode(std::vector{ids[i]}).size();
    // From the middle of an id to the middle of the next one.
    chat.assistant = {{begin + (end - begin) / 2, std::min(end + 1, chat.text.size())}};
    std::string wanted(ids.size(), '0');
    for (std::size_t k = i; k < std::min(i + 2, ids.size()); ++k) wanted[k] = '1';
    EXPECT_EQ(digits_of(encode_chat(*tokenizer, chat).assistant), wanted) << i;
    begin = end;
  }
}

}  // namespace
}  // namespace piton
