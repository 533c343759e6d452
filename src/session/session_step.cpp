// A step of training: passes, by their recording where there is one, and the update.
#include <string>
#include <utility>

#include "base/error.h"
#include "model/rotary.h"
#include "parallel/without_observer.h"
#include "session/later_labels.h"
#include "session/pair_weights.h"
#include "session/run_sections.h"
#include "session/session.h"

namespace piton {

std::string Session::obstacle_to_recording() const {
  const ModelConfig& model = settings_.model;
  if (!machine_.stream.can_record()) return "its device records nothing";
  if (machine_.world.size() > 1) return "several ranks";
  if (machine_.sections != nullptr) return "the parts of a step are timed or traced";
  // These gather values, and hold them, between the calls of a step.
  if (settings_.zero_stage > 1) return "--zero-stage 2 and 3";
  if (state_target_ || activation_target_) return "state or activations leave the device";
  if (objective_ != nullptr) return "its loss is that of answers";
  if (teaching_.teacher != nullptr) return "it learns from a teacher";
  // What the host makes of a batch, reads of its passes, or keeps until weights change.
  if (model.encoder || model.encoder_decoder) return "a model with an encoder";
  if (model.gives_labels()) return "its labels are counted";
  if (model.normalized_head) return "--normalized-head";
  if (depends_on_length(model.rotary_scaling)) return "rotary angles that depend on the length";
  for (const auto& [name, shape] : settings_.adapters.shapes) {
    if (shape.magnitude) return "adapters with magnitudes";
  }
  return "";
}

void Session::record_steps(bool on) {
  recorder_ =
      on && obstacle_to_recording().empty() ? std::make_unique<StepRecorder>(machine_) : nullptr;
}

// Null: the step is not recorded.
RecordedStep* Session::recorded_step(const std::vector<MicroBatch>& batches) {
  if (recorder_ == nullptr || !obstacle_to_recording().empty()) return nullptr;
  return recorder_->step(batches, settings_.model.layers);
}

ExpertBalance Session::balance_experts(const std::vector<MicroBatch>& batches, double loss_scale,
                                       std::vector<ModelInput>& inputs) {
  // Losses of preferences are of pairs of texts; the balance of their rows is not among them, and
  // no expert drops any, because their answers are also judged without training.
  if (!settings_.model.experts || objective_ != nullptr) return {};
  const double rows = summed_over_ranks(rows_of(batches), kSampleAxes);
  const ExpertBalance balance{.scale = put_scale(loss_scale / rows), .rows = rows};
  for (ModelInput& input : inputs) {
    input.balance_scale = balance.scale;
    input.limits_experts = true;
  }
  return balance;
}

std::vector<double> Session::predict_later(const std::vector<MicroBatch>& batches,
                                           double loss_scale, std::vector<ModelInput>& inputs) {
  const std::int64_t layers = settings_.model.mtp_layers;
  PITON_ASSERT(layers == 0 || objective_ == nullptr, "later tokens of answers");
  std::vector<double> counts;
  std::vector<MicroBatch> moved = batches;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    double tokens = 0;
    for (MicroBatch& batch : moved) {
      batch = moved_by_one(batch);
      tokens += batch.loss_tokens();
    }
    tokens = summed_over_ranks(tokens, kSampleAxes);
    counts.push_back(tokens);
    const double factor = settings_.model.mtp_loss_factor / static_cast<double>(layers);
    const Tensor scale = put_scale(tokens > 0 ? loss_scale * factor / tokens : 0);
    for (std::size_t i = 0; i < moved.size(); ++i)
      inputs[i].later.push_back(upload_later(moved[i], scale));
  }
  return counts;
}

std::int64_t Session::samples_of(const std::vector<MicroBatch>& batches) {
  std::int64_t samples = 0;
  for (const MicroBatch& batch : batches) samples += batch.samples;
  return samples * mesh_->sizes().sample_ranks();
}

void Session::schedule_micro_batches(int count) {
  if (pipeline_->schedule().micro_batches == count) return;
  PITON_ASSERT(!settings_.own_schedule, "a schedule of {} micro-batches, got {}",
               settings_.own_schedule->micro_batches, count);
  pipeline_->set_schedule(make_schedule(settings_.schedule, mesh_->size(Axis::kPipeline), count));
}

PipelineResult Session::forward_backward(const std::vector<ModelInput>& inputs,
                                         const Tensor& sums_of_losses) {
  const Section whole(machine_.sections, kForwardBackwardSection);
  sharded_->begin_step(static_cast<int>(inputs.size()), machine_.stream);
  PipelineResult result = pipeline_->train(context(true), inputs, sums_of_losses);
  const Section sums(machine_.sections, kGradientSumsSection);
  sharded_->finish_gradients(machine_.stream);
  return result;
}

StepReport Session::gradients(const std::vector<MicroBatch>& batches,
                              std::int64_t consumed_samples) {
  return read(enqueue_passes(batches, consumed_samples), batches);
}

Session::EnqueuedPasses Session::enqueue_passes(const std::vector<MicroBatch>& batches,
                                                std::int64_t consumed_samples) {
  EnqueuedPasses passes{.report = {.loss_scale = optimizer_ ? optimizer_->loss_scale() : 1}};
  schedule_micro_batches(static_cast<int>(batches.size()));
  machine_.device.upload(&consumed_samples, consumed_samples_, machine_.stream);
  if (objective_ != nullptr) {
    std::vector<MicroBatch> weighted = batches;
    ObjectiveReport found = objective_->weigh(*this, weighted, /*training=*/true);
    PITON_ASSERT(found.count > 0, "an objective that counts nothing");
    passes.labels.tokens = found.count;
    passes.report.figures = std::move(found.figures);
    passes.loss = found.loss_sum / found.count;
    enqueue(weighted, passes);
    return passes;
  }
  passes.labels = total_labels(batches);
  if (passes.labels.tokens == 0) {
    throw Error(
        Fault::kData,
        "samples {} to {}: none of their tokens has a label, so nothing is learned from this "
        "batch; piton inspect samples shows them",
        consumed_samples, consumed_samples + samples_of(batches) - 1);
  }
  if (passes.labels.pairs == 0) {
    enqueue(batches, passes);
  } else {
    enqueue(with_pair_weights(batches, passes.labels.pair_weight()), passes);
  }
  return passes;
}

// Of the sum over tokens of mask * loss, divided by their number.
void Session::enqueue(const std::vector<MicroBatch>& batches, EnqueuedPasses& passes) {
  StepReport& report = passes.report;
  report.loss_tokens = passes.labels.tokens;
  passes.recorded = recorded_step(batches);
  places_ = passes.recorded != nullptr ? &passes.recorded->inputs : nullptr;
  const Tensor scale = put_scale(report.loss_scale / report.loss_tokens);
  passes.inputs.reserve(batches.size());
  for (const MicroBatch& batch : batches) passes.inputs.push_back(upload(batch, scale));
  passes.balance = balance_experts(batches, report.loss_scale, passes.inputs);
  passes.later_tokens = predict_later(batches, report.loss_scale, passes.inputs);
  // The loss of numbers says how they are.
  if (settings_.model.gives_labels()) ask_for_labels(batches, passes.inputs);
  passes.sums = input_memory(DType::kF64, {kNamedSums}, MemoryKind::kActivations);
  places_ = nullptr;
  teach(batches, passes.inputs);
  if (passes.recorded != nullptr && passes.recorded->passes.run(machine_)) {
    passes.result = passes.recorded->result;
    passes.recorded = nullptr;
  } else {
    passes.result = forward_backward(passes.inputs, passes.sums);
  }
}

StepReport Session::read(EnqueuedPasses passes, const std::vector<MicroBatch>& batches) {
  StepReport& report = passes.report;
  Losses losses = losses_of(passes.result, passes.labels);
  report.loss = passes.loss.value_or(losses.sum / report.loss_tokens);
  if (passes.labels.pairs > 0) report.figures = std::move(losses.figures);
  add_teaching_figures(passes.result, report.loss_tokens, report.figures);
  for (std::size_t layer = 0; layer < passes.later_tokens.size(); ++layer) {
    const std::string name = later_loss_sum(static_cast<std::int64_t>(layer));
    const double sum = sum_of(passes.result, name);
    if (const double tokens = passes.later_tokens[layer]; tokens > 0)
      report.figures.push_back({name, sum, tokens});
  }
  if (const ExpertBalance& balance = passes.balance; balance.scale.defined()) {
    const std::int64_t layers = settings_.model.trained_expert_layers();
    report.figures.push_back(balance.figure(sum_of(passes.result, kBalanceSum), layers));
    if (settings_.model.experts->z_factor != 0)
      report.figures.push_back(balance.z_figure(sum_of(passes.result, kZLossSum), layers));
  }
  if (settings_.model.gives_labels())
    report.figures.push_back(counts_of(batches, passes.result.logits).accuracy_figure());
  passes.result = {};
  if (RecordedStep* const recorded = passes.recorded) {
    const WithoutObserver unseen(*pipeline_);
    recorder_->record(recorded->passes,
                      [&] { recorded->result = forward_backward(passes.inputs, passes.sums); });
  }
  return std::move(report);
}

void Session::update() {
  RecordedPart* const recorded = recorder_ ? recorder_->update() : nullptr;
  if (recorded != nullptr && recorded->run(machine_)) return;
  optimizer_->update(machine_.stream);
  if (recorded != nullptr)
    recorder_->record(*recorded, [this] { optimizer_->update(machine_.stream); });
}

StepReport Session::train_step(const std::vector<MicroBatch>& batches,
                               std::int64_t consumed_samples, const GroupRates& rates,
                               std::optional<double> weight_decay) {
  EnqueuedPasses passes = enqueue_passes(batches, consumed_samples);
  // The host reads the loss when the update is enqueued, so that the device has work all the time.
  // With several ranks it waits for the others anyway, to add up their losses.
  const bool first = optimizer_->reads_loss() || machine_.world.size() > 1;
  StepReport report;
  if (first) report = read(std::move(passes), batches);
  const Section whole(machine_.sections, kOptimizerSection);
  optimizer_->set_rates(
      {.learning_rate = rates,
       .weight_decay = weight_decay.value_or(settings_.optimizer_options.weight_decay),
       .loss = report.loss},
      machine_.stream);
  update();
  {
    const Section publish(machine_.sections, kPublishSection);
    sharded_->publish_values(machine_.stream);
  }
  if (!first) report = read(std::move(passes), batches);
  const StepResult step = optimizer_->result(machine_.stream);
  report.grad_norm = step.grad_norm;
  report.skipped = step.skipped;
  return report;
}

}  // namespace piton
