// A model that only reads: forward passes over all ranks of its mesh, without gradients.
//
// It is the forward pass of training (parallel/pipeline.h), so every layout of a session serves:
// tensor ranks, pipeline stages, ZeRO-3. All methods are collective: every rank calls them with the
// same arguments, and data-parallel ranks read the same tokens. Logits stay where they are made, on
// the last stage, each tensor rank with its part of the vocabulary, until somebody asks for them
// whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "model/config.h"
#include "nn/kv_cache.h"
#include "parallel/pipeline.h"

namespace piton {

class Inference {
 public:
  // Of a session; all of it outlives this. The model's rows must not be split over tensor ranks
  // (sequence parallelism): a single token cannot be cut.
  Inference(Context context, Pipeline& pipeline, Mesh& mesh, const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  KvCache make_cache(std::int64_t samples, std::int64_t capacity) const;

  // KvCache::copy_samples() on this rank's stream.
  void copy_samples(KvCache& to, const KvCache& from, std::span<const std::int32_t> samples) const {
    to.copy_samples(context_, from, samples);
  }

  // One pass over `ids`, samples one after another. With a cache they are the tokens after those in
  // it, and the cache has them afterwards. Logits of all rows, or of each sample's last one: fp32
  // (fp64) [rows, padded vocabulary / t]; empty on stages that do not hold the last chunk.
  enum class Rows : std::uint8_t { kAll, kLastOfEachSample };
  Tensor logits(std::span<const std::int32_t> ids, std::int64_t samples, Rows rows, KvCache* cache);
  // The same of one row of each sample: row rows[i] of sample i, counted from 0.
  Tensor logits_at(std::span<const std::int32_t> ids, std::span<const std::int32_t> rows,
                   KvCache& cache);

  // The loss of labels[i] behind ids[0 .. i] of one sequence, on every rank.
  std::vector<double> token_losses(std::span<const std::int32_t> ids,
                                   std::span<const std::int32_t> labels);

  // What logits() gave, on the host: [rows x vocabulary], without padding, in fp32. Empty where
  // `split` is.
  std::vector<float> whole_vocabulary(const Tensor& split);

  // One rank's bytes on every rank: those of the lowest rank that holds the last chunk. What it
  // gives elsewhere does not count.
  std::string from_last_stage(const std::string& bytes);

 private:
  ModelInput input(std::span<const std::int32_t> ids, std::int64_t samples, const KvCache* cache);
  ChunkOutput pass(ModelInput input);
  Tensor cached_pass(ModelInput input, KvCache& cache);
  Tensor put(std::span<const std::int32_t> ids);

  Context context_;
  Pipeline& pipeline_;
  Mesh& mesh_;
  ModelConfig config_;
};

}  // namespace piton
