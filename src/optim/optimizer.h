// Updates of the flat spans that this rank owns, by AdamW or by SGD with momentum, and the
// gradient's norm over all ranks.
//
// Precision: main copy, moments and the gradient are fp32 whatever the weights are; squares are
// summed in fp64. Formulas: kernels/optimizer.h.
//
// The norm is the L2 norm of the whole model's gradient, each element counted once: copies of a
// parameter on several ranks (data-parallel, tensor-replicated, tied stages) have one owner a
// block, the lowest rank that holds it. Sums of squares are taken in blocks counted from the start
// of each parameter; they travel unsummed, as one array over all blocks of the model in which every
// entry has one owner and all others add zero, and are then added in the order of names. So the
// norm has the same bits for every number of data-parallel ranks and every ZeRO stage of one model
// split.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"
#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "ops/parameter.h"

namespace piton {

enum class OptimizerKind : std::uint8_t { kAdam, kSgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double sgd_momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip_grad = 1.0;  // 0: no clipping

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"optimizer", "adam: AdamW; sgd: with momentum, and decay added to the gradient", same},
      Choice(kind, {{"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd}}));
    v(Option{"adam-beta1", "adam: decay of the first moment", same}, beta1);
    v(Option{"adam-beta2", "adam: decay of the second moment", same}, beta2);
    v(Option{"adam-eps", "adam: added to the root of the second moment", same}, eps);
    v(Option{"sgd-momentum", "sgd: decay of the sum of gradients; 0 keeps no sum", same},
      sgd_momentum);
    v(Option{"weight-decay", "decay of matrices a step, times the learning rate", same},
      weight_decay);
    v(Option{"clip-grad", "largest norm of the gradient; 0 for no limit", same}, clip_grad);
  }

  // Throws Error(kUsage) naming the flag.
  void check() const;
};

// A run of one parameter that this rank updates: parallel/'s OwnedSpan, which this floor cannot
// name.
struct UpdateSpan {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;  // first element, in the local tensor; a multiple of the block
  Tensor gradient;          // fp32 [n]
  Tensor value;             // [n] in the weights' dtype
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

// What an update remembers of the gradients before, under the name that a checkpoint has for it.
struct Moment {
  std::string_view name;  // adam: "exp_avg" (m), "exp_avg_sq" (v); sgd: "momentum_buffer"
  Tensor values;          // fp32 [n]
};

// Optimiser state of one span: what a checkpoint stores.
struct OptimizerState {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;      // as in UpdateSpan
  Tensor main;                  // fp32 [n]; the value itself where weights are fp32
  std::vector<Moment> moments;  // of the same names on every span; none for sgd without momentum
  bool main_is_value = false;

  std::int64_t size() const { return main.elements(); }
};

struct StepResult {
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // the norm is not finite: nothing was changed
};

class Optimizer {
 public:
  // Collective over all ranks of `mesh`. Moments start at 0; main copies are set by reset_main(),
  // once values are (initialisation, loading). `norm_block`: elements of a block of the norm; spans
  // are cut at multiples of it. The tensors of `spans` are kept.
  Optimizer(const OptimizerOptions& options, std::vector<UpdateSpan> spans, std::int64_t norm_block,
            Mesh& mesh, Kernels& kernels, Device& device, Arena& arena, Stream& stream);

  // main = value, on the stream; nothing to do where they are one.
  void reset_main(Stream& stream);

  // One update by the finished gradients at learning rate `lr`; collective. Waits for the norm on
  // the host; the update itself is on the stream when this returns. The caller then publishes the
  // values.
  StepResult step(double lr, Stream& stream);

  std::int64_t steps() const { return steps_; }      // successful ones: the t of the corrections
  std::int64_t skipped() const { return skipped_; }  // since the start of the run
  void set_steps(std::int64_t steps, std::int64_t skipped);

  const std::vector<OptimizerState>& state() const { return state_; }

 private:
  // A part of a span whose elements all decay or all do not.
  struct Update {
    std::size_t span = 0;
    std::int64_t begin = 0;  // in the span
    std::int64_t size = 0;
    bool decays = false;
  };
  struct NormPart {
    Tensor gradient;  // of whole blocks that this rank owns
    Tensor sums;      // their place in block_sums_
  };

  KernelCall update_call(const Update& update) const;
  void plan_norm(Stream& stream);
  double norm(Stream& stream);

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
  std::vector<NormPart> norm_parts_;
  Tensor block_sums_;  // fp64 [blocks of the whole model]
  std::vector<double> host_sums_;
  Tensor scalars_;  // fp32 [kStepScalars]
  std::int64_t steps_ = 0;
  std::int64_t skipped_ = 0;
};

// Elements [begin, begin + size) of a parameter's local tensor, cut where the decay rule of its
// pieces changes: {size, decays}, in order. Padding rows follow the part before them: they are 0
// and stay 0.
std::vector<std::pair<std::int64_t, bool>> decay_runs(const Parameter& parameter,
                                                      std::int64_t begin, std::int64_t size);

}  // namespace piton
