// Options of training by preferences, with the flags of MindSpeed-LLM. The formulas are in
// preferences/preference_loss.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/options/options.h"

namespace piton {

enum class TrainingStage : std::uint8_t {
  kSft,
  kDpo,
  kIpo,
  kOrpo,
  kSimpo,
  kCpo,
  kKto,
  kRm,
  kGrpo,
  kPpo,
  kClassify
};
// Functions of two scores (preferences/pair_term.h).
enum class PairLossKind : std::uint8_t {
  kSigmoid,
  kSigmoidNorm,
  kHinge,
  kIpo,
  kRobust,
  kExoPair,
  kNcaPair,
  kBcoPair,
  kSppoHard,
  kApoZero,
  kApoDown,
  kDiscopop,
};
enum class DivergenceKind : std::uint8_t { kReverseKl, kForwardKl, kJensenShannon, kAlpha };

struct PreferenceOptions {
  TrainingStage stage = TrainingStage::kSft;
  std::optional<double> beta;
  std::optional<double> simpo_gamma;
  double dpo_beta = 0.1;
  PairLossKind dpo_loss = PairLossKind::kSigmoid;
  double dpo_label_smoothing = 0;
  double discopop_tau = 0.05;
  DivergenceKind divergence = DivergenceKind::kReverseKl;
  double divergence_coefficient = 0.5;
  std::optional<double> ld_alpha;
  double pref_ftx = 0;
  double cpo_beta = 0.1;
  double cpo_alpha = 1;
  PairLossKind cpo_loss = PairLossKind::kSigmoid;
  double cpo_label_smoothing = 0;
  double simpo_beta = 2.5;
  double gamma_beta_ratio = 1.4;
  PairLossKind simpo_loss = PairLossKind::kSigmoid;
  double simpo_label_smoothing = 0;
  double orpo_beta = 0.1;
  double kto_beta = 0.1;
  double kto_desirable_weight = 1;
  double kto_undesirable_weight = 1;
  double reward_margin = 0;
  double center_rewards = 0;
  double grpo_beta = 0;
  double kl_coef = 0.05;
  std::string ref_model;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"stage",
             "what is learned: the labels (sft), or preferences: pairs of answers by dpo, ipo, "
             "orpo, simpo or cpo, or answers that are judged alone by kto; or a reward model from "
             "pairs (rm, or orm); or what earns rewards (grpo, or ppo with a critic; options of "
             "Reinforcement); or the label of a whole text (classify)",
             {.aliases = {"preference"}, .resume = Resume::kMustMatch}},
      Choice(stage, {{"sft", TrainingStage::kSft},
                     {"dpo", TrainingStage::kDpo},
                     {"ipo", TrainingStage::kIpo},
                     {"orpo", TrainingStage::kOrpo},
                     {"simpo", TrainingStage::kSimpo},
                     {"cpo", TrainingStage::kCpo},
                     {"kto", TrainingStage::kKto},
                     {"rm", TrainingStage::kRm},
                     {"orm", TrainingStage::kRm},
                     {"grpo", TrainingStage::kGrpo},
                     {"ppo", TrainingStage::kPpo},
                     {"classify", TrainingStage::kClassify}}));
    v(Option{"beta",
             "beta of the loss of --stage: the same as --dpo-beta, --simpo-beta, --orpo-beta, "
             "--cpo-beta, --kto-beta, --grpo-beta or --kl-coef"},
      beta);
    v(Option{"simpo-gamma", "gamma of simpo, in place of --gamma-beta-ratio"}, simpo_gamma);
    v(Option{"ref-model",
             "model that dpo, ipo, kto, grpo and ppo compare with (default: the base of the "
             "adapters, where adapters are trained; else, of dpo, ipo and kto in piton finetune, "
             "the model of --load)",
             {.aliases = {"reference-load"}, .placeholder = "DIR"}},
      ref_model);
    visit_dpo(v);
    v(Option{"simpo-beta", "beta of simpo", same}, simpo_beta);
    v(Option{"gamma-beta-ratio", "gamma / beta of simpo, the margin of mean log-probabilities",
             same},
      gamma_beta_ratio);
    v(Option{"simpo-loss-type", "loss of simpo", same},
      Choice(simpo_loss, {{"sigmoid", PairLossKind::kSigmoid}, {"hinge", PairLossKind::kHinge}}));
    v(Option{"simpo-label-smoothing", "share of pairs of simpo that are taken to be swapped", same},
      simpo_label_smoothing);
    visit_cpo(v);
    v(Option{"orpo-beta", "weight of the odds ratio of orpo", same}, orpo_beta);
    v(Option{"kto-beta", "beta of kto", same}, kto_beta);
    v(Option{"kto-desirable-weight", "weight of the losses of good answers", same},
      kto_desirable_weight);
    v(Option{"kto-undesirable-weight", "weight of the losses of bad answers", same},
      kto_undesirable_weight);
    v(Option{"reward-margin",
             "by how much the reward of the better answer of a pair of rm is to be higher", same},
      reward_margin);
    v(Option{"center-rewards-coefficient",
             "weight of the square of the sum of both rewards of a pair of rm, added to its loss",
             same},
      center_rewards);
    v(Option{"grpo-beta", "weight of the divergence from the reference in the loss of grpo", same},
      grpo_beta);
    v(Option{"kl-coef",
             "weight of the divergence of each token from the reference in the rewards of ppo",
             same},
      kl_coef);
  }

  template <typename Visitor>
  void visit_dpo(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"dpo-beta", "beta of dpo and ipo", same}, dpo_beta);
    v(Option{"dpo-loss-type", "loss of dpo, with the names of TRL", same},
      Choice(dpo_loss, {{"sigmoid", PairLossKind::kSigmoid},
                        {"hinge", PairLossKind::kHinge},
                        {"ipo", PairLossKind::kIpo},
                        {"sigmoid_norm", PairLossKind::kSigmoidNorm},
                        {"robust", PairLossKind::kRobust},
                        {"exo_pair", PairLossKind::kExoPair},
                        {"nca_pair", PairLossKind::kNcaPair},
                        {"bco_pair", PairLossKind::kBcoPair},
                        {"sppo_hard", PairLossKind::kSppoHard},
                        {"apo_zero", PairLossKind::kApoZero},
                        {"apo_down", PairLossKind::kApoDown},
                        {"discopop", PairLossKind::kDiscopop}}));
    v(Option{"dpo-label-smoothing",
             "share of pairs of dpo that are taken to be swapped, with --dpo-loss-type sigmoid, "
             "robust or exo_pair",
             same},
      dpo_label_smoothing);
    v(Option{"discopop-tau", "temperature of --dpo-loss-type discopop", same}, discopop_tau);
    v(Option{"f-divergence-type",
             "divergence from the reference of dpo and ipo, with the losses that are of the "
             "difference of two scores",
             same},
      Choice(divergence, {{"reverse_kl", DivergenceKind::kReverseKl},
                          {"forward_kl", DivergenceKind::kForwardKl},
                          {"js_divergence", DivergenceKind::kJensenShannon},
                          {"alpha_divergence", DivergenceKind::kAlpha}}));
    v(Option{"f-alpha-divergence-coef", "alpha of --f-divergence-type alpha_divergence", same},
      divergence_coefficient);
    v(Option{"ld-alpha",
             "weight of the tokens of an answer beyond the length of the shorter one of its pair, "
             "0 to 1 (LD-DPO; default: 1)",
             {.resume = Resume::kMustMatch, .placeholder = "X"}},
      ld_alpha);
    v(Option{"pref-ftx",
             "weight of the mean cross entropy of the chosen answer, added to the loss of dpo and "
             "ipo",
             same},
      pref_ftx);
  }

  template <typename Visitor>
  void visit_cpo(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"cpo-beta", "beta of cpo", same}, cpo_beta);
    v(Option{"cpo-alpha",
             "weight of the mean cross entropy of the chosen answer in the loss of cpo", same},
      cpo_alpha);
    v(Option{"cpo-loss-type", "loss of cpo", same},
      Choice(cpo_loss, {{"sigmoid", PairLossKind::kSigmoid},
                        {"hinge", PairLossKind::kHinge},
                        {"ipo", PairLossKind::kIpo}}));
    v(Option{"cpo-label-smoothing", "share of pairs of cpo that are taken to be swapped", same},
      cpo_label_smoothing);
  }

  bool by_rewards() const { return stage == TrainingStage::kGrpo || has_critic(); }
  bool has_critic() const { return stage == TrainingStage::kPpo; }
  // Of the loss or the rewards of a run that is learned by rewards.
  double divergence_weight() const { return has_critic() ? kl_coef : grpo_beta; }
  bool classifies() const { return stage == TrainingStage::kClassify; }
  bool by_preferences() const {
    return stage != TrainingStage::kSft && !by_rewards() && !classifies();
  }
  bool by_pairs() const { return by_preferences() && stage != TrainingStage::kKto; }
  // Whether the loss compares with a model that is not trained.
  bool has_reference() const;
  // Sets the options of the stage by --beta and --simpo-gamma, and clears these two. Throws
  // Error(kUsage) for a stage that has none, and where both names of one value are given.
  void apply_short_names();
  // Throws Error(kUsage) for a value out of its range, and for an option of another stage.
  void check() const;

 private:
  // Throws if the option was changed, and the stage does not have it.
  void of_stages(std::string_view flag, bool changed, bool has, const char* stages) const;
  void check_dpo() const;
  void check_cpo() const;
};

// "dpo", ...
std::string name(TrainingStage stage);

}  // namespace piton
