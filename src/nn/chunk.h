// The pipeline's view of a model. A chunk is a run of consecutive layers. Its forward pass takes
// the boundary tensors of the previous chunk and returns those for the next one, and the results
// that the input asks for. A boundary is a list of tensors.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/context/context_attention.h"
#include "ops/context/context_group.h"
#include "ops/head_loss.h"
#include "ops/parameter.h"
#include "ops/tape.h"

namespace piton {

class KvCache;

// The results that a forward pass returns in addition to its boundary. The last chunk computes all
// of them.
struct Wanted {
  bool loss = true;           // the sum named "loss"; needs ModelInput::loss
  bool token_losses = false;  // the loss of each token; only together with `loss`
  bool logits = false;
  bool hidden = false;      // hidden states: the output of the final norm
  bool all_hidden = false;  // those of all rows, whatever `rows` says; only decoders
  bool pooled = false;      // of an encoder with a pooler: its output
  // The rows of the micro-batch whose logits and hidden states are returned: int32 [k], numbers
  // from 0 to b*s - 1 in any order. Empty: all rows, in order.
  Tensor rows;
};

// What only encoders read of a micro-batch.
struct EncoderInput {
  Tensor types;  // int32 [b*s]: which part of its text a token is of
  // The rows that have a label, which are all that the head for words computes: int32 [k]; their
  // labels int32 [k], and the weight of each fp32 [k]. Filled up with row 0, without a label.
  Tensor word_rows;
  Tensor word_labels;
  Tensor word_mask;
  Tensor word_targets;  // of the same rows, or empty (LossInputs::targets)
  Tensor first_rows;    // int32 [b]: the first row of each sample
  // The order of the two parts of each sample: int32 [b], 0 or 1, below 0 where there is none; and
  // fp32 [b], the weight of each in the sum kPairLossSum.
  Tensor pair_labels;
  Tensor pair_weights;
};

// What a model with an encoder and a decoder reads in addition: the texts of the encoder, each with
// padding at its end. Its tokens, labels and positions are those of the decoder. With a cache, only
// the first pass after SourceCache::set() has a text.
struct SourceInput {
  std::int64_t sequence = 0;  // ss
  Tensor tokens;              // int32 [b*ss]
  Tensor positions;           // int32 [b*ss], for learned embeddings
  Tensor lengths;             // int32 [b]: tokens of each text, without padding
};

// What a layer that predicts later tokens reads (nn/later_tokens.h): each row has what the layer
// before reads of the next row of its text, and the last row of a text has nothing.
struct LaterTokens {
  Tensor tokens;     // int32 [b*s]; 0 where there is none
  Tensor positions;  // int32 [b*s], for learned embeddings
  LossInputs loss;
};

// One micro-batch on the device.
struct ModelInput {
  std::int64_t samples = 0;   // b
  std::int64_t sequence = 0;  // s; under context parallelism this rank's rows of a sample
  Tensor tokens;              // int32 [b*s]
  Tensor positions;           // int32 [b*s], for learned and rotary embeddings
  Tensor segments;            // int32 [b, s] or empty: packed documents. Not under context
                              // parallelism
  // fp32 [b*s] or empty: the bound of the noise on the embedding of each row, in training passes of
  // decoders (session/embedding_noise.h).
  Tensor noise;
  LossInputs loss;  // labels, mask, scale; only the last chunk reads them
  // Of each layer that predicts later tokens, in training passes, and of the first one for
  // Chunk::later_tokens(); only the last chunk reads them.
  std::vector<LaterTokens> later;
  // fp32 (fp64) [1]: loss scale / rows of the global batch, the gradient of the balance of experts
  // of a row. Empty: the balance is not part of the loss.
  Tensor balance_scale;
  bool limits_experts = false;  // Context::limits_experts
  MaskRows rows;                // coordinates for drawing dropout masks
  Wanted wanted;
  // Keys and values of earlier tokens, for each layer of this stage; the pass appends its own
  // (nn/kv_cache.h). Then the input is one sample of all rows of the pass. Null: no cache. A pass
  // with a cache must not have a tape.
  KvCache* cache = nullptr;
  // Places of queries and keys within their samples, where they are not 0, 1, 2, ...: int32 [b, s]
  // or empty. Only decoders read them.
  Tensor query_positions;
  Tensor key_positions;
  Tensor query_reach;  // AttentionPlaces::query_reach, or empty; only decoders read it
  // Of rows that are divided over context ranks, by ContextExchange; those of others are empty.
  std::array<ContextPlaces, kContextExchanges> of_ranks;
  EncoderInput encoder;
  SourceInput source;
  std::vector<AdapterRows> adapter_rows;  // Context::adapter_rows; only decoders read them
};

struct BoundaryTensor {
  DType dtype = DType::kF32;
  Shape shape;
};

// A sum over this micro-batch: fp64 [1]. If it has a gradient, it is a term of the loss that the
// step minimizes. Its gradient may be seeded with any tensor: the op that computed the sum applies
// the scale itself.
struct NamedSum {
  std::string name;
  Value value;
};

inline constexpr std::string_view kLossSum = "loss";  // sum of mask * loss over the tokens
// With a teacher: sum of mask * divergence from it. It has no gradient: the loss contains it.
inline constexpr std::string_view kDivergenceSum = "divergence";
// The balance of experts of each layer, times the rows of the micro-batch. It has no gradient: the
// layers add that of the balance themselves (ops/experts/routing.h).
inline constexpr std::string_view kBalanceSum = "balance of experts";
// The z-loss of the routers of each layer, summed over the rows. It has no gradient, as above.
inline constexpr std::string_view kZLossSum = "z-loss of routers";
// Of layer `layer` of those that predict later tokens, from 0: sum of mask * loss.
std::string later_loss_sum(std::int64_t layer);
// Sum of weight * loss over the samples: of the order of their parts.
inline constexpr std::string_view kPairLossSum = "pair loss";

struct ChunkOutput {
  std::vector<Value> boundary;  // for the next chunk, as boundary() gives them; empty for the last
  std::vector<NamedSum> sums;   // the loss (last chunk) and auxiliary losses (any chunk)
  // The results selected by ModelInput::wanted. Only the last chunk sets these.
  Tensor token_losses;  // fp32 (fp64) [b*s], before the mask
  Tensor logits;        // fp32 (fp64) [k, padded V / t]: split over the tensor ranks
  Tensor hidden;        // [k, h], whole on every tensor rank
  Tensor pooled;        // [b, h], whole on every tensor rank
};

class Chunk {
 public:
  virtual ~Chunk() = default;
  // Dtypes and shapes of the tensors that chunk number `chunk` of the model passes to the next one
  // for this input. Any chunk can answer for any other one. They depend only on the configuration
  // and on the sizes in `input`. Empty for the last chunk. The decoder passes one tensor [b*s, h],
  // under sequence parallelism [b*s/t, h].
  virtual std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const = 0;
  // Runs the layers of this chunk. `inputs`: the boundary tensors of the previous chunk, as leaves
  // of context.tape if there is a tape; empty for the first chunk. boundary() gives their shapes.
  virtual ChunkOutput forward(Context& context, const ModelInput& input,
                              const std::vector<Value>& inputs) = 0;
  // Of the last chunk: logits [k, padded V / t] of rows [k, h] of ChunkOutput::hidden.
  // Empty for models without a head.
  virtual Tensor head_logits(Context& /*context*/, const Tensor& /*hidden*/) const { return {}; }
  // Of the last chunk of a model with layers that predict later tokens: the first of them, for rows
  // of a pass with a cache. `hidden` [n, h]: their hidden states, or its own output of the row
  // before; input.later[0]: what it reads of the next token. Logits and hidden states, its outputs,
  // are those of input.wanted.rows. The model's own output is not computed.
  virtual ChunkOutput later_tokens(Context& /*context*/, const ModelInput& /*input*/,
                                   const Tensor& /*hidden*/) {
    return {};
  }
  // Adds the layers of this chunk to the key-value cache of the stage.
  virtual void add_layers(KvCache& cache) const = 0;
  // Adds the layer that later_tokens() runs, if the model has one.
  virtual void add_later_layer(KvCache& /*cache*/) const {}
};

// The place of a chunk in the model. `stage_of_chunk[i]` is the pipeline stage of chunk number i.
struct ChunkPlace {
  int index = 0;
  std::vector<int> stage_of_chunk{0};

  int chunks() const { return static_cast<int>(stage_of_chunk.size()); }
  int stage() const { return stage_of_chunk[static_cast<std::size_t>(index)]; }
  bool first() const { return index == 0; }
  bool last() const { return index == chunks() - 1; }
  // The stages of the first and the last chunk, in ascending order; one entry if they are equal.
  // Weights that both chunks use are tied over these stages.
  std::vector<int> stages_of_ends() const;
};

// What a chunk is made from. It looks up its parameters in the stage's list and adds those that are
// missing, so chunks of one stage that use the same weight share it.
struct ChunkSetup {
  ParameterList& parameters;
  Device& device;
  Arena& arena;
  Stream& stream;
};

using ChunkFactory =
    std::function<std::unique_ptr<Chunk>(const ChunkPlace& place, const ChunkSetup& setup)>;

}  // namespace piton
