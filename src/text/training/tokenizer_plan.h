// A tokenizer.json without its vocabulary: the steps before and after the model, and the special
// tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/files/json_reading.h"
#include "text/training/training_options.h"

namespace piton {

struct TokenizerPlan {
  VocabularyAlgorithm algorithm = VocabularyAlgorithm::kByteLevelBpe;
  Json normalizer;  // null: none
  Json pre_tokenizer;
  Json decoder;
  std::vector<std::string> special_tokens;  // their ids are 0, 1, ...
  // Roles of special tokens, as in tokenizer_config.json: ("eos_token", "</s>"). unk_token is in
  // the list if the model needs one.
  std::vector<std::pair<std::string, std::string>> roles;

  // The token of a role, "" if none has it.
  std::string token_of(const std::string& role) const;
  // Special tokens, then the pieces of bytes.
  std::vector<std::string> first_pieces() const;
};

// Checks the options and fills in defaults. Throws Error(kUsage) for a size out of range, a
// duplicate special token, a role whose token is not special, a pre-tokenizer that does not fit the
// algorithm, or an unknown normalizer.
TokenizerPlan plan_tokenizer(const TokenizerTrainingOptions& options);

}  // namespace piton
