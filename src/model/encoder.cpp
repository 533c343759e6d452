#include "model/encoder.h"

#include <optional>
#include <utility>

#include "model/label_head.h"
#include "model/layer_stack.h"
#include "nn/embedding.h"
#include "nn/encoder_heads.h"
#include "ops/split.h"

namespace piton {
namespace {

class EncoderChunk final : public Chunk {
 public:
  EncoderChunk(const ModelConfig& config, const ModelLayout& layout, const Adapters& adapters,
               ChunkPlace place, ParameterList& parameters)
      : config_(config),
        place_(std::move(place)),
        shard_{.group = &layout.mesh->group(Axis::kTensor),
               .strategy = layout.options.linears,
               .shared = layout.shared,
               .dtype = config.dtype},
        vocabulary_{config.vocabulary, layout.padded_vocabulary(config.vocabulary)},
        layers_(make_embedding(parameters, {config_, layout, place_, shard_}),
                {config_, layout, place_, shard_, {.causal = false}}, adapters) {
    if (place_.last()) make_heads(parameters, {config_, layout, place_, shard_}, adapters);
    adapters.freeze(parameters.all());
  }

  std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const override {
    if (chunk + 1 == place_.chunks()) return {};
    const std::int64_t ranks = shard_.splits_sequence() ? shard_.size() : 1;
    return {{config_.stream_dtype(), {input.samples * input.sequence / ranks, config_.hidden}}};
  }

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    PITON_ASSERT(input.cache == nullptr, "an encoder with a cache");
    Context with_rows = context;
    with_rows.rows = input.rows;
    Value x = place_.first() ? embedding_->forward(with_rows, input) : inputs.at(0);
    // Padding has another segment than texts.
    x = layers_.forward(with_rows, x, input, [&](std::int64_t) {
      return AttentionInput{
          .batch = input.samples,
          .places = {.query_segments = input.segments, .key_segments = input.segments}};
    });
    if (!place_.last()) return {.boundary = {x}};
    return results(with_rows, x, input);
  }

  void add_layers(KvCache& /*cache*/) const override {
    PITON_ASSERT(false, "an encoder has no cache");
  }

 private:
  // Parameters are in the order of the model, so this comes before the layers.
  ParameterList& make_embedding(ParameterList& parameters, const LayersOfChunk& of) {
    if (!place_.first()) return parameters;
    EmbeddingShape shape{.hidden = config_.hidden,
                         .max_positions = config_.max_positions,
                         .token_types = config_.encoder->token_types,
                         .stream = config_.stream_dtype(),
                         .hidden_dropout = config_.hidden_dropout,
                         .positions = embedding_weights(config_)};
    if (config_.encoder->post_norm) {
      shape.norm = norm_shape(config_);
      shape.norm_of_sum = true;
    }
    embedding_.emplace(parameters, shard_, table(parameters, of), vocabulary_, shape);
    return parameters;
  }

  static Parameter& table(ParameterList& parameters, const LayersOfChunk& of) {
    const bool tied = of.config.encoder->word_head;
    return token_table(parameters, of, "embedding.token.weight",
                       tied ? of.place.stages_of_ends() : std::vector<int>(),
                       embedding_weights(of.config));
  }

  void make_heads(ParameterList& parameters, const LayersOfChunk& of, const Adapters& adapters) {
    const EncoderHeadShape shape{.hidden = config_.hidden,
                                 .activation = config_.encoder->exact_gelu_head
                                                   ? ActivationKind::kGeluErf
                                                   : config_.activation,
                                 .norm = norm_shape(config_),
                                 .weights = input_weights(config_),
                                 .alone = &of.layout.mesh->group(AxisSet{0}),
                                 .dropout = config_.hidden_dropout,
                                 .drops_first = head_has_pooler(config_),
                                 .adapters = &adapters};
    if (!config_.encoder->post_norm)
      final_norm_.emplace(parameters, shard_, "final_norm", norm_shape(config_));
    if (config_.labels > 0) {
      labels_.emplace(parameters, shard_, shape, config_.labels);
      return;
    }
    if (!config_.encoder->word_head) {
      if (config_.encoder->pooler) pooler_.emplace(parameters, shard_, shape);
      return;
    }
    transform_.emplace(parameters, shard_, shape);
    Parameter& bias = parameters.add(vocabulary_parameter(shard_, "head.bias", vocabulary_, 0, {}));
    head_.emplace(shard_, table(parameters, of), vocabulary_,
                  HeadShape{.bias = &bias, .same_rows = true});
    if (config_.encoder->pair_head) pairs_.emplace(parameters, shard_, shape);
  }

  Value normed(Context& context, const Value& x) const {
    return final_norm_ ? final_norm_->forward(context, x) : x;
  }

  // Of the rows with a label; with ModelInput::wanted.token_losses, of all rows.
  LossOutput words_loss(Context& context, const Value& hidden, const ModelInput& input) const {
    if (input.wanted.token_losses) {
      PITON_ASSERT(context.tape == nullptr, "losses of all rows in training");
      const Value whole{whole_rows(context, shard_, hidden.tensor, {})};
      return head_->loss(context, transform_->forward(context, whole), input.loss);
    }
    const Value rows = labelled_rows(context, hidden, input.encoder);
    return head_->loss(context, transform_->forward(context, rows),
                       losses_of_rows(input.loss, input.encoder));
  }

  Value labelled_rows(Context& context, const Value& hidden, const EncoderInput& encoder) const {
    return chosen_rows(context, hidden, encoder.word_rows,
                       {.group = *shard_.group, .sequence_parallel = shard_.splits_sequence()});
  }

  static LossInputs losses_of_rows(LossInputs inputs, const EncoderInput& encoder) {
    inputs.labels = encoder.word_labels;
    inputs.mask = encoder.word_mask;
    inputs.targets = encoder.word_targets;
    return inputs;
  }

  // What the last chunk of a classifier returns. The token of a text with its label is the first
  // one.
  ChunkOutput labels_of_texts(Context& context, const Value& x, const ModelInput& input) const {
    const Wanted& wanted = input.wanted;
    PITON_ASSERT(!wanted.token_losses, "a loss of each token of a classifier");
    ChunkOutput output;
    if (wanted.loss) {
      const Value rows = labelled_rows(context, normed(context, x), input.encoder);
      output.sums.push_back(
          {std::string(kLossSum),
           labels_->loss(context, rows, losses_of_rows(input.loss, input.encoder)).sum});
    }
    if (wanted.pooled) output.pooled = pooled(context, x, input);
    if (!wanted.logits && !wanted.hidden) return output;
    Context plain = context.with_tape(nullptr);
    const Tensor rows = whole_rows(plain, shard_, x.tensor, wanted.rows);
    const Tensor hidden = normed(plain, {rows}).tensor;
    if (wanted.logits) output.logits = labels_->logits(plain, hidden);
    if (wanted.hidden) output.hidden = hidden;
    return output;
  }

  // What the pooler makes of the first token of each text.
  Tensor pooled(Context& context, const Value& x, const ModelInput& input) const {
    PITON_ASSERT(pooler_ || pairs_ || labels_, "an encoder without a pooler");
    Context plain = context.with_tape(nullptr);
    const Value first =
        chosen_rows(plain, x, input.encoder.first_rows,
                    {.group = *shard_.group, .sequence_parallel = shard_.splits_sequence()});
    const Pooler& pooler = pooler_ ? *pooler_ : pairs_ ? pairs_->pooler() : labels_->pooler();
    return pooler.forward(plain, normed(plain, first)).tensor;
  }

  // What the last chunk returns. x [b*s, h], under sequence parallelism this rank's [b*s/t, h].
  ChunkOutput results(Context& context, const Value& x, const ModelInput& input) const {
    if (labels_) return labels_of_texts(context, x, input);
    const Wanted& wanted = input.wanted;
    PITON_ASSERT(transform_ || !(wanted.loss || wanted.logits),
                 "logits of an encoder without a head");
    ChunkOutput output;
    if (wanted.loss) {
      const Value hidden = normed(context, x);
      const LossOutput loss = words_loss(context, hidden, input);
      output.sums.push_back({std::string(kLossSum), loss.sum});
      if (wanted.token_losses) output.token_losses = loss.per_token;
      if (pairs_)
        output.sums.push_back({std::string(kPairLossSum), pairs_->loss(context, hidden, input)});
    }
    if (wanted.pooled) output.pooled = pooled(context, x, input);
    if (wanted.logits || wanted.hidden) {
      Context plain = context.with_tape(nullptr);
      const Tensor rows = whole_rows(plain, shard_, x.tensor, wanted.rows);
      const Tensor hidden = normed(plain, {rows}).tensor;
      if (wanted.logits)
        output.logits = head_->logits(plain, transform_->forward(plain, {hidden}).tensor);
      if (wanted.hidden) output.hidden = hidden;
    }
    return output;
  }

  ModelConfig config_;
  ChunkPlace place_;
  Shard shard_;
  Vocabulary vocabulary_;
  std::optional<Embedding> embedding_;
  LayerStack layers_;
  std::optional<Norm> final_norm_;
  std::optional<WordTransform> transform_;
  std::optional<Head> head_;
  std::optional<PairHead> pairs_;
  std::optional<LabelHead> labels_;
  std::optional<Pooler> pooler_;  // without these heads
};

}  // namespace

ChunkFactory encoder_factory(const ModelConfig& config, const ModelLayout& layout,
                             const Adapters& adapters) {
  PITON_ASSERT(config.encoder.has_value(), "{} is no encoder", config.family);
  return [config, layout, adapters](const ChunkPlace& place, const ChunkSetup& setup) {
    layout.check(config, place.chunks());
    return std::make_unique<EncoderChunk>(config, layout, adapters, place, setup.parameters);
  };
}

}  // namespace piton
