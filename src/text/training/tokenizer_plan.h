// A tokenizer.json before its vocabulary is known: the steps around the model, and the tokens that
// are given.
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
  // Roles of special tokens, as in tokenizer_config.json: ("eos_token", "</s>"). Those of unk_token
  // are there wherever the model needs one.
  std::vector<std::pair<std::string, std::string>> roles;

  // The token of a role, "" if none has it.
  std::string token_of(const std::string& role) const;
  // Special tokens, then the pieces of bytes.
  std::vector<std::string> first_pieces() const;
};

// Checks the options and fills in what they leave open. Throws Error(kUsage): a size out of range,
// a special token twice, a role of no special token, a pre-tokenizer that does not go with the
// algorithm, an unknown normalizer.
TokenizerPlan plan_tokenizer(const TokenizerTrainingOptions& options);

}  // namespace piton
