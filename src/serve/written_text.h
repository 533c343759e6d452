// The tokens of one text, as the text that a client gets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generate/decoding_engine.h"
#include "generate/stop_words.h"
#include "text/tokenizer.h"

namespace piton {

class WrittenText {
 public:
  // `tokenizer` must outlive it. Ids of `ends` have no text.
  WrittenText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
              std::vector<std::string> stop, std::vector<std::int32_t> ends);

  // The text that is certain after this token: whole UTF-8 characters, nothing that may begin a
  // stop word. Bytes that are no characters are U+FFFD. `finish` is that of the token.
  std::string push(const GeneratedToken& token, FinishReason finish);

  // A stop word was met, or the last token was pushed.
  bool finished() const { return reason_ != FinishReason::kNone; }
  FinishReason reason() const { return reason_; }
  const std::string& text() const { return text_; }
  const std::vector<GeneratedToken>& tokens() const { return tokens_; }

 private:
  StreamDecoder decoder_;
  StopWords stop_;
  std::vector<std::int32_t> ends_;
  std::vector<GeneratedToken> tokens_;
  std::string text_;
  FinishReason reason_ = FinishReason::kNone;
};

}  // namespace piton
