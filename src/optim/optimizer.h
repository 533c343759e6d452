// Updates the flat spans that this rank owns, each by its rule (AdamW, SGD with momentum, Muon for
// whole matrices, or CAdam). Computes the norm of the gradient over all ranks.
//
// Biases of choices of experts are updated here too, by the sign of a gradient that counts tokens
// (Parameter::sign_rate). So what sums gradients over micro-batches and ranks sums these counts,
// under every layout and ZeRO stage, and what skips an update skips theirs.
//
// Precision: main copies, moments and gradients are fp32, whatever the dtype of the weights;
// AdamW's moments may be bf16, and CAdam's is fp16. Squares are summed in fp64. Formulas:
// kernels/optimizer.h.
//
// The norm's sums: optim/gradient_squares.h. The clip factor is rounded to fp32: layouts whose sums
// differ in the last bits of fp64 have the same factor unless these bits change the rounding.
//
// The device does not wait for the host during a step: norm, clip factor, the decision to skip and
// the number of updates are computed on the device. If its state is in a file, the
// host waits for the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/compute_context.h"
#include "ops/parameter.h"
#include "optim/cadam.h"
#include "optim/gradient_squares.h"
#include "optim/learning_rate.h"
#include "optim/matrix_rounds.h"
#include "optim/muon.h"
#include "optim/optimizer_options.h"
#include "optim/state_transfer.h"
#include "optim/update_span.h"

namespace piton {

// The moving average of the weights (--ema-decay). If it is kept, it is the last moment of every
// span.
inline constexpr std::string_view kAverageMoment = "ema";

// One state tensor of an update rule. `name` is its name in checkpoints.
struct Moment {
  std::string_view name;  // adam: "exp_avg" (m), "exp_avg_sq" (v); sgd, muon: "momentum_buffer";
                          // cadam: "exp_avg" and its "exp_avg_scale"
  DType dtype = DType::kF32;
  bool each_row = false;  // one value for each row (row_runs, optim/cadam.h), not each element
  Tensor values = {};     // [n], or [rows]
};

// Optimizer state of one span: what a checkpoint stores.
struct OptimizerState {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;  // as in UpdateSpan
  Tensor main;              // fp32 [n]; if the weights are fp32, the value itself. Elsewhere, as
                            // the moments, if the state is offloaded
  std::vector<Moment> moments;  // those of the rule; none for sgd without momentum
  OptimizerKind rule = OptimizerKind::kAdam;
  bool main_is_value = false;

  std::int64_t size() const { return main.elements(); }
};

// Inputs of a step that change from step to step.
struct StepRates {
  GroupRates learning_rate;
  double weight_decay = 0;
  double loss = 0;  // of this step, for --skip-spikes
};

struct StepResult {
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // the norm is not finite, or the step is a spike: nothing was changed
};

// Figures of the whole model that cost a pass over it.
struct OptimizerFigures {
  double params_norm = 0;      // L2, of the main copies
  std::int64_t num_zeros = 0;  // elements of the gradient that are 0, padding not counted
};

// What a resumed run needs in addition to the moments.
struct OptimizerProgress {
  std::int64_t steps = 0;    // successful updates: t in Adam's bias corrections
  std::int64_t skipped = 0;  // skipped updates since the start of the run
  double loss_scale = 1;     // of the next step
  // In a row, since the loss scale last changed or an update was skipped.
  std::int64_t good_updates = 0;
  // Non-finite gradients until one halves the loss scale; at 0 or below, each one halves it.
  std::int64_t hysteresis_left = 0;
  std::vector<double> history;  // SpikeRule::history; empty without --skip-spikes

  bool operator==(const OptimizerProgress&) const = default;
};

struct OptimizerSetup {
  std::int64_t norm_block = kNormBlock;  // elements per block of the norm
  // Where the state is between updates, which then have the same bits; null: on the device.
  OffloadTarget* offload = nullptr;
};

class Optimizer {
 public:
  // Collective over all ranks of `mesh`. Moments are 0. Call reset_main() to set the main copies
  // once the values are initialized or loaded. Keeps the tensors of `spans`.
  Optimizer(const OptimizerOptions& options, std::vector<UpdateSpan> spans, Mesh& mesh,
            const ComputeContext& compute, const OptimizerSetup& setup = {});

  // Enqueues main = value, then average = main.
  void reset_main(Stream& stream);

  // Enqueues one update and returns immediately. Collective. The gradients must be finished; they
  // are gradients of the loss times loss_scale(). Afterwards the caller publishes the values
  // (ShardedParameters::publish_values).
  void step(const StepRates& rates, Stream& stream) {
    set_rates(rates, stream);
    update(stream);
  }
  // The two parts of step(): uploads what changes from step to step, and enqueues calls that are
  // the same ones in each step, on the same memory.
  void set_rates(const StepRates& rates, Stream& stream);
  void update(Stream& stream);
  // Whether StepRates::loss is used.
  bool reads_loss() const { return history_.defined(); }
  // Waits for the latest step() and returns its result. Call it after everything else of the step
  // has been enqueued, so that the device has work while the host waits.
  StepResult result(Stream& stream);

  // The state at the latest result().
  const OptimizerProgress& progress() const { return progress_; }
  std::int64_t steps() const { return progress_.steps; }
  std::int64_t skipped() const { return progress_.skipped; }
  double loss_scale() const { return progress_.loss_scale; }
  // For a resumed run. A constant loss scale keeps the value of the options.
  void set_progress(const OptimizerProgress& progress);

  // Names of all parameters of the model whose latest gradient was not finite: sorted, each once,
  // the same list on every rank. Waits for the latest step().
  std::vector<std::string> parameters_not_finite(Stream& stream) const;

  // Of the weights now and the gradient of the latest step(), before clipping. Each element counts
  // once, as in the norm. Collective; waits for the stream.
  OptimizerFigures figures(Stream& stream) const;

  const std::vector<OptimizerState>& state() const { return state_; }
  // Uploads to and downloads from the tensors of state() that are not in host memory.
  Device& state_device() const { return transfer_ ? transfer_->target().carrier() : *device_; }

 private:
  // A part of a span in which weight decay applies to all elements or to none. If the state is
  // offloaded: one that passes through a buffer.
  struct Update {
    std::size_t span = 0;    // index in spans_
    std::int64_t begin = 0;  // first element, counted in the span
    std::int64_t size = 0;
    bool decays = false;
  };
  OptimizerKind rule_of(const UpdateSpan& span) const;
  void make_scalars(Stream& stream);
  const Tensor& scalars_of(const UpdateSpan& span) const;
  void run_updates(Stream& stream);
  std::vector<Tensor> stored(const Update& update) const;
  CallChain calls_of(const Update& update, std::vector<Tensor> here) const;
  void run(const Update& update, const std::vector<Tensor>& here, Stream& stream);
  Update whole(std::size_t span) const { return {.span = span, .size = state_[span].size()}; }
  std::vector<Tensor> stored(const MatrixRound& round) const;
  void run(const MatrixRound& round, const std::vector<Tensor>& here, Stream& stream);
  MovingAverage average_call(const std::vector<Tensor>& here) const;
  void run_averages(const std::vector<std::vector<Tensor>>& places, Stream& stream);
  std::vector<Cadam::Span> cadam_spans() const;
  KernelCall update_call(const Update& update, const std::vector<Tensor>& here) const;
  void make_state(Stream& stream);
  void plan_updates();
  void add_updates(std::size_t span);

  OptimizerOptions options_;
  std::vector<UpdateSpan> spans_;
  Communicator* ranks_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  std::vector<OptimizerState> state_;
  std::vector<Update> updates_;
  std::vector<MatrixRound> rounds_;  // Muon's updates
  std::unique_ptr<Muon> muon_;
  std::unique_ptr<Cadam> cadam_;
  std::unique_ptr<StateTransfer> transfer_;  // of offloaded state
  GradientSquares squares_;
  Tensor scalars_;  // fp32 [kStepScalars]
  // The same but for the learning rate, of OptimizerOptions::separate_rates.
  std::map<RateGroup, Tensor> separate_scalars_;
  Tensor counts_;   // fp64 [kUpdateCounts]
  Tensor history_;  // fp64, SpikeRule::history, or empty
  OptimizerProgress progress_;
  bool counts_are_set_ = true;  // progress_ was set on the host; step() has to upload it
};

// Cuts elements [begin, begin + size) of a parameter's local tensor into runs in which weight decay
// applies to all elements or to none: {size, decays}, in order. Padding rows belong to the run
// before them; they are 0 and stay 0.
std::vector<std::pair<std::int64_t, bool>> decay_runs(const Parameter& parameter,
                                                      std::int64_t begin, std::int64_t size);

}  // namespace piton
