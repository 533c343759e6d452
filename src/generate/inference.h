// Inference: forward passes over all ranks of a model's mesh, without gradients.
//
// Uses the forward pass of training (parallel/pipeline.h), so it works with every layout of a
// session: tensor ranks, pipeline stages, ZeRO-3. All methods are collective: every rank calls them
// with the same arguments, and data-parallel ranks read the same tokens. Logits stay on the last
// stage, split over tensor ranks by vocabulary, until whole_vocabulary() gathers them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "comm/mesh.h"
#include "generate/token_draws.h"
#include "model/config.h"
#include "nn/kv_cache.h"
#include "parallel/pipeline.h"

namespace piton {

class RecordedPasses;

// The next tokens of one text of a cache.
struct TextTokens {
  std::int64_t text = 0;  // its number in the cache
  std::span<const std::int32_t> ids;
  std::int64_t whole = 0;  // CachePass::whole; 0: the tokens of the text with these
  std::optional<std::int64_t> adapter = {};  // AdapterRows::choice; nothing: none
  // CachePass::from: of rows that are read again, for later_tokens().
  std::optional<std::int64_t> from = {};
  // The last token of the prompt, 0: none. Under ModelConfig::prefix tokens up to it see one
  // another: they are in one pass, without other texts.
  std::int64_t prompt_end = 0;
};

// Of a pass, on the stage of the last chunk; empty on others.
struct PassResults {
  Tensor logits;  // fp32 (fp64) [rows, padded vocabulary / t]; empty without rows
  Tensor hidden;  // [n, h]
};

enum class EmbeddingPooling : std::uint8_t { kMean, kLast };

class Inference {
 public:
  // The arguments belong to a session and must outlive this object. The model's rows must not be
  // split over tensor ranks (sequence parallelism): a single token cannot be split.
  // `threads` share the work on logits of the host; null: the calling thread does it.
  Inference(Context context, Pipeline& pipeline, Mesh& mesh, const ModelConfig& config,
            ThreadPool* threads = nullptr);
  ~Inference();

  // Whether passes of decoding may be recorded (recorded_passes.h), as they are at first. Without,
  // each one passes through the kernels of the context.
  void record_passes(bool records) { records_passes_ = records; }

  // From now on data-parallel ranks, which have whole copies of the model, read other texts than
  // each other: calls are collective over the ranks of one copy. Not under ZeRO-3.
  void read_apart() { apart_ = true; }

  const ModelConfig& config() const { return config_; }
  ThreadPool* threads() const { return threads_; }
  // Of caches that are made from now on.
  void set_cache_numbers(CacheNumbers numbers) { cache_numbers_ = numbers; }
  KvCache make_cache() const;  // without texts and pages
  // One that later_tokens() can use, of a model with layers that predict them.
  KvCache make_later_cache() const;
  // Grows the cache until at least `pages` are free. It grows by half, so that growing texts are
  // seldom copied, but not beyond `most` pages if that suffices.
  void make_room(KvCache& cache, std::int64_t pages,
                 std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;

  // For a model with an encoder: its text, which the next pass of the cache reads. `ids`: at least
  // one.
  void set_source(std::span<const std::int32_t> ids, KvCache& cache) const {
    cache.source().set(context_, ids);
  }

  // One pass over the next tokens of texts of a cache, which has them afterwards; the cache grows
  // if it has too few free pages. Texts with the same adapter are next to each other. Logits of
  // some rows, counted over all tokens of the pass: fp32 (fp64) [rows, padded vocabulary / t];
  // empty without rows, and on stages that do not hold the last chunk.
  Tensor logits(std::span<const TextTokens> texts, std::span<const std::int32_t> rows,
                KvCache& cache);
  // The same, with the hidden states of all its rows.
  PassResults logits_and_hidden(std::span<const TextTokens> texts,
                                std::span<const std::int32_t> rows, KvCache& cache);
  // One pass of the first layer that predicts later tokens (nn/later_tokens.h), which has its own
  // keys and values in the cache. The ids of a text are the tokens after its rows. `hidden` [n, h]:
  // hidden states of the rows, or the layer's outputs of the rows before; read on the last stage.
  // Logits of the tokens after these ids, and the layer's outputs [rows, h], of some rows.
  PassResults later_tokens(std::span<const TextTokens> texts, const Tensor& hidden,
                           std::span<const std::int32_t> rows, KvCache& cache);
  // The rows of [n, h] with these numbers [k] -> [k, h]; empty where `all` is empty.
  Tensor chosen_rows(const Tensor& all, std::span<const std::int32_t> rows);
  // The last row of each text.
  static std::vector<std::int32_t> last_rows(std::span<const TextTokens> texts);

  // One pass without a cache over `samples` texts of one length, `ids` one after another, which
  // have no prompt. Logits of some rows, counted over all samples, or of all rows; shapes as above.
  Tensor logits(std::span<const std::int32_t> ids, std::int64_t samples,
                std::span<const std::int32_t> rows = {});

  // One vector for a text, on every rank: the mean of the hidden states of its tokens (the output
  // of the final norm), or the last one; fp32 [h]. `adapter`: as in TextTokens.
  std::vector<float> embedding(std::span<const std::int32_t> ids, EmbeddingPooling pooling,
                               std::optional<std::int64_t> adapter = {});

  // The result of logits() on the host: [rows x vocabulary] in fp32, without padding. Empty where
  // `split` is empty.
  std::vector<float> whole_vocabulary(const Tensor& split);
  // The same, valid until the next call.
  std::span<const float> host_logits(const Tensor& split);

  // The likeliest token of each row of the result of logits(), the lowest id on ties, with its
  // log-probability; computed where the logits are. Empty where `split` is empty. Throws
  // Error(kData) if logits are not finite.
  std::vector<LikelyToken> likeliest(const Tensor& split);

  // A token drawn from each row of the result of logits(), with its log-probability by the logits
  // themselves; computed where they are, and on each of the tensor ranks, which gather the rows.
  // Empty where `split` is empty. Throws Error(kData) as likeliest().
  std::vector<DrawnToken> draw(const Tensor& split, std::span<const TokenDraw> draws);

  // Gives every rank the bytes of the lowest rank that has the last chunk; `bytes` of other ranks
  // is ignored.
  std::string from_last_stage(const std::string& bytes);

 private:
  // Of a row of the vocabulary's logits: the largest, sum exp(x - largest), the logit of the label,
  // and the tensor rank that has the largest.
  struct RowSums {
    double largest = 0;
    double sum = 0;
    double label = 0;
    std::int64_t rank = 0;
  };
  // `labels`: int32 [rows], the same on all tensor ranks. Throws Error(kData) if they are not
  // finite.
  std::vector<RowSums> row_sums(const Tensor& split, const Tensor& labels);
  // Those of all tensor ranks, [t, ...].
  Tensor of_tensor_ranks(const Tensor& mine);
  std::vector<std::int32_t> ids_on_host(const Tensor& ids);

  // The rows of a pass with a cache.
  struct CachedRows {
    std::vector<CachePass> passes;
    std::vector<std::int32_t> ids;
    std::vector<AdapterRows> adapters;
  };
  // Also grows the cache until it has room for them.
  CachedRows rows_in(std::span<const TextTokens> texts, KvCache& cache) const;
  PassResults cached_pass(std::span<const TextTokens> texts, std::span<const std::int32_t> rows,
                          KvCache& cache, bool hidden);
  ModelInput input(std::span<const std::int32_t> ids, std::int64_t samples);
  ChunkOutput pass(ModelInput input);
  ChunkOutput pass(const Context& context, ModelInput input);
  bool repeats(std::span<const TextTokens> texts, std::span<const std::int32_t> rows,
               const KvCache& cache);
  Tensor put(std::span<const std::int32_t> ids);

  Context context_;
  Pipeline& pipeline_;
  Mesh& mesh_;
  ModelConfig config_;
  ThreadPool* threads_;
  CacheNumbers cache_numbers_ = CacheNumbers::kOfModel;
  bool records_passes_ = true;
  bool apart_ = false;
  std::unique_ptr<RecordedPasses> recorded_;  // made by the first pass that may be recorded
  // Of host_logits(). Kept, since the system gives large memory page by page.
  std::vector<float> parts_;
  std::vector<float> whole_;
};

}  // namespace piton
