#include "session/session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "comm/gathered_values.h"
#include "comm/message_lanes.h"
#include "model/initialize.h"
#include "model/model_factory.h"
#include "ops/context/context_attention.h"
#include "session/pair_weights.h"

namespace piton {
namespace {

ComputeContext compute(const Machine& machine) {
  return {machine.kernels, machine.device, machine.arena, machine.stream};
}

// `rows`, which are in host memory, where the kernels can read them.
Tensor on_device(const Machine& machine, const Tensor& rows) {
  if (machine.device.place() == rows.place()) return rows;
  Tensor copy = machine.arena.allocate(rows.dtype(), rows.shape(), MemoryKind::kWorkspace);
  machine.device.upload(rows.raw(), copy, machine.stream);
  return copy;
}

// cap tanh(x / cap) / t = (cap / t) tanh((x / t) / (cap / t))
ModelConfig at_temperature(ModelConfig model, double temperature) {
  PITON_ASSERT(temperature == 1 || !model.head_bias, "temperature {} of a head with a bias",
               temperature);
  model.logit_divisor *= temperature;
  model.logit_soft_cap /= temperature;
  return model;
}

}  // namespace

void Session::check_device(const Machine& machine, const MeshSizes& mesh,
                           const SessionSettings& settings) {
  if (machine.device.place().kind != DeviceKind::kCuda) return;
  if (!settings.layout.linears.fuses() || mesh[Axis::kTensor] == 1) return;
  throw Error(Fault::kUsage,
              "--fused-linears: the ranks of --kernels cuda cannot write to the memory of each "
              "other; leave it out, or use --kernels cpu");
}

Session::Session(const Machine& machine, Mesh& mesh, const SessionSettings& given)
    : machine_(machine), mesh_(&mesh), settings_(given) {
  // Only training runs all of them.
  if (given.use == SessionUse::kInference)
    settings_.model.mtp_layers =
        given.drafts_later ? std::min<std::int64_t>(given.model.mtp_layers, 1) : 0;
  const SessionSettings& settings = settings_;
  check_device(machine, mesh.sizes(), settings);
  layout_ = {.mesh = mesh_, .options = settings.layout};
  // Made now: creating a group waits for its members, and must not come between messages of a step.
  for (const AxisSet set : {axes(Axis::kTensor), axes(Axis::kExpert), axes(Axis::kPipeline),
                            kSampleAxes, kLossAxes, kAllAxes})
    mesh.group(set);
  if (mesh.size(Axis::kContext) > 1) {
    for (const ContextExchange exchange : layout_.exchanges_of(settings.model))
      connect_members(layout_.context_group(exchange));
  }
  if (settings.layout.sends_rows_to_experts && mesh.size(Axis::kExpert) > 1)
    connect_all(mesh.group(Axis::kExpert));
  share_rows();

  consumed_samples_ = machine.arena.allocate(DType::kI64, {1}, MemoryKind::kWorkspace);
  machine.device.zero(consumed_samples_, machine.stream);

  Schedule schedule =
      settings.own_schedule
          ? *settings.own_schedule
          : make_schedule(settings.schedule, mesh.size(Axis::kPipeline), settings.micro_batches);
  const ChunkFactory make =
      settings.chunks ? settings.chunks
                      : model_factory(at_temperature(settings.model, settings.logit_temperature),
                                      layout_, settings.adapters);
  std::vector<Chunk*> chunks;
  for (const int chunk : schedule.chunks_of_stage(mesh.coordinate(Axis::kPipeline))) {
    parameters_.begin_chunk(chunk);
    chunks_.push_back(make({chunk, schedule.stage_of_chunk},
                           {parameters_, machine.device, machine.arena, machine.stream}));
    chunks.push_back(chunks_.back().get());
  }
  make_parameters();
  if (settings.use == SessionUse::kTraining) {
    OptimizerOptions& options = settings_.optimizer_options;
    options.fp16 = settings.model.dtype == DType::kF16;
    state_target_ = state_target(settings.offload, machine.device);
    optimizer_ = std::make_unique<Optimizer>(options, update_spans(sharded_->owned()), mesh,
                                             compute(machine),
                                             OptimizerSetup{.offload = state_target_.get()});
  }
  pipeline_ = std::make_unique<Pipeline>(std::move(schedule), std::move(chunks),
                                         mesh.group(Axis::kPipeline));
  if (settings.scatter_boundaries && !settings.layout.linears.sequence_parallel)
    pipeline_->scatter_over = &mesh.group(Axis::kTensor);
  if (settings.use != SessionUse::kInference) offload_activations();
}

// The memory of fused linears: their whole-width side has the rows of a micro-batch.
void Session::share_rows() {
  const LinearStrategy& linears = settings_.layout.linears;
  if (!linears.fuses() || mesh_->size(Axis::kTensor) == 1) return;
  const ModelConfig& model = settings_.model;
  std::int64_t widest = model.hidden;
  if (model.latent) widest = std::max({widest, model.latent->rank, model.latent->query_rank});
  const std::int64_t bytes = linears.shared_rows * widest * size_bytes(model.dtype);
  shared_rows_ = std::make_unique<SharedRows>(mesh_->group(Axis::kTensor), machine_.device, bytes);
  layout_.shared = shared_rows_.get();
}

void Session::offload_activations() {
  activation_target_ = activation_target(settings_.offload, machine_.device);
  if (activation_target_ == nullptr) return;
  activation_lanes_ = std::make_unique<OffloadLanes>(machine_.arena, *activation_target_);
  pipeline_->make_keeper = [this] {
    return std::make_unique<OffloadingKeeper>(*activation_lanes_, machine_.stream,
                                              settings_.offload.smallest_activation,
                                              settings_.offload.layers_to_offload());
  };
}

// Gains are the only weights of one dimension; those of queries and keys are always of RMS norms.
void Session::set_gain_decay() {
  for (Parameter* parameter : all_parameters_) {
    for (Piece& piece : parameter->pieces) {
      const bool gain = piece.global.ndim() == 1 && piece.name.ends_with(".weight");
      const bool rms = settings_.model.norm == NormKind::kRms ||
                       piece.name.ends_with(".query_norm.weight") ||
                       piece.name.ends_with(".key_norm.weight");
      if (gain && rms) piece.decays = true;
    }
  }
}

void Session::make_parameters() {
  all_parameters_ = parameters_.all();
  if (settings_.optimizer_options.decay_groups == DecayGroups::kMatricesAndRmsNorms) {
    set_gain_decay();
  }
  const bool reads = settings_.use == SessionUse::kInference;
  if (settings_.codes) {
    std::vector<Parameter*> frozen = all_parameters_;
    if (!reads) std::erase_if(frozen, [](const Parameter* one) { return one->trainable; });
    hold_as_codes(frozen, settings_.codes, machine_.arena);
  }
  if (reads && settings_.zero_stage < 3) {
    sharded_ = ShardedParameters::make_inference(all_parameters_, machine_.kernels, machine_.arena);
    return;
  }
  if (reads) {
    for (Parameter* parameter : all_parameters_) parameter->trainable = false;
  }
  sharded_ = ShardedParameters::make(
      settings_.zero_stage, all_parameters_, *mesh_, compute(machine_),
      {.cut = settings_.optimizer_options.kind == OptimizerKind::kMuon ? CutPolicy::kWholeMatrices
                                                                       : CutPolicy::kEven,
       .instances = settings_.zero_instances,
       .frozen_forms = settings_.frozen_forms});
}

Session::~Session() {
  try {
    machine_.stream.synchronize();
  } catch (const Error&) {  // the run has failed; others report it
  }
}

void Session::initialize(const std::vector<Parameter*>& parameters) {
  std::int64_t largest = 0;
  for (const Parameter* parameter : parameters) {
    largest = std::max(largest, parameter->elements() * size_bytes(parameter->dtype));
  }
  const Tensor memory =
      host_tensor(DType::kU8, {largest});  // one for all: allocating pages takes time
  for (Parameter* parameter : parameters) {
    if (parameter->codes.given()) continue;  // 0 until they are loaded
    const Tensor rows(memory.storage(), 0, parameter->dtype, parameter->shape);
    write_initial_rows(*parameter, settings_.seed, machine_.threads, rows);
    sharded_->set_value(*parameter, on_device(machine_, rows), machine_.stream);
    machine_.stream.synchronize();  // before the next value overwrites it
  }
  publish_values();
}

void Session::publish_values() {
  sharded_->publish_values(machine_.stream);
  if (optimizer_) optimizer_->reset_main(machine_.stream);
}

std::int64_t Session::offloaded_bytes() const {
  std::int64_t bytes = 0;
  for (const OffloadTarget* target : {state_target_.get(), activation_target_.get()}) {
    if (target != nullptr) bytes += target->peak_bytes();
  }
  return bytes;
}

Context Session::context(bool training) {
  return {.kernels = machine_.kernels,
          .stream = machine_.stream,
          .device = machine_.device,
          .arena = machine_.arena,
          .weights = *sharded_,
          .training = training,
          .seed = settings_.seed};
}

double Session::summed_over_ranks(double value, AxisSet axes) {
  Communicator& group = mesh_->group(axes);
  if (group.size() == 1) return value;
  double sum = 0;
  for (const double one : gathered_values(group, value)) sum += one;
  return sum;
}

double Session::sum_of(const PipelineResult& result, std::string_view name) {
  double sum = 0;
  const auto found = result.sums.find(name);
  if (found != result.sums.end()) machine_.device.download(found->second, &sum, machine_.stream);
  return summed_over_ranks(sum, kLossAxes);
}

void Session::teach(const std::vector<MicroBatch>& batches, std::vector<ModelInput>& inputs) {
  Session* const teacher = teaching_.teacher;
  if (teacher == nullptr) return;
  const std::vector<Tensor> hidden = teacher->hidden_states(batches);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!hidden[i].defined()) continue;
    inputs[i].loss.teacher = {
        .hidden = hidden[i],
        .logits = [teacher](const Tensor& rows) { return teacher->head_logits(rows); },
        .temperature = teaching_.temperature,
        .weight = teaching_.weight};
  }
}

void Session::add_teaching_figures(const PipelineResult& result, double tokens,
                                   std::vector<ObjectiveFigure>& figures) {
  if (teaching_.teacher != nullptr)
    figures.push_back({"teacher_divergence", sum_of(result, kDivergenceSum), tokens});
}

Session::Labels Session::total_labels(const std::vector<MicroBatch>& batches) {
  double tokens = 0;
  for (const MicroBatch& batch : batches) tokens += batch.loss_tokens();
  Labels labels{.tokens = summed_over_ranks(tokens, kSampleAxes)};
  const std::optional<EncoderFacts>& encoder = settings_.model.encoder;
  if (encoder && encoder->pair_head)
    labels.pairs = summed_over_ranks(count_pairs(batches), kSampleAxes);
  return labels;
}

Session::Losses Session::losses_of(const PipelineResult& result, const Labels& labels) {
  const double words = sum_of(result, kLossSum);
  if (labels.pairs == 0) return {words, {}};
  const double pairs = sum_of(result, kPairLossSum);
  return {words + pairs,
          {{"masked_lm_loss", words, labels.tokens},
           {"sop_loss", pairs / labels.pair_weight(), labels.pairs}}};
}

Session::Evaluation Session::evaluate(const std::vector<MicroBatch>& batches) {
  if (objective_ != nullptr) {
    std::vector<MicroBatch> weighted = batches;
    ObjectiveReport found = objective_->weigh(*this, weighted, /*training=*/false);
    return {.loss_sum = found.loss_sum,
            .loss_tokens = found.count,
            .figures = std::move(found.figures)};
  }
  std::vector<ModelInput> inputs;
  inputs.reserve(batches.size());
  const Labels labels = total_labels(batches);
  if (labels.pairs > 0) {
    for (const MicroBatch& batch : with_pair_weights(batches, labels.pair_weight()))
      inputs.push_back(upload(batch, {}));
  } else {
    for (const MicroBatch& batch : batches) inputs.push_back(upload(batch, {}));
  }
  for (ModelInput& input : inputs) input.limits_experts = true;
  teach(batches, inputs);
  ask_for_labels(batches, inputs);
  std::vector<Tensor> logits(batches.size());
  const PipelineResult result =
      pipeline_->forward(context(false), inputs, [&](int micro_batch, ChunkOutput& output) {
        logits[static_cast<std::size_t>(micro_batch)] = std::move(output.logits);
      });
  Losses losses = losses_of(result, labels);
  add_teaching_figures(result, labels.tokens, losses.figures);
  return {.loss_sum = losses.sum,
          .loss_tokens = labels.tokens,
          .figures = std::move(losses.figures),
          .labels = counts_of(batches, logits)};
}

std::vector<Tensor> Session::hidden_states(const std::vector<MicroBatch>& batches) {
  std::vector<ModelInput> inputs;
  inputs.reserve(batches.size());
  for (const MicroBatch& batch : batches) {
    inputs.push_back(upload(batch, {}));
    inputs.back().wanted = {.loss = false, .hidden = true};
  }
  std::vector<Tensor> hidden(batches.size());
  pipeline_->forward(context(false), inputs, [&](int micro_batch, ChunkOutput& output) {
    hidden[static_cast<std::size_t>(micro_batch)] = output.hidden;
  });
  return hidden;
}

Tensor Session::head_logits(const Tensor& hidden) {
  PITON_ASSERT(pipeline_->on_last_stage(), "logits of a stage without a head");
  Context plain = context(false);
  return pipeline_->last_chunk()->head_logits(plain, hidden);
}

std::vector<std::vector<double>> Session::token_losses(const std::vector<MicroBatch>& batches,
                                                       const LossPass& pass) {
  PITON_ASSERT(mesh_->size(Axis::kContext) == 1, "losses of rows that are divided over ranks");
  std::vector<ModelInput> inputs;
  inputs.reserve(batches.size());
  for (const MicroBatch& batch : batches) {
    inputs.push_back(upload(batch, {}));
    inputs.back().wanted.token_losses = true;
  }
  Context context = this->context(pass.training);
  context.adapters = pass.adapters;
  std::vector<std::vector<double>> losses(batches.size());
  pipeline_->forward(context, inputs, [&](int micro_batch, ChunkOutput& output) {
    const Tensor& found = output.token_losses;
    std::vector<double>& one = losses[static_cast<std::size_t>(micro_batch)];
    one.resize(static_cast<std::size_t>(found.elements()));
    if (found.dtype() == DType::kF64) {
      machine_.device.download(found, one.data(), machine_.stream);
      return;
    }
    std::vector<float> narrow(one.size());
    machine_.device.download(found, narrow.data(), machine_.stream);
    std::copy(narrow.begin(), narrow.end(), one.begin());
  });
  return losses;
}

}  // namespace piton
