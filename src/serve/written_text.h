// The tokens of one text, as the text that a client gets.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/decoding_engine.h"
#include "generate/stop_words.h"
#include "text/tokenizer.h"

namespace piton {

// Of UTF-8.
std::int64_t characters(std::string_view text);

// Where the tokens of a text begin in it, in characters, as they are decoded one after another.
class TokenPlaces {
 public:
  // `tokenizer` must outlive it.
  explicit TokenPlaces(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // The place of the next token, with which the text `decoded` became certain.
  std::int64_t next(std::int32_t id, std::string_view decoded);

 private:
  const Tokenizer* tokenizer_;
  std::int64_t end_ = 0;  // of what is certain
  bool in_run_ = false;   // after a token whose text depends on the next ones
  std::string begun_;     // bytes of tokens whose text is not certain yet; ends inside a character
};

// A prompt as the client gets it back, without special tokens, and where each token begins in it,
// in characters: a token without text where the next one does, and all parts of a character where
// that does.
struct PromptText {
  std::string text;
  std::vector<std::int64_t> offsets;
};
PromptText prompt_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

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
  // The one that was met, or "".
  std::string stop_word() const { return std::string(stop_.word()); }
  const std::string& text() const { return text_; }
  const std::vector<GeneratedToken>& tokens() const { return tokens_; }
  // Of tokens(), as those of PromptText, in text(): those of a stop word are at its end.
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

 private:
  StreamDecoder decoder_;
  TokenPlaces places_;
  StopWords stop_;
  std::vector<std::int32_t> ends_;
  std::vector<GeneratedToken> tokens_;
  std::vector<std::int64_t> offsets_;
  std::string text_;
  FinishReason reason_ = FinishReason::kNone;
};

}  // namespace piton
