// libraries: piton_text_chat
// Any bytes as a chat template and, after a zero byte, as a file of conversations: an Error of the
// data, or a text whose ranges are inside it and whose ids have a mask.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "text/chat/chat_template.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/conversations.h"
#include "text/files/byte_tokenizer.h"

namespace {

constexpr std::string_view kConversation =
    R"([{"role": "user", "content": "hi \u00e9"}, {"role": "assistant", "content": "<b>"},
        {"role": "tool", "content": [1, 2.5, null, {"x": true}]}])";

void use(const piton::ChatTemplate& chat_template, const piton::ChatInput& input) {
  const piton::ByteTokenizer tokenizer;
  for (const bool prompt : {false, true}) {
    const piton::RenderedChat chat = chat_template.render(input, prompt);
    for (const piton::TextRange& range : chat.assistant) {
      PITON_ASSERT(range.begin <= range.end && range.end <= chat.text.size());
    }
    if (chat.text.size() > 10000) continue;
    const piton::ChatTokens tokens = piton::encode_chat(tokenizer, chat);
    PITON_ASSERT(tokens.ids.size() == tokens.assistant.size());
  }
  chat_template.render_with_assistant(input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = bytes.find('\0');
  const std::string_view conversations =
      zero == bytes.npos ? kConversation : bytes.substr(zero + 1);
  try {
    const piton::ChatTemplate chat_template(std::string(bytes.substr(0, zero)),
                                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "t");
    for (piton::ChatInput input : piton::read_conversations(conversations, "f")) {
      input.now_seconds = 1767596889;
      try {
        use(chat_template, input);
      } catch (const piton::Error& error) {
        PITON_ASSERT(error.fault() == piton::Fault::kData);
      }
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
  }
  return 0;
}
