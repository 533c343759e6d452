#include "model/decoder.h"

#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "model/label_head.h"
#include "model/layer_stack.h"
#include "nn/embedding.h"
#include "nn/kv_cache.h"
#include "nn/later_tokens.h"
#include "ops/dropout.h"

namespace piton {
namespace {

constexpr const char* kTokenTable = "embedding.token.weight";

struct RotaryTables {
  std::int64_t length = -1;  // rotary_length() of the sequences that the tables are for
  Tensor cosine;             // [positions, rotated channels / 2]
  Tensor sine;
  Tensor positions;  // int32 [n]: the row of the tables of each row of a pass; empty: its position
};

// Tables of all positions.
RotaryTables make_rotary_tables(const ModelConfig& config, const RotaryAngles& angles,
                                Device& device, Arena& arena, Stream& stream) {
  RotaryRows rows(config, angles, config.max_positions);
  for (std::int64_t position = 0; position < config.max_positions; ++position)
    rows.fill(position, position, angles.sequence);
  const auto put = [&](const Tensor& host) {
    Tensor table = arena.allocate(host.dtype(), host.shape(), MemoryKind::kParameters);
    device.upload(host.raw(), table, stream);
    return table;
  };
  return {.length = rotary_length(angles.scaling, angles.sequence),
          .cosine = put(rows.cosine),
          .sine = put(rows.sine)};
}

// A table with one row for each row of the open pass of a cache: texts have other lengths.
RotaryTables make_row_tables(const Context& context, const ModelConfig& config,
                             const RotaryAngles& angles, const KvCache& cache) {
  const auto n = std::ssize(cache.positions());
  RotaryRows rows(config, angles, n);
  std::vector<std::int32_t> numbers;
  for (std::int64_t row = 0; row < n; ++row) {
    const auto at = static_cast<std::size_t>(row);
    rows.fill(row, cache.positions()[at], cache.angle_lengths()[at]);
    numbers.push_back(static_cast<std::int32_t>(row));
  }
  const auto put = [&](const void* host, DType dtype, const Shape& shape) {
    Tensor table = context.activation(dtype, shape);
    context.device.upload(host, table, context.stream);
    return table;
  };
  return {.cosine = put(rows.cosine.raw(), rows.cosine.dtype(), rows.cosine.shape()),
          .sine = put(rows.sine.raw(), rows.sine.dtype(), rows.sine.shape()),
          .positions = put(numbers.data(), DType::kI32, {n})};
}

// ALiBi slopes of this rank's heads.
Tensor make_slopes(const ModelConfig& config, const Shard& shard, Device& device, Arena& arena,
                   Stream& stream) {
  const std::vector<float> all = alibi_slopes(config.heads);
  const std::int64_t heads = config.heads / shard.size();
  Tensor slopes = arena.allocate(DType::kF32, {heads}, MemoryKind::kParameters);
  device.upload(all.data() + shard.rank() * heads, slopes, stream);
  return slopes;
}

// The biases of distances of this rank's heads (AlibiKind), and the column of distance 0. Of a
// causal mask no key is after its query.
struct AlibiTable {
  Tensor values;  // fp32 (fp64) [a/t, w]
  std::int64_t origin = 0;
};

AlibiTable make_alibi_table(const ModelConfig& config, const Shard& shard, Device& device,
                            Arena& arena, Stream& stream) {
  const std::vector<float> slopes = alibi_slopes(config.heads);
  const std::int64_t heads = config.heads / shard.size();
  const std::int64_t origin = config.max_positions - 1;
  const std::int64_t width = config.prefix ? 2 * origin + 1 : origin + 1;
  const Tensor host = host_tensor(sum_dtype(config.dtype), {heads, width});
  for (std::int64_t head = 0; head < heads; ++head) {
    const double slope = slopes[static_cast<std::size_t>(shard.rank() * heads + head)];
    for (std::int64_t column = 0; column < width; ++column) {
      const auto distance = static_cast<double>(std::abs(column - origin));
      const double bias =
          -slope * (config.alibi == AlibiKind::kDistance ? distance : std::sqrt(distance));
      const std::int64_t at = head * width + column;
      if (host.dtype() == DType::kF64) {
        host.data<double>()[at] = bias;
      } else {
        host.data<float>()[at] = static_cast<float>(bias);
      }
    }
  }
  AlibiTable table{arena.allocate(host.dtype(), host.shape(), MemoryKind::kParameters), origin};
  device.upload(host.raw(), table.values, stream);
  return table;
}

// The embedding of a decoder; each draws the masks of `dropout_site`. `stages` hold its tables.
EmbeddingShape embedding_shape(const ModelConfig& config, std::string dropout_site,
                               std::vector<int> stages) {
  EmbeddingShape shape{.hidden = config.hidden,
                       .stream = config.stream_dtype(),
                       .hidden_dropout = config.hidden_dropout,
                       .dropout_site = std::move(dropout_site),
                       .positions = embedding_weights(config),
                       .stages = std::move(stages)};
  if (config.positions == PositionKind::kLearned) shape.max_positions = config.max_positions;
  if (config.embedding_norm) shape.norm = norm_shape(config);
  shape.scale = config.embedding_factor;
  // As in Transformers, whose embedding of Gemma has the factor inside, and of Granite not.
  shape.scales_noise = config.embedding_factor != 1;
  if (config.scaled_embedding) shape.scale = std::sqrt(static_cast<double>(config.hidden));
  return shape;
}

// The layers that predict later tokens (nn/later_tokens.h).
class LaterTokenLayers {
 public:
  // `tokens`: the table of tokens.
  LaterTokenLayers(ParameterList& parameters, const LayersOfChunk& of, Parameter& tokens,
                   const Vocabulary& vocabulary, const std::vector<int>& stages)
      : stream_(of.config.stream_dtype()) {
    const ModelConfig& config = of.config;
    const std::int64_t before =
        of.layout.division(config, of.place.chunks()).of_chunk(of.place.index).size();
    const Adapters none;
    for (std::int64_t k = 0; k < config.mtp_layers; ++k) {
      const std::string name = fmt::format("mtp.layers.{}", k);
      LayersOfChunk one = of;
      one.stack = {.prefix = "mtp.", .like = config.layers - 1, .cached_after = config.layers};
      one.blocks_before = before + k;
      one.layers = LayerRange{k, k + 1};
      layers_.push_back(
          {.embedding = {parameters, of.shard, tokens, vocabulary,
                         embedding_shape(config, name + ".embedding.dropout", stages)},
           .input = {parameters, of.shard, name, {norm_shape(config), input_weights(config)}},
           .block = {parameters, one, none},
           .norm = {parameters, of.shard, name + ".final_norm", norm_shape(config)}});
    }
  }

  // `hidden`: the output of the model's final norm. Returns the sum of the loss of each layer.
  std::vector<NamedSum> losses(Context& context, const Value& hidden, const ModelInput& input,
                               const Head& head, const LayerStack::InputOf& input_of) const {
    PITON_ASSERT(input.later.size() == layers_.size(), "tokens for {} layers, which are {}",
                 input.later.size(), layers_.size());
    std::vector<NamedSum> sums;
    Value x = hidden;
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      x = forward(context, k, x, input, input_of);
      sums.push_back({later_loss_sum(static_cast<std::int64_t>(k)),
                      head.loss(context, x, input.later[k].loss).sum});
    }
    return sums;
  }

  // The output of layer k; `before` [n, h]: that of the layer before.
  Value forward(Context& context, std::size_t k, const Value& before, const ModelInput& input,
                const LayerStack::InputOf& input_of) const {
    const Layer& layer = layers_.at(k);
    ModelInput moved = input;
    moved.tokens = input.later.at(k).tokens;
    moved.positions = input.later[k].positions;
    moved.noise = {};
    Value x = layer.input.forward(context, layer.embedding.forward(context, moved), before);
    if (x.tensor.dtype() != stream_) x = converted(context, x, stream_);
    return layer.norm.forward(context, layer.block.forward(context, x, input, input_of));
  }

  void add_first(KvCache& cache) const { layers_.at(0).block.add_layers(cache); }

 private:
  struct Layer {
    Embedding embedding;
    LaterTokenInput input;
    LayerStack block;  // of one block
    Norm norm;
  };
  DType stream_;
  std::vector<Layer> layers_;
};

class DecoderChunk final : public Chunk {
 public:
  DecoderChunk(const ModelConfig& config, const ModelLayout& layout, const Adapters& adapters,
               ChunkPlace place, const ChunkSetup& setup)
      : config_(config),
        place_(std::move(place)),
        shard_{.group = &layout.mesh->group(Axis::kTensor),
               .experts = &layout.mesh->group(Axis::kExpert),
               .alone = config.latent || config.mtp_layers > 0 ? &layout.mesh->group(AxisSet{0})
                                                               : nullptr,
               .row_counts =
                   layout.options.sends_rows_to_experts ? setup.device.make_stream() : nullptr,
               .strategy = layout.options.linears,
               .shared = layout.shared,
               .dtype = config.dtype,
               .context = layout.context_group(layout.exchange_of(config, 0))} {
    const LayersOfChunk of{config, layout, place_, shard_};
    vocabulary_ = {config.vocabulary, layout.padded_vocabulary(config.vocabulary)};
    ParameterList& parameters = setup.parameters;
    Parameter* tokens = nullptr;
    if (place_.first() || (place_.last() && shares_table())) {
      tokens =
          &token_table(parameters, of, kTokenTable, stages_of_table(), embedding_weights(config_));
    }
    if (place_.first()) {
      embedding_.emplace(parameters, shard_, *tokens, vocabulary_,
                         embedding_shape(config, "embedding.dropout", stages_of_embedding()));
    }
    layers_.emplace(parameters, of, adapters);
    if (place_.last()) {
      final_norm_.emplace(parameters, shard_, "final_norm", norm_shape(config));
      if (config.mtp_layers > 0)
        later_.emplace(parameters, of, *tokens, vocabulary_, stages_of_embedding());
      add_head(parameters, of, tokens);
    }
    if (config.positions == PositionKind::kRotary) {
      rotary_ = make_rotary_tables(config, angles(1), setup.device, setup.arena, setup.stream);
      if (config.local_rotary_base) {
        local_rotary_ =
            make_rotary_tables(config, {.base = *config.local_rotary_base, .scaling = {}},
                               setup.device, setup.arena, setup.stream);
      }
      if (config.rotary_scaling.query_growth != 0) {
        RotaryAngles of_queries = angles(1);
        of_queries.of_queries = true;
        query_rotary_ =
            make_rotary_tables(config, of_queries, setup.device, setup.arena, setup.stream);
      }
    }
    if (config.alibi_table()) {
      alibi_ = make_alibi_table(config, shard_, setup.device, setup.arena, setup.stream);
    } else if (config.positions == PositionKind::kAlibi) {
      slopes_ = make_slopes(config, shard_, setup.device, setup.arena, setup.stream);
    }
    adapters.freeze(parameters.all());
  }

  std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const override {
    if (chunk + 1 == place_.chunks()) return {};
    const std::int64_t ranks = shard_.splits_sequence() ? shard_.size() : 1;
    return {{config_.stream_dtype(), {input.samples * input.sequence / ranks, config_.hidden}}};
  }

  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    Context with_rows = context;
    with_rows.rows = input.rows;
    with_rows.adapter_rows = input.adapter_rows;
    with_rows.limits_experts = input.limits_experts;
    if (config_.experts && input.balance_scale.defined())
      with_rows.balance = empty_balance(context, input.balance_scale);
    prepare_rotary(context, input);
    Value x = place_.first() ? embedding_->forward(with_rows, input) : inputs.at(0);
    x = layers_->forward(with_rows, x, input,
                         [&](std::int64_t layer) { return attention_input(input, layer); });
    ChunkOutput output;
    if (!place_.last()) {
      output.boundary = {x};
    } else {
      output = results(with_rows, x, input);
    }
    if (const Tensor& sum = with_rows.balance.sum; sum.defined())
      output.sums.push_back({std::string(kBalanceSum), {sum}});
    if (const Tensor& sum = with_rows.balance.z_sum; sum.defined())
      output.sums.push_back({std::string(kZLossSum), {sum}});
    return output;
  }

  Tensor head_logits(Context& context, const Tensor& hidden) const override {
    PITON_ASSERT(place_.last(), "logits of chunk {} of {}", place_.index, place_.chunks());
    return head_->logits(context, hidden);
  }

  ChunkOutput later_tokens(Context& context, const ModelInput& input,
                           const Tensor& hidden) override {
    PITON_ASSERT(later_.has_value(), "a later token of chunk {} of {}", place_.index,
                 place_.chunks());
    Context plain = context.with_tape(nullptr);
    prepare_rotary(plain, input);
    const Value x = later_->forward(plain, 0, {hidden}, input, like_last(input));
    ChunkOutput output;
    if (!input.wanted.logits) return output;
    output.hidden = whole_rows(plain, shard_, x.tensor, input.wanted.rows);
    output.logits = head_->logits(plain, output.hidden);
    return output;
  }

  void add_layers(KvCache& cache) const override { layers_->add_layers(cache); }
  void add_later_layer(KvCache& cache) const override {
    if (later_) later_->add_first(cache);
  }

 private:
  BalanceOfExperts empty_balance(const Context& context, const Tensor& scale) const {
    const auto zero = [&] {
      Tensor sum = context.arena.allocate(DType::kF64, {1}, MemoryKind::kWorkspace, context.stream);
      context.device.zero(sum, context.stream);
      return sum;
    };
    return {
        .sum = zero(), .z_sum = config_.experts->z_factor != 0 ? zero() : Tensor(), .scale = scale};
  }

  // Whether the last chunk reads the table of tokens too.
  bool shares_table() const { return config_.tied || config_.mtp_layers > 0; }
  std::vector<int> stages_of_table() const {
    return shares_table() ? place_.stages_of_ends() : std::vector<int>();
  }
  // Of its other tables.
  std::vector<int> stages_of_embedding() const {
    return config_.mtp_layers > 0 ? place_.stages_of_ends() : std::vector<int>();
  }

  // `tokens`: the table of tokens, where the head shares it.
  void add_head(ParameterList& parameters, const LayersOfChunk& of, Parameter* tokens) {
    if (config_.labels > 0) {
      const std::int64_t ranks = shard_.size();
      const Vocabulary labels{config_.labels, (config_.labels + ranks - 1) / ranks * ranks};
      Parameter rows = vocabulary_parameter(shard_, label_tensor(config_), labels, config_.hidden,
                                            input_weights(config_));
      rows.rate_group = RateGroup::kVocabulary;  // it is the head
      head_.emplace(shard_, parameters.add(std::move(rows)), labels, HeadShape{});
      return;
    }
    Parameter& table = config_.tied
                           ? *tokens
                           : token_table(parameters, of, "head.weight", {}, input_weights(config_));
    HeadShape shape{.normalized = config_.normalized_head,
                    .divisor = config_.logit_divisor,
                    .soft_cap = config_.logit_soft_cap};
    if (config_.head_bias)
      shape.bias = &parameters.add(vocabulary_parameter(shard_, "head.bias", vocabulary_, 0, {}));
    head_.emplace(shard_, table, vocabulary_, shape);
    // The losses of later tokens are of the same head.
    table.contributions += static_cast<int>(config_.mtp_layers);
    if (shape.bias != nullptr) shape.bias->contributions += static_cast<int>(config_.mtp_layers);
  }

  // What the last chunk returns. x [b*s, h], under sequence parallelism this rank's [b*s/t, h].
  ChunkOutput results(Context& context, const Value& x, const ModelInput& input) const {
    const Wanted& wanted = input.wanted;
    ChunkOutput output;
    if (wanted.loss) {
      const Value hidden = final_norm_->forward(context, x);
      LossOutput loss = head_->loss(context, hidden, input.loss);
      output.sums.push_back({std::string(kLossSum), loss.sum});
      if (loss.divergence.defined())
        output.sums.push_back({std::string(kDivergenceSum), {loss.divergence}});
      if (wanted.token_losses) output.token_losses = loss.per_token;
      if (!input.later.empty()) {
        for (NamedSum& sum : later_->losses(context, hidden, input, *head_, like_last(input)))
          output.sums.push_back(std::move(sum));
      }
    }
    if (wanted.logits || wanted.hidden || wanted.all_hidden) {
      Context plain = context.with_tape(nullptr);
      const bool picks = wanted.all_hidden && wanted.rows.defined();
      const Tensor rows = whole_rows(plain, shard_, x.tensor, picks ? Tensor() : wanted.rows);
      const Tensor hidden = final_norm_->forward(plain, {rows}).tensor;
      if (wanted.logits)
        output.logits =
            head_->logits(plain, picks ? chosen_rows(plain, hidden, wanted.rows) : hidden);
      if (wanted.hidden || wanted.all_hidden) output.hidden = hidden;
    }
    return output;
  }

  // The inputs of attention of every layer that predicts later tokens.
  LayerStack::InputOf like_last(const ModelInput& input) const {
    return [this, &input](std::int64_t) { return attention_input(input, config_.layers - 1); };
  }

  RotaryAngles angles(std::int64_t sequence) const {
    return {config_.rotary_base, config_.rotary_scaling, sequence};
  }

  // Tables for this pass.
  void prepare_rotary(Context& context, const ModelInput& input) {
    row_rotary_.reset();
    if (config_.positions != PositionKind::kRotary || !depends_on_length(config_.rotary_scaling))
      return;
    if (input.cache != nullptr) {
      row_rotary_ = make_row_tables(context, config_, angles(1), *input.cache);
      return;
    }
    const std::int64_t sequence = input.sequence * shard_.context.size();
    if (rotary_.length != rotary_length(config_.rotary_scaling, sequence)) {
      rotary_ = make_rotary_tables(config_, angles(sequence), context.device, context.arena,
                                   context.stream);
    }
  }

  AttentionInput attention_input(const ModelInput& input, std::int64_t layer) const {
    const bool local = config_.local_rotary_base && config_.window_of(layer);
    const RotaryTables none;
    const RotaryTables& tables = !config_.rotates(layer) ? none
                                 : local                 ? local_rotary_
                                 : row_rotary_           ? *row_rotary_
                                                         : rotary_;
    const auto settings = [&](const RotaryTables& tables) {
      return RotarySettings{
          .cosine = tables.cosine,
          .sine = tables.sine,
          .positions = tables.positions.defined() ? tables.positions : input.positions};
    };
    return {.batch = input.samples,
            .places = {.query_positions = input.query_positions,
                       .key_positions = input.key_positions,
                       .query_reach = input.query_reach,
                       .query_segments = input.segments,
                       .key_segments = input.segments},
            .rotary = settings(tables),
            .query_rotary = settings(query_rotary_),
            .slopes = slopes_,
            .bias = {{alibi_.values}, alibi_.origin}};
  }

  ModelConfig config_;
  ChunkPlace place_;
  Shard shard_;
  Vocabulary vocabulary_;
  std::optional<Embedding> embedding_;
  std::optional<LayerStack> layers_;
  std::optional<Norm> final_norm_;
  std::optional<LaterTokenLayers> later_;  // of a model that is trained with them
  std::optional<Head> head_;
  RotaryTables rotary_;
  std::optional<RotaryTables> row_rotary_;  // of a pass whose rows have texts of other lengths
  RotaryTables local_rotary_;               // for layers with a window, if they have their own base
  RotaryTables query_rotary_;               // of queries, if theirs grow with the position
  Tensor slopes_;
  AlibiTable alibi_;
};

}  // namespace

ChunkFactory decoder_factory(const ModelConfig& config, const ModelLayout& layout,
                             const Adapters& adapters) {
  return [config, layout, adapters](const ChunkPlace& place, const ChunkSetup& setup) {
    layout.check(config, place.chunks());
    return std::make_unique<DecoderChunk>(config, layout, adapters, place, setup);
  };
}

}  // namespace piton
