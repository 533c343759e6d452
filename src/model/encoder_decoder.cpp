#include <cmath>
#include <optional>
#include <utility>

#include "model/encoder.h"
#include "model/layer_stack.h"
#include "nn/embedding.h"
#include "nn/kv_cache.h"
#include "ops/relative_bias.h"
#include "ops/scale.h"

namespace piton {
namespace {

// The stack of the encoder, as one of `layers` layers.
ModelConfig encoder_stack(ModelConfig config) {
  config.layers = config.encoder_decoder->encoder_layers;
  return config;
}

// Learned biases of the distances in one stack, for rows of one length.
class DistanceTable {
 public:
  DistanceTable(ParameterList& parameters, const LayersOfChunk& of)
      : buckets_{.buckets = of.config.encoder_decoder->buckets,
                 .farthest = of.config.encoder_decoder->farthest_bucket,
                 .both_directions = !of.stack.causal},
        table_(&parameters.add(column_split_parameter(of.shard, of.stack.prefix + "distance.weight",
                                                      buckets_.buckets, of.config.heads,
                                                      input_weights(of.config)))) {
    table_->is_table = true;
    table_->contributions += 1;
  }

  // Of rows of `length` tokens.
  DistanceBias of(Context& context, std::int64_t length) {
    if (length != length_) {
      const std::int64_t width = buckets_.both_directions ? 2 * length - 1 : length;
      const std::vector<std::int32_t> ids = buckets_.of_range(1 - length, width);
      ids_ = context.arena.allocate(DType::kI32, {width}, MemoryKind::kWorkspace, context.stream);
      context.device.upload(ids.data(), ids_, context.stream);
      length_ = length;
    }
    return {relative_bias(context, ids_, *table_), length - 1};
  }

 private:
  DistanceBuckets buckets_;
  Parameter* table_;
  std::int64_t length_ = -1;
  Tensor ids_;  // bucket of each distance, for rows of length_
};

// Embedding, blocks and norm of one of the two stacks.
class Stack {
 public:
  Stack(ParameterList& parameters, const LayersOfChunk& of, Parameter& tokens,
        const Vocabulary& vocabulary)
      : config_(of.config) {
    EmbeddingShape shape{.hidden = config_.hidden,
                         .hidden_dropout = config_.hidden_dropout,
                         .dropout_site = of.stack.prefix + "embedding.dropout",
                         .positions = input_weights(config_)};
    if (config_.positions == PositionKind::kLearned) shape.max_positions = config_.max_positions;
    embedding_.emplace(parameters, of.shard, tokens, vocabulary, shape);
    if (config_.positions == PositionKind::kRelative) distances_.emplace(parameters, of);
    layers_.emplace(parameters, of, Adapters{});
    norm_.emplace(parameters, of.shard, of.stack.prefix + "final_norm", norm_shape(config_));
  }

  // The output of the last block, before the norm. `input`: of this stack. `lengths`: of its texts,
  // or empty. `shared`: what the blocks read of the encoder.
  Value forward(Context& context, const ModelInput& input, const Tensor& lengths,
                SharedInputs shared) {
    Context with_rows = context;
    with_rows.rows = input.rows;
    const Value x = embedding_->forward(with_rows, input);
    if (distances_) shared.bias = distances_->of(with_rows, longest(input));
    return layers_->forward(
        with_rows, x, input,
        [&](std::int64_t) {
          return AttentionInput{.batch = input.samples, .places = {.key_lengths = lengths}};
        },
        shared);
  }
  Value normed(Context& context, const Value& x) const { return norm_->forward(context, x); }
  const LayerStack& layers() const { return *layers_; }

 private:
  // Tokens of the longest text that the rows of a pass are of.
  std::int64_t longest(const ModelInput& input) const {
    return input.cache == nullptr ? input.sequence : config_.max_positions;
  }

  ModelConfig config_;
  std::optional<Embedding> embedding_;
  std::optional<DistanceTable> distances_;
  std::optional<LayerStack> layers_;
  std::optional<Norm> norm_;
};

class EncoderDecoderChunk final : public Chunk {
 public:
  EncoderDecoderChunk(const ModelConfig& config, const ModelLayout& layout, const ChunkPlace& place,
                      ParameterList& parameters)
      : config_(config),
        shard_{.group = &layout.mesh->group(Axis::kTensor),
               .strategy = layout.options.linears,
               .shared = layout.shared,
               .dtype = config.dtype} {
    const ModelConfig encoder = encoder_stack(config);
    const LayersOfChunk of_encoder{
        encoder, layout, place, shard_, {.prefix = "encoder.", .causal = false}};
    const LayersOfChunk of_decoder{config, layout, place, shard_, {.cross = true}, encoder.layers};
    const Vocabulary vocabulary{config.vocabulary, layout.padded_vocabulary(config.vocabulary)};
    Parameter& tokens = token_table(parameters, of_decoder, "embedding.token.weight", config.tied);
    encoder_.emplace(parameters, of_encoder, tokens, vocabulary);
    decoder_.emplace(parameters, of_decoder, tokens, vocabulary);
    HeadShape head;
    if (config.encoder_decoder->head_bias) {
      head.bias = &parameters.add(vocabulary_parameter(shard_, "head.bias", vocabulary, 0, {}));
    }
    Parameter& table =
        config.tied ? tokens : token_table(parameters, of_decoder, "head.weight", false);
    head_.emplace(shard_, table, vocabulary, head);
  }

  std::vector<BoundaryTensor> boundary(int /*chunk*/, const ModelInput& /*input*/) const override {
    return {};
  }

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& /*inputs*/) override {
    SharedInputs shared;
    if (input.cache != nullptr) {
      read_source(context, *input.cache);
    } else {
      shared.source = encoded(context, input);
      shared.source_lengths = input.source.lengths;
    }
    const Value x = decoder_->forward(context, input, {}, shared);
    return results(context, x, input);
  }

  Tensor head_logits(Context& context, const Tensor& hidden) const override {
    return head_->logits(context, head_input(context, {hidden}).tensor);
  }

  void add_layers(KvCache& cache) const override { decoder_->layers().add_layers(cache); }

 private:
  // The normed outputs of the encoder: [b*ss, h], under sequence parallelism this rank's [b*ss/t,
  // h].
  Value encoded(Context& context, const ModelInput& input) {
    const SourceInput& source = input.source;
    PITON_ASSERT(source.tokens.defined(), "a model with an encoder, and no source");
    ModelInput of_encoder = input;
    of_encoder.sequence = source.sequence;
    of_encoder.tokens = source.tokens;
    of_encoder.positions = source.positions;
    of_encoder.rows.sequence = source.sequence;
    const Value x = encoder_->forward(context, of_encoder, source.lengths, {});
    Context with_rows = context;
    with_rows.rows = of_encoder.rows;
    return encoder_->normed(with_rows, x);
  }

  // In generation: the text of the encoder, before the first pass after it.
  void read_source(Context& context, KvCache& cache) {
    const Tensor& tokens = cache.source().unread();
    if (!tokens.defined()) return;
    const std::int64_t length = cache.source().tokens();
    const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(length)};
    ModelInput input{.samples = 1, .wanted = {.loss = false}};
    input.source = {.sequence = length,
                    .tokens = tokens,
                    .positions = cache.source().slots(),
                    .lengths = context.activation(DType::kI32, {1})};
    context.device.upload(lengths.data(), input.source.lengths, context.stream);
    decoder_->layers().write_source(context, encoded(context, input).tensor, cache);
  }

  Value head_input(Context& context, const Value& normed) const {
    if (!config_.encoder_decoder->scaled_head) return normed;
    return scaled(context, normed, 1 / std::sqrt(static_cast<double>(config_.hidden)));
  }

  // As of a decoder. x [b*s, h], under sequence parallelism this rank's [b*s/t, h].
  ChunkOutput results(Context& context, const Value& x, const ModelInput& input) const {
    const Wanted& wanted = input.wanted;
    ChunkOutput output;
    if (wanted.loss) {
      const Value hidden = head_input(context, decoder_->normed(context, x));
      LossOutput loss = head_->loss(context, hidden, input.loss);
      output.sums.push_back({std::string(kLossSum), loss.sum});
      if (loss.divergence.defined())
        output.sums.push_back({std::string(kDivergenceSum), {loss.divergence}});
      if (wanted.token_losses) output.token_losses = loss.per_token;
    }
    if (wanted.logits || wanted.hidden) {
      Context plain = context.with_tape(nullptr);
      const Tensor rows = head_->whole_rows(plain, x.tensor, wanted.rows);
      const Tensor hidden = decoder_->normed(plain, {rows}).tensor;
      if (wanted.logits) output.logits = head_logits(plain, hidden);
      if (wanted.hidden) output.hidden = hidden;
    }
    return output;
  }

  ModelConfig config_;
  Shard shard_;
  std::optional<Stack> encoder_;
  std::optional<Stack> decoder_;
  std::optional<Head> head_;
};

}  // namespace

ChunkFactory encoder_decoder_factory(const ModelConfig& config, const ModelLayout& layout) {
  PITON_ASSERT(config.encoder_decoder.has_value(), "{} has no encoder", config.family);
  return [config, layout](const ChunkPlace& place, const ChunkSetup& setup) {
    layout.check(config, place.chunks());
    if (place.chunks() > 1) {
      throw Error(Fault::kUsage,
                  "--pipeline-model-parallel-size: a model of an encoder and a decoder (t5) is not "
                  "divided into stages; use tensor and data parallelism");
    }
    return std::make_unique<EncoderDecoderChunk>(config, layout, place, setup.parameters);
  };
}

}  // namespace piton
