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
  // fp32 (fp64) logits [rows, padded vocabulary / t] without a loss. With a cache, `input` holds
  // the tokens after those in it, and the cache advances; with `last_only` only each sample's last
  // row is computed ([b, ...]). First and last chunk in one.
  virtual Tensor logits(Context& context, const ModelInput& input, KvCache* cache,
                        bool last_only) = 0;
  virtual KvCache make_cache(Arena& arena, std::int64_t batch, std::int64_t capacity) const = 0;
  virtual const ModelConfig& config() const = 0;
};

// Declares the parameters (without memory) and the layers, and makes the rotary tables in `arena`.
// `layout` and its mesh must outlive the decoder.
std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const ModelLayout& layout,
                                      const ChunkRange& range, Device& device, Arena& arena,
                                      Stream& stream);

// Layers of chunk `chunk` of `chunks`: as equal as they come, the first ones larger.
ChunkRange chunk_range(const ModelConfig& config, int chunk, int chunks);

}  // namespace piton
