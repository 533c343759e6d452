// Updates of the flat spans that this rank owns, each by its rule (AdamW, SGD with momentum, or
// Muon for whole matrices), and the gradient's norm over all ranks.
//
// Precision: main copy, moments and the gradient are fp32 whatever the weights are; squares are
// summed in fp64. Formulas: kernels/optimizer.h.
//
// The norm is the L2 norm of the whole model's gradient, each element counted once: copies of an
// element on several ranks (data-parallel, tensor-replicated, tied stages) have one owner, the
// lowest rank that holds it. Squares are exact in fp64 and summed there, in blocks counted from the
// start of each parameter. Block sums travel unsummed, as one array over all blocks of the model,
// and are then added in the order of names. Where the cut between two ranks' parts is inside a
// block, its sum is that of two numbers: so the norm of one model split is the same for every
// number of data-parallel ranks and every ZeRO stage up to the last bits of fp64, and the clip
// factor, which is rounded to fp32, has the same bits but where those decide its rounding.
//
// Nothing of a step waits for the host: norm, clip factor, the decision to skip and the count of
// updates are computed on the device. (With state in a file the host waits for the file.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"
#include "optim/muon.h"
#include "optim/optimizer_options.h"
#include "optim/state_transfer.h"

namespace piton {

inline constexpr std::int64_t kNormBlock =
    16384;  // elements; 64 KiB of fp32: two fit a level-1 cache with what reads them

// A run of one parameter that this rank updates: parallel/'s OwnedSpan, which this floor cannot
// name.
struct UpdateSpan {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;  // first element, in the local tensor
  Tensor gradient;          // fp32 [n]
  Tensor value;             // [n] in the weights' dtype
  // How it is updated; empty: by OptimizerOptions::kind, but by AdamW under Muon for what is no
  // matrix. Spans of one step may differ.
  std::optional<OptimizerKind> rule = {};
};

// For anything with the fields of OwnedSpan.
template <typename Owned>
std::vector<UpdateSpan> update_spans(const std::vector<Owned>& owned) {
  std::vector<UpdateSpan> spans;
  spans.reserve(owned.size());
  for (const Owned& one : owned) {
    spans.push_back({one.span.parameter, one.span.parameter_offset, one.gradient, one.value});
  }
  return spans;
}

// The last moment of every span where there is an average.
inline constexpr std::string_view kAverageMoment = "ema";

// What an update remembers of what was before, under the name that a checkpoint has for it.
struct Moment {
  std::string_view name;  // adam: "exp_avg" (m), "exp_avg_sq" (v); sgd, muon: "momentum_buffer"
  Tensor values;          // fp32 [n]
};

// Optimizer state of one span: what a checkpoint stores.
struct OptimizerState {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;      // as in UpdateSpan
  Tensor main;                  // fp32 [n]; the value itself where weights are fp32. Like moments
                                // elsewhere if the state is offloaded
  std::vector<Moment> moments;  // as the span's rule has them; none for sgd without momentum
  OptimizerKind rule = OptimizerKind::kAdam;
  bool main_is_value = false;

  std::int64_t size() const { return main.elements(); }
};

// What changes from step to step.
struct StepRates {
  double learning_rate = 0;
  double weight_decay = 0;
  double loss = 0;  // of the step, for the spike rule
};

struct StepResult {
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // the norm is not finite, or a spike: nothing was changed
};

// How far the updates have come: what a run goes on from, beside the moments.
struct OptimizerProgress {
  std::int64_t steps = 0;    // successful ones: the t of the corrections
  std::int64_t skipped = 0;  // since the start of the run
  double loss_scale = 1;     // of the next step
  std::int64_t good_updates = 0;
  std::int64_t hysteresis_left = 0;  // may be below 0
  std::vector<double> history;       // of the spike rule (kernels/optimizer.h); empty: none

  bool operator==(const OptimizerProgress&) const = default;
};

class Optimizer {
 public:
  // Collective over all ranks of `mesh`. Moments start at 0; main copies are set by reset_main(),
  // once values are (initialization, loading). `norm_block`: elements of a block of the norm. The
  // tensors of `spans` are kept. `offload`: where the state is between updates, which then have the
  // same bits; null: on the device.
  Optimizer(const OptimizerOptions& options, std::vector<UpdateSpan> spans, std::int64_t norm_block,
            Mesh& mesh, Kernels& kernels, Device& device, Arena& arena, Stream& stream,
            OffloadTarget* offload = nullptr);

  // main = value, and average = main, on the stream.
  void reset_main(Stream& stream);

  // One update by the finished gradients, which are those of the loss times loss_scale();
  // collective. All of it is on the stream when this returns, and nothing has been waited for. The
  // caller then publishes the values.
  void step(const StepRates& rates, Stream& stream);
  // How the latest step() went: waits for it. Called when the whole step is on the stream.
  StepResult result(Stream& stream);

  // As of the latest result().
  const OptimizerProgress& progress() const { return progress_; }
  std::int64_t steps() const { return progress_.steps; }
  std::int64_t skipped() const { return progress_.skipped; }
  double loss_scale() const { return progress_.loss_scale; }
  // Of a run that goes on. A constant loss scale stays that of the options.
  void set_progress(const OptimizerProgress& progress);

  // Parameters of the whole model whose latest gradient was not finite, in the order of names, each
  // once; the same on every rank. Waits for the latest step().
  std::vector<std::string> parameters_not_finite(Stream& stream) const;

  const std::vector<OptimizerState>& state() const { return state_; }
  // Uploads to and downloads from the tensors of state() that are not in host memory.
  Device& state_device() const { return transfer_ ? transfer_->target().carrier() : *device_; }

 private:
  // A part of a span whose elements all decay or all do not; of offloaded state, one that passes
  // through a buffer.
  struct Update {
    std::size_t span = 0;
    std::int64_t begin = 0;  // in the span
    std::int64_t size = 0;
    bool decays = false;
  };
  struct NormPart {
    Tensor gradient;  // of one block, or of whole blocks: what this rank owns
    Tensor sums;      // their place in block_sums_
  };

  OptimizerKind rule_of(const UpdateSpan& span) const;
  void run_updates(Stream& stream);
  std::vector<Tensor> stored(const Update& update) const;
  void run(const Update& update, std::vector<Tensor> here, Stream& stream);
  KernelCall update_call(const Update& update, const std::vector<Tensor>& here) const;
  void make_state(Stream& stream);
  void add_updates(std::size_t span);
  void plan_norm(Stream& stream);
  void add_norm_parts(const UpdateSpan& span, std::int64_t begin, std::int64_t end,
                      std::int64_t first_block);
  void sum_squares(Stream& stream);

  OptimizerOptions options_;
  std::vector<UpdateSpan> spans_;
  std::int64_t norm_block_;
  Communicator* ranks_;
  Mesh* mesh_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  std::vector<OptimizerState> state_;
  std::vector<Update> updates_;
  std::unique_ptr<Muon> muon_;
  std::unique_ptr<StateTransfer> transfer_;  // of offloaded state
  std::vector<NormPart> norm_parts_;
  Tensor block_sums_;  // fp64 [blocks of the whole model]; empty if the model has none
  Tensor scalars_;     // fp32 [kStepScalars]
  Tensor counts_;      // fp64 [kUpdateCounts]
  Tensor history_;     // fp64, of the spike rule, or empty
  std::vector<std::pair<std::string, std::int64_t>> block_names_;  // parameter, its first block
  OptimizerProgress progress_;
  bool counts_are_set_ = true;  // in progress_, and not yet on the device
};

// Elements [begin, begin + size) of a parameter's local tensor, cut where the decay rule of its
// pieces changes: {size, decays}, in order. Padding rows follow the part before them: they are 0
// and stay 0.
std::vector<std::pair<std::int64_t, bool>> decay_runs(const Parameter& parameter,
                                                      std::int64_t begin, std::int64_t size);

}  // namespace piton
