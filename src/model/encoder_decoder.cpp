#include <algorithm>
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
  // `stages`: that hold the table, those of the stack.
  DistanceTable(ParameterList& parameters, const LayersOfChunk& of, const std::vector<int>& stages)
      : buckets_{.buckets = of.config.encoder_decoder->buckets,
                 .farthest = of.config.encoder_decoder->farthest_bucket,
                 .both_directions = !of.stack.causal} {
    Parameter table =
        column_split_parameter(of.shard, of.stack.prefix + "distance.weight", buckets_.buckets,
                               of.config.heads, input_weights(of.config));
    tie_over_stages(table, stages);
    table_ = &parameters.add(std::move(table));
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
  Parameter* table_ = nullptr;
  std::int64_t length_ = -1;
  Tensor ids_;  // bucket of each distance, for rows of length_
};

// The chunks of one of the two stacks, and the stages of both that share tables.
struct StackStages {
  bool first = true;           // the chunk has the embedding,
  bool last = true;            // and the norm
  std::vector<int> of_stack;   // stages of the stack
  std::vector<int> of_tables;  // of the tables of positions: of both embeddings
};

// The blocks of one of the two stacks in a chunk, with its embedding and its norm at the ends.
class Stack {
 public:
  // `tokens`: the table of a chunk with an embedding, else null.
  Stack(ParameterList& parameters, const LayersOfChunk& of, const StackStages& stages,
        Parameter* tokens, const Vocabulary& vocabulary)
      : config_(of.config) {
    if (stages.first) {
      EmbeddingShape shape{.hidden = config_.hidden,
                           .stream = config_.stream_dtype(),
                           .hidden_dropout = config_.hidden_dropout,
                           .dropout_site = of.stack.prefix + "embedding.dropout",
                           .positions = embedding_weights(config_),
                           .stages = stages.of_tables};
      if (config_.positions == PositionKind::kLearned) shape.max_positions = config_.max_positions;
      embedding_.emplace(parameters, of.shard, *tokens, vocabulary, shape);
    }
    if (config_.positions == PositionKind::kRelative)
      distances_.emplace(parameters, of, stages.of_stack);
    layers_.emplace(parameters, of, Adapters{});
    if (stages.last)
      norm_.emplace(parameters, of.shard, of.stack.prefix + "final_norm", norm_shape(config_));
  }

  // The output of the last block, before the norm. `x`: the output of the chunk before, not read by
  // a chunk with the embedding. `input`: of this stack. `lengths`: of its texts, or empty.
  // `shared`: what the blocks read of the encoder.
  Value forward(Context& context, Value x, const ModelInput& input, const Tensor& lengths,
                SharedInputs shared) {
    Context with_rows = context;
    with_rows.rows = input.rows;
    if (embedding_) x = embedding_->forward(with_rows, input);
    if (distances_) shared.bias = distances_->of(with_rows, longest(input));
    return layers_->forward(
        with_rows, x, input,
        [&](std::int64_t) {
          return AttentionInput{.batch = input.samples, .places = {.key_lengths = lengths}};
        },
        shared);
  }
  Value normed(Context& context, const Value& x) const { return norm_->forward(context, x); }
  bool has_norm() const { return norm_.has_value(); }
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

// Which chunks have what of the model. A model of one chunk has all in it; of several, those before
// `split` have the encoder, and the others the decoder.
struct Division {
  ChunkPlace place;
  int split = 0;

  bool whole() const { return place.chunks() == 1; }
  bool encodes() const { return whole() || place.index < split; }
  bool decodes() const { return whole() || place.index >= split; }
  std::vector<int> stages(int first, int end) const {
    const auto begin = place.stage_of_chunk.begin();
    return sorted(std::vector<int>(begin + first, begin + end));
  }
  StackStages of_encoder() const {
    if (whole()) return {};
    return {place.first(), place.index + 1 == split, stages(0, split), of_embeddings()};
  }
  StackStages of_decoder() const {
    if (whole()) return {};
    return {place.index == split, place.last(), stages(split, place.chunks()), of_embeddings()};
  }
  std::vector<int> of_embeddings() const {
    if (whole()) return {};
    return sorted(
        {place.stage_of_chunk.front(), place.stage_of_chunk[static_cast<std::size_t>(split)]});
  }
  // Of the table of tokens, if the head shares it or not.
  std::vector<int> of_tokens(bool tied) const {
    std::vector<int> stages = of_embeddings();
    if (tied && !whole()) stages.push_back(place.stage_of_chunk.back());
    return sorted(std::move(stages));
  }

 private:
  static std::vector<int> sorted(std::vector<int> stages) {
    std::ranges::sort(stages);
    stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
    return stages;
  }
};

class EncoderDecoderChunk final : public Chunk {
 public:
  EncoderDecoderChunk(const ModelConfig& config, const ModelLayout& layout, const ChunkPlace& place,
                      ParameterList& parameters)
      : config_(config),
        division_{place, layout.options.split_stage},
        shard_{.group = &layout.mesh->group(Axis::kTensor),
               .strategy = layout.options.linears,
               .shared = layout.shared,
               .dtype = config.dtype} {
    const ModelConfig encoder = encoder_stack(config);
    LayerRange of_encoder{0, encoder.layers};
    LayerRange of_decoder{0, config.layers};
    if (!division_.whole()) {
      of_encoder = layout.division(config, place.chunks()).of_chunk(place.index);
      of_decoder = {of_encoder.begin - encoder.layers, of_encoder.end - encoder.layers};
    }
    const LayersOfChunk encoder_layers{
        encoder, layout, place, shard_, {.prefix = "encoder.", .causal = false}, 0, of_encoder};
    const LayersOfChunk decoder_layers{
        config,    layout, place, shard_, {.cross = true}, division_.whole() ? encoder.layers : 0,
        of_decoder};
    const Vocabulary vocabulary{config.vocabulary, layout.padded_vocabulary(config.vocabulary)};
    const StackStages of_encoder_stack = division_.of_encoder();
    const StackStages of_decoder_stack = division_.of_decoder();
    const bool embeds = (division_.encodes() && of_encoder_stack.first) ||
                        (division_.decodes() && of_decoder_stack.first);
    Parameter* tokens = nullptr;
    if (embeds || (place.last() && config.tied)) {
      tokens = &token_table(parameters, decoder_layers, "embedding.token.weight",
                            division_.of_tokens(config.tied), embedding_weights(config));
    }
    if (division_.encodes())
      encoder_.emplace(parameters, encoder_layers, of_encoder_stack, tokens, vocabulary);
    if (division_.decodes())
      decoder_.emplace(parameters, decoder_layers, of_decoder_stack, tokens, vocabulary);
    if (!place.last()) return;
    HeadShape head;
    if (config.encoder_decoder->head_bias) {
      head.bias = &parameters.add(vocabulary_parameter(shard_, "head.bias", vocabulary, 0, {}));
    }
    Parameter& table = config.tied ? *tokens
                                   : token_table(parameters, decoder_layers, "head.weight", {},
                                                 input_weights(config));
    head_.emplace(shard_, table, vocabulary, head);
  }

  // Between chunks of the encoder its rows; from its last chunk on, its normed outputs, which all
  // chunks of the decoder read; between these, the rows of the decoder first. With a cache, outputs
  // of the encoder are there only in the pass that reads its text.
  std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const override {
    if (chunk + 1 == division_.place.chunks()) return {};
    const std::int64_t ranks = shard_.splits_sequence() ? shard_.size() : 1;
    const auto rows_of = [&](std::int64_t sequence, DType dtype) {
      return BoundaryTensor{dtype, {input.samples * sequence / ranks, config_.hidden}};
    };
    const DType stream = config_.stream_dtype();
    const bool reads = input.cache == nullptr || input.source.tokens.defined();
    if (!reads && chunk < division_.split) return {};
    if (!reads) return {rows_of(input.sequence, stream)};
    const bool normed = chunk + 1 >= division_.split;
    const BoundaryTensor source = rows_of(input.source.sequence, normed ? config_.dtype : stream);
    if (chunk < division_.split) return {source};
    return {rows_of(input.sequence, stream), source};
  }

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    const bool reads = input.cache == nullptr || input.source.tokens.defined();
    std::vector<Value> source;  // the outputs of the encoder, in a pass that has them
    if (reads) {
      source.push_back(encoder_ ? encoded(context, input, inputs.empty() ? Value() : inputs[0])
                                : inputs.back());
    }
    if (!decoder_) return {.boundary = source};
    SharedInputs shared;
    if (input.cache == nullptr) {
      shared = {.source = source[0], .source_lengths = input.source.lengths};
    } else if (reads) {
      decoder_->layers().write_source(context, source[0].tensor, *input.cache);
    }
    const Value x =
        decoder_->forward(context, inputs.empty() ? Value() : inputs[0], input, {}, shared);
    if (division_.place.last()) return results(context, x, input);
    std::vector<Value> boundary{x};
    boundary.insert(boundary.end(), source.begin(), source.end());
    return {.boundary = boundary};
  }

  Tensor head_logits(Context& context, const Tensor& hidden) const override {
    return head_->logits(context, head_input(context, {hidden}).tensor);
  }

  void add_layers(KvCache& cache) const override {
    if (decoder_) decoder_->layers().add_layers(cache);
  }

 private:
  // The outputs of this part of the encoder, at its end normed: [b*ss, h], under sequence
  // parallelism this rank's [b*ss/t, h]. `before`: those of the part before it.
  Value encoded(Context& context, const ModelInput& input, const Value& before) {
    const SourceInput& source = input.source;
    PITON_ASSERT(source.tokens.defined(), "a model with an encoder, and no source");
    ModelInput of_encoder = input;
    of_encoder.cache = nullptr;
    of_encoder.sequence = source.sequence;
    of_encoder.tokens = source.tokens;
    of_encoder.positions = source.positions;
    of_encoder.rows.sequence = source.sequence;
    const Value x = encoder_->forward(context, before, of_encoder, source.lengths, {});
    if (!encoder_->has_norm()) return x;
    Context with_rows = context;
    with_rows.rows = of_encoder.rows;
    return encoder_->normed(with_rows, x);
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
      const Tensor rows = whole_rows(plain, shard_, x.tensor, wanted.rows);
      const Tensor hidden = decoder_->normed(plain, {rows}).tensor;
      if (wanted.logits) output.logits = head_logits(plain, hidden);
      if (wanted.hidden) output.hidden = hidden;
    }
    return output;
  }

  ModelConfig config_;
  Division division_;
  Shard shard_;
  std::optional<Stack> encoder_;  // in the chunks of the encoder
  std::optional<Stack> decoder_;  // in those of the decoder
  std::optional<Head> head_;
};

}  // namespace

ChunkFactory encoder_decoder_factory(const ModelConfig& config, const ModelLayout& layout) {
  PITON_ASSERT(config.encoder_decoder.has_value(), "{} has no encoder", config.family);
  return [config, layout](const ChunkPlace& place, const ChunkSetup& setup) {
    layout.check(config, place.chunks());
    return std::make_unique<EncoderDecoderChunk>(config, layout, place, setup.parameters);
  };
}

}  // namespace piton
