#include "text/chat/turn_ends.h"

#include <string>

#include "base/error.h"
#include "text/chat/chat_tokens.h"

namespace piton {
namespace {

// Words that no template contains.
constexpr const char* kQuestion = "qzxvk question";
constexpr const char* kAnswer = "qzxvk answer";

}  // namespace

std::vector<std::int32_t> turn_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", kQuestion}},
                    {{"role", "assistant"}, {"content", kAnswer}}};
  RenderedChat after;
  try {
    after.text = chat_template.render(input, /*add_generation_prompt=*/false).text;
  } catch (const Error&) {
    return {};
  }
  const std::size_t answer = after.text.rfind(kAnswer);
  if (answer == std::string::npos) return {};
  after.text.erase(0, answer + std::string(kAnswer).size());
  for (const std::int32_t id : encode_chat(tokenizer, after).ids) {
    if (tokenizer.is_special(id)) return {id};
  }
  return {};
}

}  // namespace piton
