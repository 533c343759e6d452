#include "train/reference_model.h"

#include <functional>
#include <utility>

#include "adapters/base_hash.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "model/label_head.h"
#include "model_files/label_base.h"
#include "model_files/model_format.h"
#include "model_files/opened_adapter.h"
#include "model_files/opened_model.h"
#include "preferences/reward_objective.h"
#include "rollouts/rollout_objective.h"
#include "train/run/checkpoint_choice.h"
#include "train/run_rollouts.h"

namespace piton {
namespace {

// A model for inference in the layout of the one in training, and the hash of its weights.
struct SecondModel {
  std::unique_ptr<Session> session;
  std::string hash;
  ModelTokenizer tokenizer;
  ModelChatTemplates templates;
};

// Checks the description in the files, and returns that which the session computes with.
using DescribeSecond = std::function<ModelConfig(const ModelConfig& found)>;

// For inference, in the layout of the session in training.
SessionSettings settings_of_second(const SessionSettings& training, const ModelConfig& model) {
  SessionSettings settings = training;
  settings.model = model;
  settings.model.dtype = training.model.dtype;
  if (model.layers != training.model.layers) settings.layout.layers_of_chunks = {};
  settings.use = SessionUse::kInference;
  settings.adapters = {};
  settings.codes = {};
  settings.offload = {};
  return settings;
}

OpenedModel open_folder(const std::string& folder, Communicator& everyone) {
  ModelPaths paths;
  phase(everyone, std::nullopt, [&] { paths = model_paths(folder, ""); });
  OpenedModel opened = open_model({.path = paths.base, .ranks = &everyone});
  if (!paths.adapters.empty())
    merge_adapters(opened, open_adapter(paths.adapters, opened, everyone));
  return opened;
}

std::unique_ptr<Session> loaded_session(OpenedModel& opened, const SessionSettings& settings,
                                        const Machine& machine, Mesh& mesh) {
  auto session = std::make_unique<Session>(machine, mesh, settings);
  const StoreContext context{.mesh = mesh,
                             .device = machine.device,
                             .arena = machine.arena,
                             .stream = machine.stream,
                             .threads = &machine.threads};
  load_weights(*opened.source,
               {.parameters = session->parameters(), .sharded = &session->sharded()}, context);
  session->publish_values();
  return session;
}

SecondModel open_second(const std::string& folder, const DescribeSecond& describe,
                        const Machine& machine, Communicator& everyone, Session& session) {
  OpenedModel opened = open_folder(folder, everyone);
  const SessionSettings settings = settings_of_second(session.settings(), describe(opened.model));
  SecondModel second{.session = loaded_session(opened, settings, machine, session.mesh())};
  second.hash = weights_hash(*opened.source, everyone);
  second.tokenizer = std::move(opened.tokenizer);
  second.templates = std::move(opened.chat_templates);
  return second;
}

// `sequence`: tokens of a sample.
void check_positions(const char* flag, const std::string& folder, const ModelConfig& other,
                     std::int64_t sequence) {
  if (other.positions != PositionKind::kLearned || other.max_positions >= sequence) return;
  throw Error(Fault::kUsage, "{}: {} has {} positions, wanted {} or more; lower --seq-length", flag,
              folder, other.max_positions, sequence);
}

void check_tokens(const char* flag, const std::string& folder, const ModelConfig& other,
                  const ModelConfig& own) {
  if (other.vocabulary == own.vocabulary) return;
  throw Error(Fault::kUsage,
              "{}: {} has {} ids, wanted {}, as the model in training; give a model with the same "
              "tokens",
              flag, folder, other.vocabulary, own.vocabulary);
}

void check_decoder(const char* flag, const std::string& folder, const ModelConfig& other,
                   std::int64_t sequence) {
  if (other.encoder || other.encoder_decoder || other.labels > 0) {
    throw Error(Fault::kUsage, "{}: {} {}, wanted a decoder that predicts tokens", flag, folder,
                other.gives_rewards() ? "gives rewards"
                : other.labels > 0    ? "gives labels"
                                      : "has an encoder (" + other.family + ")");
  }
  check_positions(flag, folder, other, sequence);
}

// The model as its files describe it; of the model in training is only how it is computed here.
ModelConfig described_reference(const std::string& folder, const ModelConfig& other,
                                const ModelConfig& own, std::int64_t sequence) {
  if (other.layers != own.layers || other.hidden != own.hidden ||
      other.vocabulary != own.vocabulary) {
    throw Error(Fault::kUsage,
                "--ref-model: {} has {} layers of size {} and {} ids, wanted {} of size {} and {}, "
                "as the model in training; give a model of its shape",
                folder, other.layers, other.hidden, other.vocabulary, own.layers, own.hidden,
                own.vocabulary);
  }
  check_decoder("--ref-model", folder, other, sequence);
  ModelConfig model = other;
  model.fp32_residual = own.fp32_residual;
  model.attention_block = own.attention_block;
  model.alibi = own.alibi;
  return model;
}

ModelConfig described_teacher(const std::string& folder, const ModelConfig& other,
                              const ModelConfig& own, std::int64_t sequence) {
  check_tokens("--teacher-model", folder, other, own);
  check_decoder("--teacher-model", folder, other, sequence);
  return other;
}

ModelConfig described_judge(const std::string& folder, const ModelConfig& other) {
  if (other.gives_rewards()) return other;
  throw Error(Fault::kUsage,
              "--reward-model: {} gives no rewards, wanted a reward model, as --stage rm trains "
              "them",
              folder);
}

// The model that the critic starts from.
std::string start_of_critic(const PretrainOptions& options) {
  const RolloutOptions& rollouts = options.rollouts;
  if (!rollouts.ppo.critic_model.empty()) return rollouts.ppo.critic_model;
  if (!rollouts.reward_model.empty()) return rollouts.reward_model;
  const std::string load = folder_to_load(options.loop).string();
  if (!load.empty()) return load;
  throw Error(Fault::kUsage, "--stage ppo: no model for the critic; give --critic-model DIR");
}

// Whether no model is read for the critic: it has the shape of the policy, and its values come from
// the checkpoint from which the run continues, under --allow-fallback perhaps not the newest one.
bool continues_critic_of_policy(const PretrainOptions& options) {
  const LoopOptions& loop = options.loop;
  return options.rollouts.ppo.critic_model.empty() && options.rollouts.reward_model.empty() &&
         !options.lora.given() && !loop.finetune && !loop.load.empty() &&
         model_format_of(loop.load) == ModelFormat::kPiton;
}

// Without dropout: values of one text are compared with one another. `start`: with a head of
// rewards, or over the vocabulary.
SessionSettings settings_of_critic(const PretrainOptions& options, const SessionSettings& policy,
                                   ModelConfig start, std::int64_t sequence) {
  const std::string folder = start_of_critic(options);
  const ModelConfig& own = policy.model;
  const bool gives_labels = start.labels > 0 && !start.gives_rewards();
  if (start.encoder || start.encoder_decoder || gives_labels) {
    throw Error(Fault::kUsage,
                "--critic-model: {} {}, wanted a reward model or a decoder that predicts tokens",
                folder, gives_labels ? "gives labels" : "has an encoder");
  }
  check_tokens("--critic-model", folder, start, own);
  check_positions("--critic-model", folder, start, sequence);
  if (start.labels == 0) set_labels(start, {});
  start.hidden_dropout = start.attention_dropout = 0;
  start.mtp_layers = 0;
  start.fp32_residual = own.fp32_residual;
  start.attention_block = own.attention_block;
  SessionSettings settings = settings_of_second(policy, start);
  settings.use = policy.use;
  settings.logit_temperature = 1;
  settings.embedding_noise = 0;
  return settings;
}

std::unique_ptr<Critic> open_critic(const PretrainOptions& options, const Machine& machine,
                                    Communicator& everyone, Session& policy) {
  std::unique_ptr<Session> session;
  if (continues_critic_of_policy(options)) {
    const SessionSettings& own = policy.settings();
    session = std::make_unique<Session>(
        machine, policy.mesh(), settings_of_critic(options, own, own.model, options.loop.sequence));
    session->initialize();  // which lasts if nothing is saved yet
  } else {
    OpenedModel opened = open_folder(start_of_critic(options), everyone);
    const SessionSettings settings =
        settings_of_critic(options, policy.settings(), opened.model, options.loop.sequence);
    make_reward_model(opened);
    session = loaded_session(opened, settings, machine, policy.mesh());
  }
  const PpoOptions& ppo = options.rollouts.ppo;
  const double rate = ppo.critic_lr ? *ppo.critic_lr / options.learning_rate.lr : 1;
  auto critic = std::make_unique<Critic>(
      Critic{.session = std::move(session),
             .objective = ValueObjective({.clip = ppo.value_clip, .weight = ppo.value_weight}),
             .rate = rate});
  critic->session->set_objective(&critic->objective);
  return critic;
}

PolicyLossRules policy_rules(const PretrainOptions& options) {
  const RolloutOptions& rollouts = options.rollouts;
  if (rollouts.by_ppo) {
    return {.clip = {.below = rollouts.ppo.clip, .above = rollouts.ppo.clip},
            .means_of_parts = true};
  }
  return {.kind = rollouts.loss,
          .clip = {.below = rollouts.epsilon,
                   .above = rollouts.clip_above(),
                   .beta = rollouts.kl_in_reward ? 0 : options.preferences.grpo_beta,
                   .positive_temperature = rollouts.sapo_positive,
                   .negative_temperature = rollouts.sapo_negative},
          .ratio = rollouts.ratio,
          .longest_answer = rollouts.max_completion_length};
}

std::unique_ptr<RewardModel> judge_of(SecondModel model, const std::string& folder) {
  auto judge = std::make_unique<RewardModel>();
  judge->tokenizer = open_tokenizer(model.tokenizer, folder);
  if (judge->tokenizer == nullptr) {
    throw Error(Fault::kData,
                "--reward-model: {} has no tokenizer, which reads the answers; put its files there",
                folder);
  }
  check_rows_for(*judge->tokenizer, model.session->settings().model, folder);
  judge->session = std::move(model.session);
  judge->templates = std::move(model.templates);
  judge->folder = folder;
  return judge;
}

}  // namespace

void check_preference_options(const PretrainOptions& options) {
  const PreferenceOptions& preferences = options.preferences;
  preferences.check();
  options.teaching.check();
  check_rollout_options(options);
  if (options.teaching.given() && preferences.stage != TrainingStage::kSft) {
    throw Error(
        Fault::kUsage,
        "--teacher-model: learns labels and a teacher's distribution, got --stage {}; leave "
        "one of the two out",
        name(preferences.stage));
  }
  const DataOptions& data = options.data;
  if (preferences.by_preferences() != data.is_pairwise_dataset) {
    throw Error(Fault::kUsage, "--stage {}: {}; piton finetune sets it by --stage",
                name(preferences.stage),
                data.is_pairwise_dataset
                    ? "learns labels, and --is-pairwise-dataset is set; name the stage, as "
                      "--stage dpo, or leave it out"
                    : "learns from preferences, and --is-pairwise-dataset is not set; add it");
  }
  if (!preferences.has_reference() || !preferences.ref_model.empty()) return;
  if (!options.lora.given()) {
    throw Error(Fault::kUsage,
                "--stage {}: no reference; give --ref-model DIR, usually the model of --load, or "
                "train adapters (--lora-target-modules), whose base is the reference",
                name(preferences.stage));
  }
  if (!options.lora.modules_to_save.empty()) {
    throw Error(Fault::kUsage,
                "--stage {}: no reference: --lora-modules-to-save changes weights of the base; "
                "give --ref-model DIR, or leave --lora-modules-to-save out",
                name(preferences.stage));
  }
}

void set_head_of_stage(PretrainOptions& options) {
  LabelOptions& labels = options.model.labels;
  if (options.preferences.stage == TrainingStage::kRm) labels.reward_head = true;
  if (options.preferences.classifies() && labels.count == 1 && !labels.problem)
    labels.problem = kRegression;
}

void check_head(const PretrainOptions& options, const RunPlan& plan) {
  const TrainingStage stage = options.preferences.stage;
  const ModelConfig& model = plan.session.model;
  const bool tunes = stage != TrainingStage::kSft || options.data.is_instruction_dataset;
  if (tunes && model.experts && model.experts->random_router) {
    throw Error(Fault::kUsage,
                "--moe-router-force-load-balancing: is for piton pretrain and piton bench train, "
                "which measure; what the model learns is of no use; leave it out");
  }
  if (stage == TrainingStage::kClassify) {
    if (model.classifies()) return;
    throw Error(Fault::kUsage, "--stage classify: {}",
                model.gives_rewards()
                    ? "the head of the model is one of rewards, which --stage rm trains; wanted "
                      "one of labels, or of numbers (\"problem_type\": \"regression\")"
                    : "the model has no labels, and no option gives some; name them by "
                      "--label-names, or give --num-labels N, or --problem-type regression");
  }
  const bool rewards = stage == TrainingStage::kRm;
  if (rewards ? model.gives_rewards() : model.labels == 0) return;
  throw Error(Fault::kUsage,
              "--stage {}: the head of the model is one of {}, wanted one {}; give --stage {}, or "
              "--load another model",
              name(stage), model.gives_rewards() ? "rewards" : "labels",
              rewards ? "of rewards" : "over the vocabulary",
              model.gives_rewards() ? "rm" : "classify");
}

void add_second_models(const PretrainOptions& options, RunPlan& plan) {
  const ModelConfig& own = plan.session.model;
  if (const std::string& folder = options.preferences.ref_model; !folder.empty()) {
    plan.reference = settings_of_second(
        plan.session, described_reference(folder, described_model(folder), own, plan.sequence));
  }
  if (const std::string& folder = options.teaching.teacher_model; !folder.empty()) {
    plan.teacher = settings_of_second(
        plan.session, described_teacher(folder, described_model(folder), own, plan.sequence));
  }
  if (const std::string& folder = options.rollouts.reward_model; !folder.empty()) {
    plan.judge = settings_of_second(plan.session, described_judge(folder, described_model(folder)));
  }
  if (options.preferences.has_critic()) {
    const ModelConfig start =
        continues_critic_of_policy(options) ? own : described_model(start_of_critic(options));
    plan.critic = settings_of_critic(options, plan.session, start, plan.sequence);
  }
}

RunObjective open_objective(const PretrainOptions& options, const Machine& machine,
                            Communicator& everyone, Session& session) {
  RunObjective run;
  const PreferenceOptions& preferences = options.preferences;
  const TeachingOptions& teaching = options.teaching;
  const ModelConfig& own = session.settings().model;
  if (teaching.given()) {
    const std::string& folder = teaching.teacher_model;
    const DescribeSecond describe = [&](const ModelConfig& found) {
      return described_teacher(folder, found, own, options.loop.sequence);
    };
    SecondModel teacher = open_second(folder, describe, machine, everyone, session);
    run.teacher = std::move(teacher.session);
    run.teacher_hash = std::move(teacher.hash);
    session.set_teaching({.teacher = run.teacher.get(),
                          .temperature = teaching.temperature,
                          .weight = teaching.weight});
  }
  if (preferences.stage == TrainingStage::kSft || preferences.classifies()) return run;
  if (!preferences.ref_model.empty()) {
    const std::string& folder = preferences.ref_model;
    const DescribeSecond describe = [&](const ModelConfig& found) {
      return described_reference(folder, found, own, options.loop.sequence);
    };
    SecondModel reference = open_second(folder, describe, machine, everyone, session);
    run.reference = std::move(reference.session);
    run.reference_hash = std::move(reference.hash);
  }
  if (const std::string& folder = options.rollouts.reward_model; !folder.empty()) {
    const DescribeSecond describe = [&](const ModelConfig& found) {
      return described_judge(folder, found);
    };
    SecondModel judge = open_second(folder, describe, machine, everyone, session);
    run.judge_hash = std::exchange(judge.hash, "");
    phase(everyone, std::nullopt, [&] { run.judge = judge_of(std::move(judge), folder); });
  }
  if (preferences.by_rewards()) {
    run.objective = std::make_unique<RolloutObjective>(policy_rules(options), run.reference.get());
    if (preferences.has_critic()) run.critic = open_critic(options, machine, everyone, session);
  } else if (preferences.stage == TrainingStage::kRm) {
    run.objective = std::make_unique<RewardObjective>(preferences);
  } else {
    run.objective = std::make_unique<PreferenceObjective>(preferences, run.reference.get());
  }
  session.set_objective(run.objective.get());
  return run;
}

std::vector<std::string> notes_of_second_models(const PretrainOptions& options,
                                                const RunObjective& objective) {
  std::vector<std::string> notes;
  if (objective.reference != nullptr)
    notes.push_back(fmt::format("the reference is {}", options.preferences.ref_model));
  if (objective.teacher != nullptr) {
    notes.push_back(fmt::format("the teacher is {}: {} parameters", options.teaching.teacher_model,
                                objective.teacher->settings().model.parameters()));
  }
  if (objective.judge != nullptr)
    notes.push_back(fmt::format("answers are judged by {}", options.rollouts.reward_model));
  if (objective.critic != nullptr) {
    notes.push_back(fmt::format("the critic is a second model in training: {} parameters",
                                objective.critic->session->settings().model.parameters()));
  }
  return notes;
}

void add_facts_of_second_models(const RunObjective& objective,
                                std::map<std::string, std::string>& facts) {
  if (!objective.reference_hash.empty()) facts[kReferenceFact] = objective.reference_hash;
  if (!objective.teacher_hash.empty()) facts[kTeacherFact] = objective.teacher_hash;
  if (!objective.judge_hash.empty()) facts[kRewardModelFact] = objective.judge_hash;
}

}  // namespace piton
