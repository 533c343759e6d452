#include "preferences/preference_options.h"

#include <string_view>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

void check_smoothing(std::string_view flag, double value) {
  if (value >= 0 && value < 0.5) return;
  throw Error(Fault::kUsage, "--{}: got {}, wanted at least 0 and less than 0.5", flag, value);
}

}  // namespace

std::string name(TrainingStage stage) {
  switch (stage) {
    case TrainingStage::kSft:
      return "sft";
    case TrainingStage::kDpo:
      return "dpo";
    case TrainingStage::kIpo:
      return "ipo";
    case TrainingStage::kOrpo:
      return "orpo";
    case TrainingStage::kSimpo:
      return "simpo";
    case TrainingStage::kCpo:
      return "cpo";
    case TrainingStage::kKto:
      return "kto";
    case TrainingStage::kRm:
      return "rm";
    case TrainingStage::kGrpo:
      return "grpo";
    case TrainingStage::kPpo:
      return "ppo";
    case TrainingStage::kClassify:
      return "classify";
  }
  PITON_ASSERT(false, "stage {}", static_cast<int>(stage));
  return "";
}

bool PreferenceOptions::has_reference() const {
  return stage == TrainingStage::kDpo || stage == TrainingStage::kIpo ||
         stage == TrainingStage::kKto || (stage == TrainingStage::kGrpo && grpo_beta > 0) ||
         (has_critic() && kl_coef > 0);
}

void PreferenceOptions::apply_short_names() {
  const PreferenceOptions usual;
  struct Beta {
    std::string_view flag;
    double PreferenceOptions::*value;
  };
  const auto beta_of_stage = [&]() -> Beta {
    switch (stage) {
      case TrainingStage::kDpo:
      case TrainingStage::kIpo:
        return {"dpo-beta", &PreferenceOptions::dpo_beta};
      case TrainingStage::kOrpo:
        return {"orpo-beta", &PreferenceOptions::orpo_beta};
      case TrainingStage::kSimpo:
        return {"simpo-beta", &PreferenceOptions::simpo_beta};
      case TrainingStage::kCpo:
        return {"cpo-beta", &PreferenceOptions::cpo_beta};
      case TrainingStage::kKto:
        return {"kto-beta", &PreferenceOptions::kto_beta};
      case TrainingStage::kGrpo:
        return {"grpo-beta", &PreferenceOptions::grpo_beta};
      case TrainingStage::kPpo:
        return {"kl-coef", &PreferenceOptions::kl_coef};
      case TrainingStage::kSft:
      case TrainingStage::kRm:
      case TrainingStage::kClassify:
        break;
    }
    throw Error(Fault::kUsage,
                "--beta: is for --stage dpo, ipo, orpo, simpo, cpo, kto, grpo and ppo, got --stage "
                "{}; leave it "
                "out",
                name(stage));
  };
  const auto set = [&](std::string_view flag, double value, Beta other) {
    double& target = this->*other.value;
    if (target != usual.*other.value && target != value) {
      throw Error(Fault::kUsage, "--{}: got {}, and --{} {}; wanted one of them", flag, value,
                  other.flag, target);
    }
    target = value;
  };
  if (beta) {
    const Beta other = beta_of_stage();
    if (by_rewards()) {
      check_not_negative("--beta", *beta);
    } else {
      check_positive("--beta", *beta);
    }
    set("beta", *beta, other);
    beta.reset();
  }
  if (!simpo_gamma) return;
  if (stage != TrainingStage::kSimpo) {
    throw Error(Fault::kUsage, "--simpo-gamma: is for --stage simpo, got --stage {}; leave it out",
                name(stage));
  }
  check_positive("--simpo-beta", simpo_beta);
  check_not_negative("--simpo-gamma", *simpo_gamma);
  set("simpo-gamma", *simpo_gamma / simpo_beta,
      {"gamma-beta-ratio", &PreferenceOptions::gamma_beta_ratio});
  simpo_gamma.reset();
}

namespace {

bool takes_smoothing(PairLossKind kind) {
  return kind == PairLossKind::kSigmoid || kind == PairLossKind::kRobust ||
         kind == PairLossKind::kExoPair;
}

// Whether the loss is of the difference of two scores, in which the part of an f-divergence that
// depends on the question alone cancels.
bool of_difference(PairLossKind kind) {
  switch (kind) {
    case PairLossKind::kNcaPair:
    case PairLossKind::kBcoPair:
    case PairLossKind::kSppoHard:
    case PairLossKind::kApoZero:
    case PairLossKind::kApoDown:
      return false;
    default:
      return true;
  }
}

}  // namespace

void PreferenceOptions::of_stages(std::string_view flag, bool changed, bool has,
                                  const char* stages) const {
  if (!changed || has) return;
  throw Error(Fault::kUsage, "--{}: is for --stage {}, got --stage {}; leave it out", flag, stages,
              name(stage));
}

void PreferenceOptions::check_dpo() const {
  const PreferenceOptions usual;
  const bool dpo = stage == TrainingStage::kDpo;
  const bool both = dpo || stage == TrainingStage::kIpo;
  of_stages("dpo-beta", dpo_beta != usual.dpo_beta, both, "dpo and ipo");
  of_stages("dpo-loss-type", dpo_loss != usual.dpo_loss, dpo, "dpo");
  of_stages("dpo-label-smoothing", dpo_label_smoothing != 0, dpo && takes_smoothing(dpo_loss),
            "dpo with --dpo-loss-type sigmoid, robust or exo_pair");
  of_stages("discopop-tau", discopop_tau != usual.discopop_tau,
            dpo && dpo_loss == PairLossKind::kDiscopop, "dpo with --dpo-loss-type discopop");
  of_stages("f-divergence-type", divergence != usual.divergence,
            both && (!dpo || of_difference(dpo_loss)),
            "dpo and ipo, with losses of the difference of two scores (not nca_pair, bco_pair, "
            "sppo_hard, apo_zero and apo_down)");
  of_stages("f-alpha-divergence-coef", divergence_coefficient != usual.divergence_coefficient,
            divergence == DivergenceKind::kAlpha,
            "dpo and ipo with --f-divergence-type alpha_divergence");
  of_stages("ld-alpha", ld_alpha.has_value(), both, "dpo and ipo");
  of_stages("pref-ftx", pref_ftx != 0, both, "dpo and ipo");
  check_positive("--dpo-beta", dpo_beta);
  check_smoothing("dpo-label-smoothing", dpo_label_smoothing);
  if (dpo && dpo_loss == PairLossKind::kExoPair && dpo_label_smoothing == 0) {
    throw Error(Fault::kUsage,
                "--dpo-loss-type exo_pair: needs --dpo-label-smoothing above 0; its paper has "
                "0.001");
  }
  check_positive("--discopop-tau", discopop_tau);
  check_positive("--f-alpha-divergence-coef", divergence_coefficient);
  if (ld_alpha && !(*ld_alpha >= 0 && *ld_alpha <= 1))
    throw Error(Fault::kUsage, "--ld-alpha: got {}, wanted 0 to 1", *ld_alpha);
  check_not_negative("--pref-ftx", pref_ftx);
}

void PreferenceOptions::check_cpo() const {
  const PreferenceOptions usual;
  const bool cpo = stage == TrainingStage::kCpo;
  of_stages("cpo-beta", cpo_beta != usual.cpo_beta, cpo, "cpo");
  of_stages("cpo-alpha", cpo_alpha != usual.cpo_alpha, cpo, "cpo");
  of_stages("cpo-loss-type", cpo_loss != usual.cpo_loss, cpo, "cpo");
  of_stages("cpo-label-smoothing", cpo_label_smoothing != 0,
            cpo && cpo_loss == PairLossKind::kSigmoid, "cpo with --cpo-loss-type sigmoid");
  check_positive("--cpo-beta", cpo_beta);
  check_not_negative("--cpo-alpha", cpo_alpha);
  check_smoothing("cpo-label-smoothing", cpo_label_smoothing);
}

void PreferenceOptions::check() const {
  const PreferenceOptions usual;
  const bool simpo = stage == TrainingStage::kSimpo;
  const bool orpo = stage == TrainingStage::kOrpo;
  const bool kto = stage == TrainingStage::kKto;
  const bool rm = stage == TrainingStage::kRm;
  of_stages("grpo-beta", grpo_beta != 0, stage == TrainingStage::kGrpo, "grpo");
  of_stages("kl-coef", kl_coef != usual.kl_coef, has_critic(), "ppo");
  check_not_negative("--kl-coef", kl_coef);
  check_not_negative("--grpo-beta", grpo_beta);
  of_stages("ref-model", !ref_model.empty(), has_reference(),
            "dpo, ipo and kto, grpo with --grpo-beta, and ppo with --kl-coef");
  check_dpo();
  check_cpo();
  of_stages("simpo-beta", simpo_beta != usual.simpo_beta, simpo, "simpo");
  of_stages("gamma-beta-ratio", gamma_beta_ratio != usual.gamma_beta_ratio, simpo, "simpo");
  of_stages("simpo-loss-type", simpo_loss != usual.simpo_loss, simpo, "simpo");
  of_stages("simpo-label-smoothing", simpo_label_smoothing != 0,
            simpo && simpo_loss == PairLossKind::kSigmoid, "simpo with --simpo-loss-type sigmoid");
  of_stages("orpo-beta", orpo_beta != usual.orpo_beta, orpo, "orpo");
  of_stages("kto-beta", kto_beta != usual.kto_beta, kto, "kto");
  of_stages("kto-desirable-weight", kto_desirable_weight != 1, kto, "kto");
  of_stages("kto-undesirable-weight", kto_undesirable_weight != 1, kto, "kto");
  of_stages("reward-margin", reward_margin != 0, rm, "rm");
  of_stages("center-rewards-coefficient", center_rewards != 0, rm, "rm");
  check_not_negative("--reward-margin", reward_margin);
  check_not_negative("--center-rewards-coefficient", center_rewards);
  check_positive("--simpo-beta", simpo_beta);
  check_not_negative("--gamma-beta-ratio", gamma_beta_ratio);
  check_smoothing("simpo-label-smoothing", simpo_label_smoothing);
  check_positive("--orpo-beta", orpo_beta);
  check_positive("--kto-beta", kto_beta);
  check_not_negative("--kto-desirable-weight", kto_desirable_weight);
  check_not_negative("--kto-undesirable-weight", kto_undesirable_weight);
}

}  // namespace piton
