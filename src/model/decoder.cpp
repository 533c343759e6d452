#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "model/block.h"
#include "nn/embedding.h"
#include "ops/recompute.h"

namespace piton {
namespace {

constexpr const char* kTokenTable = "embedding.token.weight";

struct RotaryTables {
  std::int64_t length = -1;  // rotary_length() of what they are for
  Tensor cosine;             // [positions, rotated channels / 2]
  Tensor sine;
};

// Rounded once from double.
RotaryTables make_rotary_tables(const ModelConfig& config, std::int64_t sequence, Device& device,
                                Arena& arena, Stream& stream) {
  const std::int64_t half = config.rotary_channels() / 2;
  const DType dtype = sum_dtype(config.dtype);
  const Shape shape{config.max_positions, half};
  const std::vector<double> frequencies = rotary_frequencies(
      config.rotary_base, config.rotary_channels(), config.rotary_scaling, sequence);
  const double magnitude = rotary_magnitude(config.rotary_scaling);
  const Tensor cosine = host_tensor(dtype, shape);
  const Tensor sine = host_tensor(dtype, shape);
  for (std::int64_t position = 0; position < config.max_positions; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
      const std::int64_t at = position * half + i;
      if (dtype == DType::kF64) {
        cosine.data<double>()[at] = magnitude * std::cos(angle);
        sine.data<double>()[at] = magnitude * std::sin(angle);
      } else {
        cosine.data<float>()[at] = static_cast<float>(magnitude * std::cos(angle));
        sine.data<float>()[at] = static_cast<float>(magnitude * std::sin(angle));
      }
    }
  }
  RotaryTables tables{.length = rotary_length(config.rotary_scaling, sequence),
                      .cosine = arena.allocate(dtype, shape, MemoryKind::kParameters),
                      .sine = arena.allocate(dtype, shape, MemoryKind::kParameters)};
  device.upload(cosine.raw(), tables.cosine, stream);
  device.upload(sine.raw(), tables.sine, stream);
  return tables;
}

// Of this rank's heads.
Tensor make_slopes(const ModelConfig& config, const Shard& shard, Device& device, Arena& arena,
                   Stream& stream) {
  const std::vector<float> all = alibi_slopes(config.heads);
  const std::int64_t heads = config.heads / shard.size();
  Tensor slopes = arena.allocate(DType::kF32, {heads}, MemoryKind::kParameters);
  device.upload(all.data() + shard.rank() * heads, slopes, stream);
  return slopes;
}

class DecoderChunk final : public Decoder {
 public:
  DecoderChunk(const ModelConfig& config, const ModelLayout& layout, const ChunkRange& range,
               Device& device, Arena& arena, Stream& stream)
      : config_(config), range_(range), recompute_(layout.recompute) {
    shard_ = {
        .group = &layout.mesh->group(Axis::kTensor),
        .strategy = {.slices = layout.linear_slices, .sequence_parallel = layout.sequence_parallel},
        .dtype = config.dtype};
    vocabulary_ = {config.vocabulary, layout.padded_vocabulary(config.vocabulary)};
    const Initialization normal{Initialization::Kind::kNormal, config.init_deviation};

    const bool tied_here = config.tied && (range.first || range.last);
    Parameter* table = nullptr;
    if (range.first || tied_here) {
      table = &parameters_.add(vocabulary_parameter(shard_, kTokenTable, vocabulary_.size,
                                                    vocabulary_.padded, config.hidden, normal));
      const int stages = layout.mesh->size(Axis::kPipeline);
      if (config.tied && stages > 1) {
        table->tied_stages = {0, stages - 1};
        table->placement[Axis::kPipeline].gradient_is_partial = true;
      }
    }
    if (range.first) {
      embedding_.emplace(parameters_, shard_, *table, vocabulary_, config.hidden,
                         config.positions == PositionKind::kLearned ? config.max_positions : 0,
                         normal, config.hidden_dropout);
    }
    for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
      blocks_.emplace_back(parameters_, shard_, config, layer);
    }
    if (range.last) {
      final_norm_.emplace(parameters_, shard_, "final_norm", config.norm, config.hidden,
                          config.norm_eps);
      Parameter* head = table;
      if (!config.tied) {
        head = &parameters_.add(vocabulary_parameter(shard_, "head.weight", vocabulary_.size,
                                                     vocabulary_.padded, config.hidden, normal));
      }
      head_.emplace(shard_, *head, vocabulary_);
    }
    if (config.positions == PositionKind::kRotary) {
      rotary_ = make_rotary_tables(config, 1, device, arena, stream);
    }
    if (config.positions == PositionKind::kAlibi)
      slopes_ = make_slopes(config, shard_, device, arena, stream);
  }

  bool first() const override { return range_.first; }
  bool last() const override { return range_.last; }
  ParameterList& parameters() override { return parameters_; }
  const ModelConfig& config() const override { return config_; }

  std::vector<BoundaryTensor> boundary(std::int64_t samples, std::int64_t sequence) const override {
    const std::int64_t ranks = shard_.splits_sequence() ? shard_.size() : 1;
    return {{config_.dtype, {samples * sequence / ranks, config_.hidden}}};
  }

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    Context with_rows = context;
    with_rows.rows = input.rows;
    prepare_rotary(context, input.sequence);
    Value x = range_.first ? embedding_->forward(with_rows, input) : inputs.at(0);
    for (const Block& block : blocks_) x = run_block(with_rows, block, x, input);
    if (!range_.last) return {.boundary = {x}};
    return {.loss = head_->loss(with_rows, final_norm_->forward(with_rows, x), input.loss)};
  }

  Tensor logits(Context& context, const ModelInput& input, KvCache* cache,
                bool last_only) override {
    PITON_ASSERT(range_.first && range_.last, "logits of a whole model");
    Context plain = context.with_tape(nullptr);
    plain.training = false;
    plain.rows = input.rows;
    // With a cache every token has the angles of the longest sequence that it has room for.
    prepare_rotary(context, cache != nullptr ? cache->capacity() : input.sequence);
    Value x = embedding_->forward(plain, input);
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      AttentionInput attention = attention_input(input);
      CacheView view;
      if (cache != nullptr) {
        view = cache->layer(static_cast<std::int64_t>(layer));
        attention.cache = &view;
      }
      x = blocks_[layer].forward(plain, x, attention);
    }
    if (cache != nullptr) cache->advance(input.sequence);
    if (last_only) x.tensor = last_rows(plain, x.tensor, input);
    return head_->logits(plain, final_norm_->forward(plain, x)).tensor;
  }

  KvCache make_cache(Arena& arena, std::int64_t batch, std::int64_t capacity) const override {
    return {arena,
            config_.dtype,
            static_cast<std::int64_t>(blocks_.size()),
            batch,
            capacity,
            config_.groups / shard_.size(),
            config_.head_size};
  }

 private:
  // Tables for sequences of this length, where it matters.
  void prepare_rotary(Context& context, std::int64_t sequence) {
    if (config_.positions != PositionKind::kRotary) return;
    if (rotary_.length == rotary_length(config_.rotary_scaling, sequence)) return;
    rotary_ = make_rotary_tables(config_, sequence, context.device, context.arena, context.stream);
  }

  AttentionInput attention_input(const ModelInput& input) const {
    return {.batch = input.samples,
            .positions = input.positions,
            .segments = input.segments,
            .cosine = rotary_.cosine,
            .sine = rotary_.sine,
            .slopes = slopes_};
  }

  Value run_block(Context& context, const Block& block, const Value& x,
                  const ModelInput& input) const {
    const AttentionInput attention = attention_input(input);
    if (!recompute_) return block.forward(context, x, attention);
    const Segment segment = [&block, attention](Context& inner, const std::vector<Value>& values) {
      return std::vector<Value>{block.forward(inner, values[0], attention)};
    };
    return recomputed(context, {x}, segment)[0];
  }

  static Tensor last_rows(Context& context, const Tensor& x, const ModelInput& input) {
    const Tensor last = x.split_dim(0, input.sequence).select(1, input.sequence - 1);
    Tensor rows = context.activation(x.dtype(), {input.samples, x.dim(1)});
    context.kernels.run(Copy{.dst = rows, .src = last}, context.stream);
    return rows;
  }

  ModelConfig config_;
  ChunkRange range_;
  bool recompute_;
  Shard shard_;
  Vocabulary vocabulary_;
  ParameterList parameters_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Norm> final_norm_;
  std::optional<Head> head_;
  RotaryTables rotary_;
  Tensor slopes_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const ModelConfig& config, const ModelLayout& layout,
                                      const ChunkRange& range, Device& device, Arena& arena,
                                      Stream& stream) {
  layout.check(config);
  return std::make_unique<DecoderChunk>(config, layout, range, device, arena, stream);
}

ChunkRange chunk_range(const ModelConfig& config, int chunk, int chunks) {
  const std::int64_t share = config.layers / chunks;
  const std::int64_t larger = config.layers % chunks;
  const std::int64_t begin = chunk * share + std::min<std::int64_t>(chunk, larger);
  return {begin, begin + share + (chunk < larger ? 1 : 0), chunk == 0, chunk == chunks - 1};
}

}  // namespace piton
