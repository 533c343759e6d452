// The input of a layer that predicts later tokens (multi-token prediction, MTP: DeepSeek-V3,
// arXiv:2412.19437, section 2.2, in the form of Megatron-core):
//
//   [norm(embedding of the next token) | norm(output of the layer before)] W^T
//
// Layer k predicts token i + k + 1 from row i. The layer before the first one is the model, with
// its final norm. A block and a norm follow (model/decoder.cpp); embedding and head are the
// model's.
//
// Every tensor rank has the whole W, as of other small projections: under sequence parallelism each
// multiplies its own rows, so nothing is sent; without it, each multiplies all rows.
#pragma once

#include <string>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/shard.h"

namespace piton {

struct LaterTokenShape {
  NormShape norm;  // of both inputs; its width: h
  Initialization initialization;
};

class LaterTokenInput {
 public:
  // Shard::alone must be given.
  LaterTokenInput(ParameterList& parameters, const Shard& shard, const std::string& name,
                  const LaterTokenShape& shape);
  // `tokens`: embeddings of the next tokens, [n, h]; `hidden` [n, h] -> [n, h] in the type of the
  // weights. n: this rank's rows.
  Value forward(Context& context, const Value& tokens, const Value& hidden) const;

 private:
  Shard shard_;
  Norm token_norm_;
  Norm hidden_norm_;
  Parameter* projection_;  // [h, 2 h]
};

}  // namespace piton
