#include "base/error.h"
#include "text/byte_tokenizer.h"
#include "text/tokenizer_options.h"

namespace piton {

std::vector<std::string> TokenizerOptions::types() {
  return {"PretrainedFromHF",       "GPT2BPETokenizer", "BertWordPieceLowerCase",
          "BertWordPieceCase",      "SentencePieceTokenizer", "Llama2Tokenizer",
          "GPTSentencePieceTokenizer", "TikTokenizer",  "ByteTokenizer"};
}

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerOptions& options) {
  if (options.type == "ByteTokenizer") return std::make_unique<ByteTokenizer>();
  throw Error(Fault::kUsage,
              "tokenizer: kind is not readable: got \"{}\", wanted ByteTokenizer; "
              "give --tokenizer-type ByteTokenizer",
              options.type);
}

std::int64_t padded_vocabulary_size(std::int64_t vocabulary, const TokenizerOptions& options,
                                    std::int64_t tensor_parallel) {
  PITON_ASSERT(vocabulary > 0 && tensor_parallel > 0);
  if (options.pad_vocab_size_to > 0) {
    if (options.pad_vocab_size_to < vocabulary) {
      throw Error(Fault::kUsage,
                  "vocabulary: --pad-vocab-size-to is too small: got {}, wanted at least the {} "
                  "tokens of the vocabulary; raise it or leave it out",
                  options.pad_vocab_size_to, vocabulary);
    }
    if (options.pad_vocab_size_to % tensor_parallel != 0) {
      throw Error(Fault::kUsage,
                  "vocabulary: --pad-vocab-size-to cannot be split: got {}, wanted a multiple of "
                  "the {} tensor ranks; try {}",
                  options.pad_vocab_size_to, tensor_parallel,
                  (options.pad_vocab_size_to / tensor_parallel + 1) * tensor_parallel);
    }
    return options.pad_vocab_size_to;
  }
  if (options.make_vocab_size_divisible_by <= 0) {
    throw Error(Fault::kUsage,
                "vocabulary: --make-vocab-size-divisible-by: got {}, wanted at least 1; "
                "128 is the default",
                options.make_vocab_size_divisible_by);
  }
  const std::int64_t multiple = options.make_vocab_size_divisible_by * tensor_parallel;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

}  // namespace piton
