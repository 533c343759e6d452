// A session that holds the weights of a golden file (tools/oracle/models.py), and the file's batch.
#pragma once

#include "checkpoint/safetensors.h"
#include "session/session.h"
#include "support/tensors.h"

namespace piton::test {

// Sets the pieces of every parameter to the tensors "weight.NAME".
inline void set_golden_weights(Session& session, const SafetensorsFile& golden, Stream& stream) {
  for (Parameter* parameter : session.parameters()) {
    const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
    const std::int64_t columns = parameter->shape.ndim() > 1 ? parameter->shape[1] : 1;
    for (const Piece& piece : parameter->pieces) {
      std::int64_t at = piece.local_row * columns;
      for (const double value : values(golden.tensor("weight." + piece.name)))
        set_value(rows, at++, value);
    }
    session.sharded().set_value(*parameter, rows, stream);
  }
  session.publish_values();
}

inline MicroBatch golden_batch(const SafetensorsFile& golden) {
  const Tensor tokens = golden.tensor("tokens");
  const Tensor labels = golden.tensor("labels");
  const Tensor mask = golden.tensor("mask");
  MicroBatch batch{.samples = tokens.dim(0), .sequence = tokens.dim(1)};
  for (std::int64_t i = 0; i < tokens.elements(); ++i) {
    batch.tokens.push_back(tokens.data<std::int32_t>()[i]);
    batch.labels.push_back(labels.data<std::int32_t>()[i]);
    batch.loss_mask.push_back(mask.data<float>()[i]);
    batch.positions.push_back(static_cast<std::int32_t>(i % batch.sequence));
  }
  return batch;
}

}  // namespace piton::test
