// The adapters of the products of experts (ops/experts/expert_linear.h). Those of a matrix are one
// parameter for the experts of a rank, A of all of them one above the other, and B as well. Their
// pieces are canonical, as of other matrices (nn/adapters.h):
//
//   layers.3.mlp.experts.7.down.lora_a [r, f]    layers.3.mlp.experts.7.down.lora_b [h, r]
//   layers.3.mlp.experts.7.gate_up.lora_a        ... .7.gate.lora_b and .7.up.lora_b
//
// An expert's adapter is where the expert is, and tensor ranks split it as they split its matrices.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/adapters.h"
#include "nn/shard.h"
#include "ops/experts/expert_linear.h"
#include "ops/experts/expert_rows.h"
#include "ops/experts/row_exchange.h"

namespace piton {

// One parameter of what `matrix` gives for each expert of this rank.
template <typename Matrix>
Parameter of_experts(const Shard& shard, std::string name, const ExpertRange& here,
                     const Matrix& matrix) {
  std::vector<Parameter> matrices;
  for (std::int64_t expert = here.first; expert < here.first + here.count; ++expert)
    matrices.push_back(matrix(expert));
  Parameter all = stacked(std::move(name), matrices);
  if (shard.experts->size() > 1)
    all.placement[Axis::kExpert] = {.kind = AxisPlacement::Kind::kSplit, .dim = 0};
  return all;
}

// Where the adapters of experts are made.
struct ExpertProducts {
  ParameterList& parameters;
  const Shard& shard;
  std::string name;  // of the mixture: "layers.3.mlp"
  ExpertRange here;
  const Adapters* adapters = nullptr;  // null: none; their `choices` have none of experts
};

// Of the matrices `parts` ("gate", "up") of an expert, next to each other, [rows, in] each, whose
// rows tensor ranks split.
std::vector<ExpertAdapter> adapters_of_first_product(const ExpertProducts& of,
                                                     const std::vector<RowPart>& parts,
                                                     std::int64_t in);

// Of the matrix "down" [out, in] of an expert, whose columns tensor ranks split.
std::vector<ExpertAdapter> adapters_of_last_product(const ExpertProducts& of, std::int64_t out,
                                                    std::int64_t in);

// What dropout multiplies elements of the input of a product with, for its adapters: [r, width] of
// `rows`, 0 or 1 / (1 - p) in the type of activations. Empty: there is no dropout in this pass. It
// is drawn for each token and column of the whole matrix, and all experts of a token have the same.
struct ExpertMask {
  std::string site;
  double probability = 0;
  std::int64_t tokens = 0;  // of this expert rank
  std::int64_t width = 0;
  std::int64_t first_column = 0;
};
// `exchange`: how tokens get to their experts; null: the expert ranks gather them.
Tensor drawn_mask(Context& context, const Shard& shard, const ExpertMask& mask,
                  const ExpertRows& rows, const RowExchange* exchange);

}  // namespace piton
