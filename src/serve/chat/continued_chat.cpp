#include "serve/chat/continued_chat.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/trimmed.h"

namespace piton {
namespace {

// Marks the end of the content. Its last blank says whether the template keeps white space there.
constexpr std::string_view kContinuationMark = "CONTINUE_FINAL_MESSAGE_TAG ";

}  // namespace

RenderedChat render_continued(const ChatTemplate& chat_template, ChatInput input) {
  std::string& content = input.messages.back()["content"].get_ref<std::string&>();
  const std::string wanted(trimmed(content));
  content += kContinuationMark;
  std::string text = chat_template.render(input, /*add_generation_prompt=*/false).text;
  const std::size_t end = text.rfind(trimmed(kContinuationMark));
  if (end == text.npos || text.find(wanted) == text.npos)
    throw Error(Fault::kData,
                "{}: does not write the last message as it is, so it cannot be continued",
                chat_template.name());
  const bool keeps_space = std::string_view(text).substr(end).starts_with(kContinuationMark);
  text.resize(end);
  if (!keeps_space) text.resize(text.find_last_not_of(kWhiteSpace) + 1);
  return {.text = std::move(text), .assistant = {}};
}

}  // namespace piton
