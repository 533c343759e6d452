// A small decoder without attention, divided into chunks, for tests of code that runs models: token
// embedding, blocks of norm, linear, activation, linear, and a head with its loss. Initial values
// depend only on the parameter's name, so every division starts from the same weights. fp32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "nn/chunk.h"
#include "ops/activation.h"
#include "ops/embedding.h"
#include "ops/linear/linear.h"
#include "ops/norm.h"

namespace piton::test {

struct SmallModelSizes {
  std::int64_t vocabulary = 24;
  std::int64_t hidden = 16;
  std::int64_t ffn = 40;
  int blocks = 8;
  bool tied = false;  // embedding and head share their table
};

class SmallChunk final : public Chunk {
 public:
  SmallChunk(const SmallModelSizes& sizes, const ChunkPlace& place, ParameterList& parameters,
             Communicator& alone)
      : sizes_(sizes),
        alone_(&alone),
        chunks_(place.chunks()),
        first_(place.first()),
        last_(place.last()),
        parameters_(&parameters) {
    const int chunk = place.index;
    const int chunks = place.chunks();
    std::vector<int> tied_stages = place.stages_of_ends();
    if (!sizes.tied || tied_stages.size() == 1) tied_stages.clear();
    if (first_) {
      embedding_ = &add("embedding", {sizes.vocabulary, sizes.hidden},
                        sizes.tied ? tied_stages : std::vector<int>{});
    }
    for (int b = sizes.blocks * chunk / chunks; b < sizes.blocks * (chunk + 1) / chunks; ++b) {
      const std::string prefix = "blocks." + std::to_string(b);
      blocks_.push_back(
          {&add(prefix + ".norm", {sizes.hidden}), &add(prefix + ".up", {sizes.ffn, sizes.hidden}),
           &add(prefix + ".bias", {sizes.ffn}), &add(prefix + ".down", {sizes.hidden, sizes.ffn})});
    }
    if (!last_) return;
    head_ = &add(sizes.tied ? "embedding" : "head", {sizes.vocabulary, sizes.hidden}, tied_stages);
  }

  std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const override {
    if (chunk + 1 == chunks_) return {};
    return {{DType::kF32, {input.samples * input.sequence, sizes_.hidden}}};
  }

  void add_layers(KvCache& /*cache*/) const override {}

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    Value x = first_
                  ? token_embedding(context, input.tokens, {.table = *embedding_, .group = *alone_})
                  : inputs.at(0);
    for (const Block& block : blocks_) {
      x = rms_norm(context, x, *block.norm, {.eps = 1e-5});
      x = column_linear(context, x, {*block.up, *alone_, {}},
                        {.bias = block.bias, .activation = ActivationKind::kGeluTanh});
      x = row_linear(context, x, {*block.down, *alone_, {}}, {});
    }
    if (!last_) return {.boundary = {x}};
    LossInputs loss = input.loss;
    loss.valid = sizes_.vocabulary;
    LossOutput output = head_loss(context, x, *head_, loss, {.group = *alone_});
    return {.sums = {{std::string(kLossSum), output.sum}}};
  }

  // The initial rows of `parameter`.
  static Tensor initial_rows(const Parameter& parameter) {
    Tensor rows = host_tensor(parameter.dtype, parameter.shape);
    std::uint64_t state = 88172645463325252ULL;
    for (const char c : parameter.name)
      state = (state ^ static_cast<unsigned char>(c)) * 0x9E3779B97F4A7C15ULL;
    for (std::int64_t i = 0; i < rows.elements(); ++i) {
      state ^= state << 13;  // xorshift
      state ^= state >> 7;
      state ^= state << 17;
      const double uniform = static_cast<double>(state >> 11) * 0x1.0p-53 - 0.5;
      rows.data<float>()[i] =
          static_cast<float>(parameter.shape.ndim() == 1 ? 1 + 0.2 * uniform : uniform);
    }
    return rows;
  }

 private:
  struct Block {
    Parameter* norm;
    Parameter* up;
    Parameter* bias;
    Parameter* down;
  };

  Parameter& add(std::string name, Shape shape, std::vector<int> tied_stages = {}) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.shape = shape;
    parameter.placement[Axis::kData].gradient_is_partial = true;
    parameter.placement[Axis::kContext].gradient_is_partial = true;
    parameter.placement[Axis::kPipeline].gradient_is_partial = !tied_stages.empty();
    parameter.tied_stages = std::move(tied_stages);
    Parameter& found = parameters_->find_or_add(std::move(parameter));
    found.contributions += 1;
    return found;
  }

  SmallModelSizes sizes_;
  Communicator* alone_;
  int chunks_;
  bool first_;
  bool last_;
  ParameterList* parameters_;
  Parameter* embedding_ = nullptr;
  std::vector<Block> blocks_;
  Parameter* head_ = nullptr;
};

// Micro-batch number `index` of the global batch, in host memory.
inline ModelInput small_input(const SmallModelSizes& sizes, std::int64_t index,
                              std::int64_t samples = 2, std::int64_t sequence = 5) {
  ModelInput input{.samples = samples, .sequence = sequence};
  const std::int64_t n = samples * sequence;
  input.tokens = host_tensor(DType::kI32, {n});
  input.positions = host_tensor(DType::kI32, {n});
  input.loss.labels = host_tensor(DType::kI32, {n});
  input.loss.mask = host_tensor(DType::kF32, {n});
  input.loss.scale = host_tensor(DType::kF32, {1});
  input.loss.scale.data<float>()[0] = 1.0F / 64;
  for (std::int64_t i = 0; i < n; ++i) {
    input.tokens.data<std::int32_t>()[i] =
        static_cast<std::int32_t>((index * 31 + i * 7) % sizes.vocabulary);
    input.positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % sequence);
    input.loss.labels.data<std::int32_t>()[i] =
        static_cast<std::int32_t>((index * 5 + i * 11) % sizes.vocabulary);
    input.loss.mask.data<float>()[i] = (index + i) % 4 == 0 ? 0.0F : 1.0F;
  }
  return input;
}

}  // namespace piton::test
