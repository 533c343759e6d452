#include "optim/optimizer_options.h"

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

// The device uses the loss scale and its inverse in fp32. 2^-126 is the smallest normal fp32
// number, so 2^126 is the largest power of 2 whose inverse is normal.
constexpr double kMostLossScale = 0x1p126;

// Every checkpoint stores the window in its state.json, which should stay small.
constexpr std::int64_t kMostSpikeWindow = 10000;

void check_loss_scales(const OptimizerOptions& options) {
  const auto scale = [](const char* flag, double value) {
    if (!(value > 0) || !(value <= kMostLossScale)) {
      throw Error(Fault::kUsage, "optimizer: {}: got {}, wanted more than 0 and at most 2^126",
                  flag, value);
    }
  };
  if (options.loss_scale) scale("--loss-scale", *options.loss_scale);
  scale("--initial-loss-scale", options.initial_loss_scale);
  scale("--min-loss-scale", options.min_loss_scale);
  if (options.min_loss_scale > options.initial_loss_scale) {
    throw Error(Fault::kUsage,
                "optimizer: --min-loss-scale: got {}, wanted at most --initial-loss-scale, which "
                "is {}",
                options.min_loss_scale, options.initial_loss_scale);
  }
  check_range("optimizer: --loss-scale-window", options.loss_scale_window, 1);
  check_range("optimizer: --hysteresis", options.hysteresis, 1);
}

void check_weight_decay(const OptimizerOptions& options) {
  check_not_negative("optimizer: --weight-decay", options.weight_decay);
  const bool constant = options.weight_decay_increase == WeightDecayIncrease::kConstant;
  if (constant && (options.start_weight_decay || options.end_weight_decay)) {
    throw Error(Fault::kUsage,
                "optimizer: --{}-weight-decay: needs --weight-decay-incr-style linear or cosine; a "
                "constant decay is --weight-decay",
                options.start_weight_decay ? "start" : "end");
  }
  if (constant) return;
  if (!options.start_weight_decay || !options.end_weight_decay) {
    throw Error(Fault::kUsage,
                "optimizer: --weight-decay-incr-style: needs --start-weight-decay and "
                "--end-weight-decay");
  }
  check_not_negative("optimizer: --start-weight-decay", *options.start_weight_decay);
  check_not_negative("optimizer: --end-weight-decay", *options.end_weight_decay);
  if (*options.end_weight_decay < *options.start_weight_decay) {
    throw Error(Fault::kUsage,
                "optimizer: --end-weight-decay: got {}, wanted at least --start-weight-decay, "
                "which is {}",
                *options.end_weight_decay, *options.start_weight_decay);
  }
}

}  // namespace

void OptimizerOptions::check() const {
  const auto share = [](const char* flag, double value) {
    if (!(value >= 0 && value < 1)) {
      throw Error(Fault::kUsage, "optimizer: {}: got {}, wanted at least 0 and below 1", flag,
                  value);
    }
  };
  share("--sgd-momentum", sgd_momentum);
  share("--adam-beta1", beta1);
  share("--adam-beta2", beta2);
  check_positive("optimizer: --adam-eps", eps);
  if (kind != OptimizerKind::kAdam && kind != OptimizerKind::kMuon &&
      (first_moment != DType::kF32 || second_moment != DType::kF32)) {
    throw Error(Fault::kUsage,
                "optimizer: --exp-avg{}-dtype: got {}, but only --optimizer adam and muon have "
                "this moment; leave the flag out",
                first_moment == DType::kF32 ? "-sq" : "", name(DType::kBF16));
  }
  check_weight_decay(*this);
  check_loss_scales(*this);
  muon.check();
  cadam.check();
  if (kind == OptimizerKind::kCadam && beta1 != OptimizerOptions().beta1) {
    throw Error(Fault::kUsage,
                "optimizer: --adam-beta1: got {}, but the momentum of --optimizer cadam decays by "
                "--cadam-beta; use that flag",
                beta1);
  }
  if (average_decay && !(*average_decay > 0 && *average_decay < 1)) {
    throw Error(Fault::kUsage, "optimizer: --ema-decay: got {}, wanted a number between 0 and 1",
                *average_decay);
  }
  if (spike_sigmas) check_positive("optimizer: --skip-spikes", *spike_sigmas);
  check_range("optimizer: --spike-window", spike_window, 2, kMostSpikeWindow);
  check_not_negative("optimizer: --clip-grad", clip_grad);
}

}  // namespace piton
