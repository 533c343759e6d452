// A model without experts as the start of a mixture of experts, as Megatron-core's
// upcycling_utils.py makes it (He et al. 2024, arXiv:2410.07524).
//
// With granularity G the MLP of a layer, of width f, is cut into G slices of width f/G, and expert
// i is slice i mod G. The first E/G rows of the router are drawn as those of a new model, and each
// is that of G experts in a row: a token chooses all slices of an MLP together, if k is a multiple
// of G. Each matrix of an expert, and the bias of its first product, is multiplied with
//
//   (E G / k)^(1/n)    weights of the chosen experts are those among all (pre-softmax)
//   G^(1/n)            they add up to 1
//
// where n is 3 of a gated activation and of the square of relu, else 2. So with G = 1, and weights
// that add up to 1, experts are copies and the model is the same function as before; with G > 1 it
// is with relu and its square, and close to it otherwise.
#pragma once

#include <cstdint>

#include "model_files/opened_model.h"

namespace piton {

struct Upcycling {
  ExpertFacts experts;                     // with their width
  std::optional<std::int64_t> ffn_hidden;  // of layers without experts; unset: stays
  std::int64_t granularity = 1;
  std::uint64_t seed = 0;        // of the routers
  double init_deviation = 0.02;  // of them
  bool xavier_weights = false;   // in the deviation's place
};

// Replaces the MLPs of `opened` by experts. An MLP that all tokens share, and its gate, are drawn
// by the run (OpenedModel::drawn). Throws Error(kData) for a model that has experts or is no
// decoder, and Error(kUsage) if widths and numbers do not fit.
void make_experts(OpenedModel& opened, const Upcycling& wanted);

}  // namespace piton
