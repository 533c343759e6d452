// Options of `piton train-tokenizer` for the kind of tokenizer.
//
//   --algorithm      pieces                                 pre-tokenizers       normalizer
//   byte-level-bpe   merges of bytes (GPT-2, LLaMA-3,       gpt2, llama3, qwen2  none
//                    Qwen)
//   bpe              merges of characters; others are       metaspace            none
//                    bytes <0x00> .. <0xFF> (LLaMA)
//   unigram          likely parts of words (T5, ALBERT)     metaspace            nmt nfkc spaces
//   wordpiece        merges, "##" inside of words (BERT)    bert, whitespace     bert
//
// The first pre-tokenizer and the normalizer of a row are the defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"

namespace piton {

enum class VocabularyAlgorithm { kByteLevelBpe, kBpe, kUnigram, kWordPiece };

struct TokenizerTrainingOptions {
  VocabularyAlgorithm algorithm = VocabularyAlgorithm::kByteLevelBpe;
  std::int64_t vocab_size = 32000;
  std::int64_t min_frequency = 2;
  std::optional<std::int64_t> limit_alphabet;
  std::string pre_tokenizer;            // "": by the algorithm
  std::vector<std::string> normalizer;  // none: by the algorithm
  bool split_digits = false;
  std::vector<std::string> special_tokens;  // none: by the algorithm
  std::string bos_token;                    // "": by its usual name, if there is one
  std::string eos_token;
  std::string unk_token;
  std::string pad_token;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"algorithm", "algorithm that learns the vocabulary"},
      Choice(algorithm, {{"byte-level-bpe", VocabularyAlgorithm::kByteLevelBpe},
                         {"bpe", VocabularyAlgorithm::kBpe},
                         {"unigram", VocabularyAlgorithm::kUnigram},
                         {"wordpiece", VocabularyAlgorithm::kWordPiece}}));
    v(Option{"vocab-size", "size of the vocabulary, with special tokens and alphabet"}, vocab_size);
    v(Option{"min-frequency",
             "smallest number of occurrences of a pair that becomes a piece (not for unigram)"},
      min_frequency);
    v(Option{"limit-alphabet",
             "largest number of characters; the most frequent ones are kept (not for "
             "byte-level-bpe)"},
      limit_alphabet);
    v(Option{"pre-tokenizer",
             "rule that splits text into words; no piece crosses words (default: by algorithm)",
             {.choices = {"gpt2", "llama3", "qwen2", "metaspace", "bert", "whitespace"}}},
      pre_tokenizer);
    v(Option{"normalizer",
             "steps applied to the text first, in order: none, nfc, nfd, nfkc, nfkd, nmt, "
             "lowercase, strip-accents, spaces, bert, bert-cased (default: by algorithm)",
             {.placeholder = "STEP"}},
      normalizer);
    v(Option{"split-digits", "make each digit a separate word"}, split_digits);
    v(Option{"special-tokens",
             "special tokens, which get the first ids in this order (default: by algorithm)",
             {.placeholder = "TOKEN"}},
      special_tokens);
    v(Option{"bos-token",
             "special token at the beginning of a text (default: <s>)",
             {.placeholder = "TOKEN"}},
      bos_token);
    v(Option{"eos-token",
             "special token at the end of a text (default: </s> or <|endoftext|>)",
             {.placeholder = "TOKEN"}},
      eos_token);
    v(Option{"unk-token",
             "special token for text without a piece (default: <unk> or [UNK])",
             {.placeholder = "TOKEN"}},
      unk_token);
    v(Option{"pad-token",
             "special token for padding (default: <pad> or [PAD])",
             {.placeholder = "TOKEN"}},
      pad_token);
  }
};

}  // namespace piton
