// The vocabulary of a GGUF file with few tokens.
#pragma once

#include <cstddef>
#include <string>

#include "gguf/vocabulary/vocabulary.h"

namespace piton::test {

// <unk>, <s>, </s>, and letters as pieces of SentencePiece: `size` tokens, at least 4.
inline GgufVocabulary small_vocabulary(std::size_t size) {
  GgufVocabulary vocabulary{
      .model = "llama",
      .tokens = {"<unk>", "<s>", "</s>"},
      .kinds = {TokenKind::kUnknown, TokenKind::kControl, TokenKind::kControl},
      .bos = 1,
      .eos = 2,
      .unk = 0,
      .add_bos = true,
      .chat_template = "{{ messages }}"};
  for (std::size_t id = 3; id < size; ++id) {
    const std::size_t letter = id - 3;
    vocabulary.tokens.push_back(letter < 26 ? std::string(1, static_cast<char>('a' + letter))
                                            : "word" + std::to_string(letter));
    vocabulary.kinds.push_back(TokenKind::kNormal);
  }
  for (std::size_t id = 0; id < size; ++id) vocabulary.scores.push_back(-static_cast<float>(id));
  return vocabulary;
}

}  // namespace piton::test
