#include "convert/layer_walk.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/error.h"
#include "checkpoint/load_values.h"
#include "kernels/measured/forwarding_kernels.h"
#include "parallel/data_parallel.h"

namespace piton {
namespace {

// Remembers the matrix that was acquired last: the one that the next product reads.
class WatchedWeights final : public WeightProvider {
 public:
  explicit WatchedWeights(WeightProvider& inner) : inner_(inner) {}

  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override {
    if (parameter.is_matrix()) last_ = &parameter;
    return inner_.acquire(parameter, form, stream);
  }
  Tensor gradient(Parameter& parameter, Stream& stream) override {
    return inner_.gradient(parameter, stream);
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    inner_.contribute(parameter, stream);
  }
  const Parameter* last() const { return last_; }

 private:
  WeightProvider& inner_;
  const Parameter* last_ = nullptr;
};

class WatchedKernels final : public ForwardingKernels {
 public:
  WatchedKernels(Kernels& inner, const WatchedWeights& weights, const SeenInputs& seen)
      : ForwardingKernels(inner), weights_(weights), seen_(seen) {}

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    const auto* product = std::get_if<LinearForward>(&call);
    const Parameter* matrix = weights_.last();
    if (product != nullptr && matrix != nullptr && product->weight.out == matrix->shape[0] &&
        product->weight.in == matrix->shape[1]) {
      seen_(*matrix, product->x, inner_, stream);
    }
    inner_.run(call, stream);
  }

  const WatchedWeights& weights_;
  const SeenInputs& seen_;
};

std::int64_t longest_of(const std::vector<std::vector<std::int32_t>>& prompts) {
  std::int64_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max<std::int64_t>(longest, std::ssize(prompt));
  return longest;
}

}  // namespace

LayerWalk::LayerWalk(const Machine& machine, Mesh& mesh, const ModelConfig& model,
                     std::vector<std::vector<std::int32_t>> prompts)
    : machine_(machine),
      mesh_(mesh),
      model_(model),
      prompts_(std::move(prompts)),
      outputs_(prompts_.size()) {
  PITON_ASSERT(!prompts_.empty());
  model_.dtype = DType::kF32;
  model_.hidden_dropout = model_.attention_dropout = 0;
  // Angles are computed for as many positions as there may be: a million of them in some models.
  if (model_.positions != PositionKind::kLearned) model_.max_positions = longest_of(prompts_);
  layout_ = {.mesh = &mesh_, .options = {.vocabulary_multiple = 1}};
}

void LayerWalk::run(int index, TensorSource& source, const SeenInputs& seen) {
  Arena arena(machine_.device);
  ParameterList parameters;
  const ChunkPlace place{index, std::vector<int>(static_cast<std::size_t>(chunks()), 0)};
  const std::unique_ptr<Chunk> chunk =
      model_factory(model_, layout_)(place, {parameters, machine_.device, arena, machine_.stream});
  const std::unique_ptr<ShardedParameters> values =
      ShardedParameters::make_inference(parameters.all(), machine_.kernels, arena);
  const StoredModel stored{.parameters = parameters.all(), .sharded = values.get()};
  load_values(source, stored, {mesh_, machine_.device, arena, machine_.stream});
  WatchedWeights watched_weights(*values);
  WatchedKernels watched_kernels(machine_.kernels, watched_weights, seen);
  Context context{.kernels = seen ? watched_kernels : machine_.kernels,
                  .stream = machine_.stream,
                  .device = machine_.device,
                  .arena = arena,
                  .weights = seen ? static_cast<WeightProvider&>(watched_weights) : *values};
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    std::vector<float> output = forward(*chunk, context, {place, !seen}, prompt);
    if (!seen) outputs_[prompt] = std::move(output);
  }
  machine_.stream.synchronize();
}

std::vector<float> LayerWalk::forward(Chunk& chunk, Context& context, const Pass& pass,
                                      std::size_t prompt) {
  const ChunkPlace& place = pass.place;
  const auto put = [&]<typename T>(DType dtype, const Shape& shape, const std::vector<T>& host) {
    Tensor tensor = context.arena.allocate(dtype, shape, MemoryKind::kActivations, machine_.stream);
    machine_.device.upload(host.data(), tensor, machine_.stream);
    return tensor;
  };
  const std::vector<std::int32_t>& ids = prompts_[prompt];
  const auto rows = std::ssize(ids);
  std::vector<std::int32_t> positions(ids.size());
  const std::int64_t first = model_.encoder ? model_.encoder->first_position : 0;
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  ModelInput input{.samples = 1,
                   .sequence = rows,
                   .tokens = put(DType::kI32, {rows}, ids),
                   .positions = put(DType::kI32, {rows}, positions)};
  if (model_.encoder)
    input.encoder.types = put(DType::kI32, {rows}, std::vector<std::int32_t>(ids.size()));
  if (model_.encoder_decoder) {
    const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(rows)};
    input.source = {.sequence = rows,
                    .tokens = input.tokens,
                    .positions = input.positions,
                    .lengths = put(DType::kI32, {1}, lengths)};
  }
  input.wanted = {.loss = false, .logits = pass.keeps_output};
  std::vector<Value> inputs;
  if (!place.first()) inputs.push_back({put(DType::kF32, {rows, model_.hidden}, outputs_[prompt])});
  const ChunkOutput output = chunk.forward(context, input, inputs);
  if (!pass.keeps_output) return {};
  const Tensor& given = place.last() ? output.logits : output.boundary.at(0).tensor;
  std::vector<float> result(static_cast<std::size_t>(given.elements()));
  machine_.device.download(given, result.data(), machine_.stream);
  return result;
}

}  // namespace piton
