// How a model is divided over the mesh, and how its vocabulary is padded.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/mesh.h"
#include "model/config.h"
#include "ops/context/context_group.h"
#include "ops/linear/linear.h"
#include "ops/recompute.h"

namespace piton {

// Which layers multiply in FP8, and how.
struct Float8Rules {
  Float8Products products = {};
  std::int64_t first_in_bf16 = 0;  // so many of the first layers of a stack do not,
  std::int64_t last_in_bf16 = 0;   // nor of the last ones

  // Of a stack of `layers`, from 0.
  Float8Products of_layer(std::int64_t layer, std::int64_t layers) const {
    return layer < first_in_bf16 || layer >= layers - last_in_bf16 ? Float8Products() : products;
  }
};

// Options of the layout other than the sizes of the mesh.
struct LayoutOptions {
  LinearStrategy linears;                  // slices, sequence parallelism
  RecomputeRules recompute;                // what is computed again in backward
  Float8Rules float8;                      // of the linears of the layers
  std::int64_t vocabulary_multiple = 128;  // pad the vocabulary to a multiple of this x t,
  std::int64_t vocabulary_rows = 0;        // or to exactly this many rows, if above 0
  // Layers of each chunk of the model, in order; empty: equal numbers (LayerDivision).
  std::vector<std::int64_t> layers_of_chunks;
  // The first stage of the decoder of a model with an encoder, whose stages are those before it; 0:
  // the model is one chunk. Then layers_of_chunks has the layers of the encoder first.
  int split_stage = 0;
  ContextForms context;
  // Tokens go to the ranks of their experts alone (ops/experts/row_exchange.h); else expert ranks
  // gather all tokens.
  bool sends_rows_to_experts = false;
};

// Layers [begin, end) of the whole model.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }

  bool operator==(const LayerRange&) const = default;
};

// Which layers each chunk of a model has. Chunks have equal numbers of layers, unless these are
// given; if they do not divide, the first chunks have one more.
struct LayerDivision {
  std::int64_t layers = 0;  // of the model
  int chunks = 1;
  std::vector<std::int64_t> given = {};  // [chunks] or empty

  LayerRange of_chunk(int chunk) const;
  // How many layers each chunk has, the first one first.
  std::vector<std::int64_t> counts() const;
  std::int64_t most() const;  // of a chunk
  // The most that a chunk of each stage has. `stage_of_chunk` [chunks].
  std::vector<std::int64_t> most_of_stages(const std::vector<int>& stage_of_chunk) const;

  // Of a model of `chunks` chunks. If it is an encoder with a decoder in several, the layers are
  // those of the encoder, in the chunks before options.split_stage, and then those of the decoder.
  static LayerDivision of(const ModelConfig& config, const LayoutOptions& options, int chunks);
};

// The first of `stages` stages that has the decoder of a model with an encoder, where nobody says
// it: the encoder has about its share of the layers. 0 for one stage, and for other models.
int first_decoder_stage(const ModelConfig& config, int stages);

struct ModelLayout {
  Mesh* mesh = nullptr;
  LayoutOptions options;
  SharedRows* shared = nullptr;  // for fused linears of the tensor ranks; null: there are none

  std::int64_t padded_vocabulary(std::int64_t vocabulary) const;
  LayerDivision division(const ModelConfig& config, int chunks) const {
    return LayerDivision::of(config, options, chunks);
  }
  // How context ranks exchange rows in a layer of the model: under the gated delta rule by heads.
  ContextExchange exchange_of(const ModelConfig& config, std::int64_t layer) const;
  std::vector<ContextExchange> exchanges_of(const ModelConfig& config) const;  // of all layers
  // Collective on first use, as Mesh::group().
  ContextGroup context_group(ContextExchange exchange) const;
  // Throws Error(kUsage) that names the flag if heads, groups or the MLP's width are not divisible
  // by the tensor size, heads or groups not by the ranks that exchange heads, experts not by the
  // expert size, or if there are fewer layers than chunks (of an encoder with a decoder, in one of
  // both).
  void check(const ModelConfig& config, int chunks) const;

 private:
  void check_context(const ModelConfig& config) const;
  void check_context_heads(const ModelConfig& config, ContextExchange exchange) const;
  void check_experts(const ModelConfig& config) const;
  void check_layers(const ModelConfig& config, int chunks) const;
};

}  // namespace piton
