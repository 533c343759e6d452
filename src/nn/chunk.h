// All that a pipeline sees of a model: a chunk takes boundary tensors and gives boundary tensors,
// and what the micro-batch was asked for. A boundary is a list of tensors (an encoder-decoder
// passes two).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/head_loss.h"
#include "ops/parameter.h"
#include "ops/tape.h"

namespace piton {

class KvCache;

// What a forward pass gives beside its boundaries. All of it comes from the last chunk.
struct Wanted {
  bool loss = true;           // the sum "loss": labels and mask are given
  bool token_losses = false;  // the loss of each token, too
  bool logits = false;
  bool hidden = false;  // what the head reads: the final norm's output
  // Which rows of the micro-batch logits and hidden states are wanted of: int32 [k], numbers from 0
  // to b*s - 1 in any order. Empty: all rows, in order.
  Tensor rows;
};

// Names of ModelInput::extras.
inline constexpr std::string_view kQueryPositions = "query positions";  // int32 [b, s]
inline constexpr std::string_view kKeyPositions = "key positions";      // int32 [b, s]

// One micro-batch on the device.
struct ModelInput {
  std::int64_t samples = 0;   // b
  std::int64_t sequence = 0;  // s
  Tensor tokens;              // int32 [b*s]
  Tensor positions;           // int32 [b*s], of learned and rotary embeddings
  Tensor segments;            // int32 [b, s] or empty: packed documents
  LossInputs loss;            // labels, mask, scale; used by the last chunk
  MaskRows rows;              // for mask draws
  Wanted wanted;
  // Keys and values of earlier tokens, for each layer of this stage; null: there are none. The pass
  // appends its own (nn/kv_cache.h). Without a tape only.
  KvCache* cache = nullptr;
  // Inputs that only some models read, by name.
  std::map<std::string, Tensor, std::less<>> extras;

  // The extra of this name; empty where it was not given.
  Tensor extra(std::string_view name) const {
    const auto found = extras.find(name);
    return found != extras.end() ? found->second : Tensor();
  }
};

struct BoundaryTensor {
  DType dtype = DType::kF32;
  Shape shape;
};

// A sum over this micro-batch: fp64 [1]. Where a gradient flows to it, it is a part of what the
// step minimizes; any tensor seeds it, since the op that made it knows its scale.
struct NamedSum {
  std::string name;
  Value value;
};

inline constexpr std::string_view kLossSum = "loss";  // sum of mask * loss over the tokens

struct ChunkOutput {
  std::vector<Value> boundary;  // to the next chunk; empty for the last
  std::vector<NamedSum> sums;   // of any chunk: the loss of the last one, auxiliary losses of each
  // What ModelInput::wanted asks for, of the last chunk.
  Tensor token_losses;  // fp32 (fp64) [b*s], before the mask
  Tensor logits;        // fp32 (fp64) [rows, padded vocabulary / t]: split over the tensor ranks
  Tensor hidden;        // [rows, h], whole on every tensor rank
};

class Chunk {
 public:
  virtual ~Chunk() = default;
  // What chunk `chunk` of the model, on whatever stage, gives to the next one for this micro-batch:
  // a function of the configuration and of the input's sizes alone. The last one gives nothing.
  virtual std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const = 0;
  // `inputs`: leaves of context.tape that came from the previous chunk; empty for the first.
  virtual ChunkOutput forward(Context& context, const ModelInput& input,
                              const std::vector<Value>& inputs) = 0;
  // Adds the layers of this chunk to the stage's cache.
  virtual void add_layers(KvCache& cache) const = 0;
};

// Where a chunk is: number `index` of the chunks that `stage_of_chunk` maps to stages.
struct ChunkPlace {
  int index = 0;
  std::vector<int> stage_of_chunk{0};

  int chunks() const { return static_cast<int>(stage_of_chunk.size()); }
  bool first() const { return index == 0; }
  bool last() const { return index == chunks() - 1; }
  // The stages of the first and of the last chunk, ascending: one where they meet. Weights that
  // both ends use are tied over them.
  std::vector<int> stages_of_ends() const;
};

// What a chunk is made with. It finds its parameters in the stage's list, or adds them: chunks of
// one stage that use the same weight share it.
struct ChunkSetup {
  ParameterList& parameters;
  Device& device;
  Arena& arena;
  Stream& stream;
};

using ChunkFactory =
    std::function<std::unique_ptr<Chunk>(const ChunkPlace& place, const ChunkSetup& setup)>;

}  // namespace piton
