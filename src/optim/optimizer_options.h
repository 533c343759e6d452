// Options of the optimizer: update rule, weight decay, gradient clipping, loss scale, Muon, moving
// average of the weights, and skipping of spikes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options/options.h"
#include "kernels/optimizer.h"
#include "ops/parameter.h"
#include "optim/cadam.h"
#include "optim/muon.h"

namespace piton {

enum class OptimizerKind : std::uint8_t {
  kAdam,
  kSgd,
  kMuon,
  kCadam,
  kSign,  // only of parameters that have a Parameter::sign_rate
};
// Which weights decay: matrices alone, as in Megatron-LM; or also gains of RMS norms, as in
// AscendSpeed, which leaves out LayerNorms and biases by name.
enum class DecayGroups : std::uint8_t { kMatrices, kMatricesAndRmsNorms };
enum class WeightDecayIncrease : std::uint8_t { kConstant, kLinear, kCosine };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double sgd_momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  // Of AdamW's moments: fp32 or bf16 (kernels/optimizer.h). The moving average stays fp32.
  DType first_moment = DType::kF32;
  DType second_moment = DType::kF32;
  double weight_decay = 0.01;
  DecayGroups decay_groups = DecayGroups::kMatrices;
  double clip_grad = 1.0;  // 0: no clipping
  // Weight decay that changes over the run (optim/weight_decay.h).
  std::optional<double> start_weight_decay, end_weight_decay;
  WeightDecayIncrease weight_decay_increase = WeightDecayIncrease::kConstant;
  std::optional<double> loss_scale;        // constant; empty: dynamic under fp16, else 1
  double initial_loss_scale = 4294967296;  // 2^32, as in Megatron-LM
  double min_loss_scale = 1;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  MuonOptions muon;
  CadamOptions cadam;
  std::optional<double> average_decay;  // of the moving average of the weights; empty: no average
  std::optional<double> spike_sigmas;   // standard deviations; empty: no update counts as a spike
  std::int64_t spike_window = 128;
  // Not the group of most weights: those whose learning rate is not that of kBase.
  std::vector<RateGroup> separate_rates = {};
  bool fp16 = false;  // the model is fp16: the loss scale is dynamic unless `loss_scale` is given

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"optimizer",
             "adam, fused_adam: AdamW; sgd: momentum, with weight decay added to the gradient; "
             "muon: Muon for "
             "matrices, AdamW for embeddings, biases and gains; cadam: the sign of a momentum in "
             "fp16, with decoupled weight decay (needs a rate some ten times below AdamW's)",
             same},
      Choice(kind, {{"adam", OptimizerKind::kAdam},
                    {"fused_adam", OptimizerKind::kAdam},  // AscendSpeed's: the same numbers
                    {"sgd", OptimizerKind::kSgd},
                    {"muon", OptimizerKind::kMuon},
                    {"cadam", OptimizerKind::kCadam}}));
    v(Option{"adam-beta1", "adam: decay of the first moment", same}, beta1);
    v(Option{"adam-beta2", "adam: decay of the second moment", same}, beta2);
    v(Option{"adam-eps", "adam: number added to the root of the second moment", same}, eps);
    const auto moment = [](DType& dtype) {
      return Choice(dtype, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
    };
    v(Option{"exp-avg-dtype", "adam, muon: type in which AdamW's first moment is kept", same},
      moment(first_moment));
    v(
        Option{
            "exp-avg-sq-dtype",
            "adam, muon: type of the second moment; bf16 is rounded by chance, with the right mean",
            same},
        moment(second_moment));
    v(Option{"sgd-momentum", "sgd: momentum (0: none)", same}, sgd_momentum);
    const OptionRules ahead{.resume = Resume::kSchedule};
    v(Option{"weight-decay", "weight decay of matrices per step, as a factor of the learning rate",
             ahead},
      weight_decay);
    v(Option{"start-weight-decay", "weight decay at the start of the run, if it increases", ahead},
      start_weight_decay);
    v(Option{"end-weight-decay", "weight decay at the end of the run, if it increases", ahead},
      end_weight_decay);
    v(Option{"weight-decay-incr-style",
             "constant: --weight-decay; linear, cosine: from --start-weight-decay to "
             "--end-weight-decay",
             ahead},
      Choice(weight_decay_increase, {{"constant", WeightDecayIncrease::kConstant},
                                     {"linear", WeightDecayIncrease::kLinear},
                                     {"cosine", WeightDecayIncrease::kCosine}}));
    v(Option{"weight-decay-groups",
             "weights that decay: megatron: matrices; ascendspeed: also the gains of RMS norms",
             same},
      Choice(decay_groups, {{"megatron", DecayGroups::kMatrices},
                            {"ascendspeed", DecayGroups::kMatricesAndRmsNorms}}));
    v(Option{"clip-grad",
             "largest norm of the gradient; larger gradients are scaled down (0: no limit)", same},
      clip_grad);
    v(Option{"loss-scale", "constant loss scale (default: dynamic for fp16, else 1)", same},
      loss_scale);
    v(Option{"initial-loss-scale", "fp16: first value of the dynamic loss scale", same},
      initial_loss_scale);
    v(Option{"min-loss-scale", "fp16: smallest value of the dynamic loss scale", same},
      min_loss_scale);
    v(Option{"loss-scale-window",
             "fp16: updates in a row without overflow that double the loss scale", same},
      loss_scale_window);
    v(Option{"hysteresis", "fp16: number of overflows at which the loss scale is halved", same},
      hysteresis);
    muon.visit(v);
    cadam.visit(v);
    v(Option{"ema-decay",
             "keep a moving average of the weights with this decay (such as 0.9999); `convert "
             "--average` exports it",
             same},
      average_decay);
    v(Option{"skip-spikes",
             "skip an update whose loss or gradient norm is this many standard deviations above "
             "the mean of the last steps (such as 6; default: never)",
             same},
      spike_sigmas);
    v(Option{"spike-window",
             "number of steps in that mean; skipping starts when half of them are known", same},
      spike_window);
  }

  // Throws Error(kUsage) naming the flag.
  void check() const;

  LossScaling scaling() const {
    return {.dynamic = fp16 && !loss_scale,
            .least = min_loss_scale,
            .window = loss_scale_window,
            .hysteresis = hysteresis};
  }
};

}  // namespace piton
