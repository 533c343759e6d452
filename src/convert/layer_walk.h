// Runs a model layer by layer in fp32, with only one layer (and the embedding, or the head) in
// memory: prompts through one layer, then through the next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "comm/mesh.h"
#include "model/config.h"
#include "model/model_factory.h"
#include "nn/chunk.h"
#include "session/machine.h"

namespace piton {

// Sees the product of each matrix of a layer with its inputs x [n, in], fp32, on `stream`.
using SeenInputs =
    std::function<void(const Parameter& matrix, const Tensor& x, Kernels& kernels, Stream& stream)>;

class LayerWalk {
 public:
  // Prompts are ids from position 0 on. Asserts that there is one.
  LayerWalk(const Machine& machine, Mesh& mesh, const ModelConfig& model,
            std::vector<std::vector<std::int32_t>> prompts);

  // A layer at a time; a model of an encoder and a decoder as a whole.
  int chunks() const { return model_.encoder_decoder ? 1 : static_cast<int>(model_.layers); }

  // Loads chunk number `index` from `source` and runs it on the outputs of the chunk before. With
  // `seen`, which is called for all products, the outputs are not kept: the chunk runs again.
  void run(int index, TensorSource& source, const SeenInputs& seen = {});

  // Of the last chunk that ran, for a prompt: hidden states [n, hidden], or logits.
  const std::vector<float>& output(std::size_t prompt) const { return outputs_[prompt]; }

 private:
  struct Pass {
    const ChunkPlace& place;
    bool keeps_output;
  };
  std::vector<float> forward(Chunk& chunk, Context& context, const Pass& pass, std::size_t prompt);

  Machine machine_;
  Mesh& mesh_;
  ModelConfig model_;
  std::vector<std::vector<std::int32_t>> prompts_;
  ModelLayout layout_;
  std::vector<std::vector<float>> outputs_;  // by prompt
};

}  // namespace piton
