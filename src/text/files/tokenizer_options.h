// Options that choose a tokenizer and its files, and the padded vocabulary size of a model.
//
//   --tokenizer-type         reads
//   PretrainedFromHF         --tokenizer-name-or-path, a folder or a file: tokenizer.json, else
//                            tokenizer.model, else vocab.json + merges.txt, else vocab.txt, else
//                            *.tiktoken; with tokenizer_config.json and special_tokens_map.json.
//                            --tokenizer-not-use-fast prefers tokenizer.model
//   GPT2BPETokenizer         --vocab-file (vocab.json) and --merge-file (merges.txt)
//   BertWordPieceLowerCase   --vocab-file (vocab.txt), with [BOS], [EOS] and <extra_id_i> appended
//   BertWordPieceCase        the same, case kept
//   SentencePieceTokenizer   --vocab-file or --tokenizer-name-or-path: a tokenizer.model
//                            (Megatron's Llama2Tokenizer and GPTSentencePieceTokenizer are aliases)
//   TikTokenizer             --vocab-file or --tokenizer-name-or-path: base64 ranks, *.tiktoken
//   ByteTokenizer            nothing: 0 .. 255 are bytes, 256 ends a document
//   HuggingFaceTokenizer,    Megatron's and MindSpeed's names of PretrainedFromHF
//   Llama3Tokenizer
//   NullTokenizer            nothing: for runs that need only --vocab-size N. Ids are 0 .. N, and
//                            N ends a document
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "text/tokenizer.h"

namespace piton {

struct TokenizerOptions {
  std::string type;  // "": chosen from the other options
  std::string name_or_path;
  bool not_use_fast = false;
  std::string vocab_file;
  std::string merge_file;
  std::int64_t vocab_extra_ids = 0;
  std::int64_t make_vocab_size_divisible_by = 128;
  std::int64_t pad_vocab_size_to = 0;  // 0: by divisibility alone

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tokenizer-type",
             "kind of tokenizer (default: from its files)",
             {.choices = types(), .placeholder = "TYPE"}},
      type);
    v(Option{"tokenizer-name-or-path",
             "folder or file of the tokenizer, or a run or GGUF file that has one",
             {.aliases = {"tokenizer-model"}, .placeholder = "DIR"}},
      name_or_path);
    v(Option{"tokenizer-not-use-fast", "prefer tokenizer.model to tokenizer.json"}, not_use_fast);
    v(Option{"vocab-file",
             "vocabulary file: vocab.json, vocab.txt or *.model",
             {.placeholder = "FILE"}},
      vocab_file);
    v(Option{"merge-file",
             "file with the merges of a byte-level BPE: merges.txt",
             {.placeholder = "FILE"}},
      merge_file);
    v(Option{"vocab-extra-ids", "number of <extra_id_i> tokens to append", {.placeholder = "N"}},
      vocab_extra_ids);
    v(Option{"make-vocab-size-divisible-by",
             "divisor of the number of embedding rows on each tensor rank",
             {.placeholder = "N"}},
      make_vocab_size_divisible_by);
    v(Option{"pad-vocab-size-to",
             "exact number of embedding rows (0: by --make-vocab-size-divisible-by)",
             {.aliases = {"padded-vocab-size"}, .placeholder = "N"}},
      pad_vocab_size_to);
  }

  // The values of --tokenizer-type.
  static std::vector<std::string> types();

  // Whether no tokenizer is chosen: NullTokenizer, or neither type, path nor file.
  bool empty() const {
    return is_null() || (type.empty() && name_or_path.empty() && vocab_file.empty());
  }
  bool is_null() const { return type == "NullTokenizer"; }
};

// Reads the files. Throws Error(kUsage) for options that do not fit together (a type without its
// files) and Error(kData) for files that are missing, malformed or of an unknown kind.
std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerOptions& options);

// Rows of the embedding: the next multiple of `make_vocab_size_divisible_by` * `tensor_parallel`,
// or exactly `pad_vocab_size_to`. Throws Error(kUsage) if that is smaller than the vocabulary or
// not divisible by `tensor_parallel`.
std::int64_t padded_vocabulary_size(std::int64_t vocabulary, const TokenizerOptions& options,
                                    std::int64_t tensor_parallel = 1);

}  // namespace piton
