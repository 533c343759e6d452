#include "model/families.h"

// Bloom (BigScience 2022, arXiv:2211.05100): GPT-2 with ALiBi instead of a position table and with
// a norm after the embedding; no dropout.
namespace piton {

ModelConfig bloom_facts() {
  ModelConfig config = gpt2_facts();
  config.family = "bloom";
  config.positions = PositionKind::kAlibi;
  config.embedding_norm = true;
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
  return config;
}

}  // namespace piton
