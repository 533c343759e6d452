// Inference: forward passes over all ranks of a model's mesh, without gradients.
//
// Uses the forward pass of training (parallel/pipeline.h), so it works with every layout of a
// session: tensor ranks, pipeline stages, ZeRO-3. All methods are collective: every rank calls them
// with the same arguments, and data-parallel ranks read the same tokens. Logits stay on the last
// stage, split over tensor ranks by vocabulary, until whole_vocabulary() gathers them.
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
  // The arguments belong to a session and must outlive this object. The model's rows must not be
  // split over tensor ranks (sequence parallelism): a single token cannot be split.
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

  // Logits of some rows of a pass without a cache; rows[i] counts over all samples. Shapes as of
  // logits().
  Tensor logits_of_rows(std::span<const std::int32_t> ids, std::int64_t samples,
                        std::span<const std::int32_t> rows);

  // The loss of labels[i] after ids[0 .. i] of one sequence, on every rank.
  std::vector<double> token_losses(std::span<const std::int32_t> ids,
                                   std::span<const std::int32_t> labels);

  // The result of logits() on the host: [rows x vocabulary] in fp32, without padding. Empty where
  // `split` is empty.
  std::vector<float> whole_vocabulary(const Tensor& split);

  // Gives every rank the bytes of the lowest rank that has the last chunk; `bytes` of other ranks
  // is ignored.
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
