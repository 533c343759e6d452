#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_folder.h"
#include "text/files/tokenizer_options.h"
#include "text/files/vocabulary_files.h"
#include "text/steps/pipeline_tokenizer.h"

namespace piton {

std::vector<std::string> TokenizerOptions::types() {
  return {"PretrainedFromHF",          "GPT2BPETokenizer",       "BertWordPieceLowerCase",
          "BertWordPieceCase",         "SentencePieceTokenizer", "Llama2Tokenizer",
          "GPTSentencePieceTokenizer", "TikTokenizer",           "ByteTokenizer",
          "HuggingFaceTokenizer",      "Llama3Tokenizer",        "NullTokenizer"};
}

namespace {

// Returns `value`, else `other`. Throws if both are empty: the type needs this file or folder.
const std::string& need(const std::string& value, const std::string& other, const char* flag,
                        const std::string& type) {
  if (!value.empty()) return value;
  if (!other.empty()) return other;
  throw Error(Fault::kUsage, "tokenizer: --tokenizer-type {} needs {}; give it", type, flag);
}

constexpr std::int64_t kMostExtraIds = 1 << 24;  // each is a token that is held in memory

std::string chosen_type(const TokenizerOptions& options) {
  if (!options.type.empty()) {
    const std::vector<std::string> types = TokenizerOptions::types();
    if (options.type == "HuggingFaceTokenizer" || options.type == "Llama3Tokenizer") {
      return "PretrainedFromHF";
    }
    if (options.is_null()) {
      throw Error(Fault::kUsage,
                  "tokenizer: --tokenizer-type NullTokenizer makes no ids; it is for training on "
                  "corpora with --vocab-size");
    }
    if (std::find(types.begin(), types.end(), options.type) != types.end()) return options.type;
    const std::string meant = nearest_name(options.type, types);
    throw Error(Fault::kUsage, "tokenizer: --tokenizer-type: got \"{}\", wanted one of {}{}",
                options.type, fmt::join(types, ", "),
                meant.empty() ? "" : "; did you mean " + meant + "?");
  }
  if (!options.name_or_path.empty()) return "PretrainedFromHF";
  if (!options.merge_file.empty()) return "GPT2BPETokenizer";
  if (options.vocab_file.ends_with(".model")) return "SentencePieceTokenizer";
  if (options.vocab_file.ends_with(".tiktoken")) return "TikTokenizer";
  if (options.vocab_file.ends_with(".txt")) return "BertWordPieceLowerCase";  // pretrain_bert.py's
  throw Error(
      Fault::kUsage,
      "tokenizer: none is given; give --tokenizer-name-or-path DIR, or --tokenizer-type and "
      "its files (ByteTokenizer needs none)");
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerOptions& options) {
  const std::string type = chosen_type(options);
  check_range("--vocab-extra-ids", options.vocab_extra_ids, 0, kMostExtraIds);
  const bool bert = type.starts_with("BertWordPiece");
  if (options.vocab_extra_ids > 0 && !bert) {
    throw Error(Fault::kUsage,
                "tokenizer: --vocab-extra-ids works only with BertWordPieceLowerCase and "
                "BertWordPieceCase, not with {}; leave it out",
                type);
  }
  if (type == "ByteTokenizer") return std::make_unique<ByteTokenizer>();
  if (type == "PretrainedFromHF") {
    return open_tokenizer_folder(
        need(options.name_or_path, "", "--tokenizer-name-or-path DIR", type), options.not_use_fast);
  }
  if (type == "GPT2BPETokenizer") {
    if (options.vocab_file.empty() && options.merge_file.empty() && !options.name_or_path.empty()) {
      return open_tokenizer_folder(options.name_or_path, false);
    }
    const std::string& vocabulary = need(options.vocab_file, "", "--vocab-file FILE", type);
    const std::string& merges = need(options.merge_file, "", "--merge-file FILE", type);
    return std::make_unique<PipelineTokenizer>(
        read_byte_bpe(read_text_file(vocabulary, kVocabularyFileLimit),
                      read_text_file(merges, kVocabularyFileLimit), {}, vocabulary, merges));
  }
  if (bert) {
    WordPieceFamily family;
    family.megatron = true;
    family.lowercase = type == "BertWordPieceLowerCase";
    family.extra_ids = options.vocab_extra_ids;
    const std::string& file =
        need(options.vocab_file, options.name_or_path, "--vocab-file FILE", type);
    return std::make_unique<PipelineTokenizer>(
        read_word_piece(read_text_file(file, kVocabularyFileLimit), family, file));
  }
  // The other types read one file; its extension tells the format.
  return open_tokenizer_folder(need(options.name_or_path, options.vocab_file,
                                    "--vocab-file FILE or --tokenizer-name-or-path PATH", type),
                               type != "TikTokenizer");
}

std::int64_t padded_vocabulary_size(std::int64_t vocabulary, const TokenizerOptions& options,
                                    std::int64_t tensor_parallel) {
  PITON_ASSERT(vocabulary > 0 && tensor_parallel > 0);
  check_range("--padded-vocab-size (--pad-vocab-size-to)", options.pad_vocab_size_to, 0,
              kLargestSize);
  if (options.pad_vocab_size_to > 0) {
    if (options.pad_vocab_size_to < vocabulary) {
      throw Error(Fault::kUsage,
                  "vocabulary: --padded-vocab-size (--pad-vocab-size-to) is too small: got {}, "
                  "wanted at least the {} "
                  "tokens of the vocabulary; raise it or leave it out",
                  options.pad_vocab_size_to, vocabulary);
    }
    if (options.pad_vocab_size_to % tensor_parallel != 0) {
      throw Error(Fault::kUsage,
                  "vocabulary: --padded-vocab-size (--pad-vocab-size-to) cannot be split: got {}, "
                  "wanted a multiple of "
                  "the {} tensor ranks; try {}",
                  options.pad_vocab_size_to, tensor_parallel,
                  (options.pad_vocab_size_to / tensor_parallel + 1) * tensor_parallel);
    }
    return options.pad_vocab_size_to;
  }
  check_range("--make-vocab-size-divisible-by", options.make_vocab_size_divisible_by, 1,
              kLargestSize);
  const std::int64_t multiple = options.make_vocab_size_divisible_by * tensor_parallel;
  const std::int64_t padded = (vocabulary + multiple - 1) / multiple * multiple;
  check_range("--make-vocab-size-divisible-by: the padded vocabulary", padded, 1, kLargestSize);
  return padded;
}

}  // namespace piton
