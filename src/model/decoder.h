// A decoder-only transformer, one chunk of it: written once, over shards, for every family.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/layout.h"
#include "nn/chunk.h"
#include "nn/kv_cache.h"

namespace piton {

// Layers [begin, end) with the embedding (first) and the final norm, head and loss (last).
struct ChunkRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool first = true;
  bool last = true;
};

class Decoder : public Chunk {
 public:
  // logits of the last positions, without a loss: generation. tokens int32 [b*s] behind `cache`.
  virtual Tensor logits(Context& context, const ModelInput& input, KvCache* cache) = 0;
  virtual const ModelConfig& config() const = 0;
};

// Declares the parameters (no memory yet) and the layers. `stages_of_ends`: the stages of the first and
// of the last chunk, which share a tied embedding.
std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const ModelLayout& layout,
                                      const ChunkRange& range, Device& device, Stream& stream);

// Layers of chunk `chunk` of `chunks`, as equal as they come.
ChunkRange chunk_range(const ModelConfig& config, int chunk, int chunks);

}  // namespace piton
