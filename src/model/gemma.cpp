#include "model/families.h"

// Gemma (Gemma Team 2024, 2025, arXiv:2403.08295, 2408.00118, 2503.19786): LLaMA with an embedding
// times sqrt(h) that the head shares, GeGLU, and norm weights stored as gain - 1. Gemma 2 and 3
// also have norms at the ends of branches, and windows in most layers.
namespace piton {

ModelConfig gemma_facts() {
  ModelConfig config = llama_facts();
  config.family = "gemma";
  config.norm_eps = 1e-6;
  config.activation = ActivationKind::kGeluTanh;
  config.gains_from_one = true;
  config.scaled_embedding = true;
  config.tied = true;
  return config;
}

}  // namespace piton
