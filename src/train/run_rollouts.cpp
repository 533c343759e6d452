#include "train/run_rollouts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "checkpoint/collective.h"
#include "train/run/run_tokenizer.h"

namespace piton {
namespace {

void check_question_files(const std::string& stage, const char* flag,
                          const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    for (const char* end : {".idx", "_packed_input_ids_document.idx", "_text_document.idx"}) {
      std::error_code ignored;
      if (!std::filesystem::exists(path + end, ignored)) continue;
      throw Error(Fault::kUsage,
                  "{}: {} is the prefix of a corpus; --stage {} reads the questions of its "
                  "records: name the file that the corpus was made of",
                  flag, path, stage);
    }
  }
}

void check_question_files(const std::string& stage, const DataOptions& data) {
  if (data.data_path.empty()) {
    throw Error(Fault::kUsage,
                "--data-path: no questions are named; wanted files of records with \"messages\" or "
                "\"prompt\"");
  }
  check_question_files(stage, "--data-path", data.data_path);
  check_question_files(stage, "--valid-data-path", data.valid_data_path);
}

// Options that say how corpora are read, or what is done without answers.
void refuse_other_data(const PretrainOptions& options) {
  const DataOptions& data = options.data;
  const DataOptions usual;
  const std::string stage = name(options.preferences.stage);
  const auto refuse = [&](bool given, const char* flag) {
    if (!given) return;
    throw Error(Fault::kUsage,
                "--{}: is of corpora and conversations, and --stage {} reads questions, in "
                "another order each time; leave it out",
                flag, stage);
  };
  refuse(data.mock_data, "mock-data");
  refuse(!data.train_data_path.empty(), "train-data-path");
  refuse(!data.test_data_path.empty(), "test-data-path");
  refuse(!data.train_weighted_split_paths.empty(), "train-weighted-split-paths");
  refuse(!data.valid_weighted_split_paths.empty(), "valid-weighted-split-paths");
  refuse(!data.test_weighted_split_paths.empty(), "test-weighted-split-paths");
  refuse(data.multiple_validation_sets, "multiple-validation-sets");
  refuse(data.split != usual.split, "split");
  refuse(data.train_data_exact_num_epochs.has_value(), "train-data-exact-num-epochs");
  refuse(data.data_cache_path.has_value(), "data-cache-path");
  refuse(data.dataloader_type != usual.dataloader_type, "dataloader-type");
  refuse(data.reset_position_ids, "reset-position-ids");
  refuse(data.reset_attention_mask, "reset-attention-mask");
  refuse(data.eod_mask_loss, "eod-mask-loss");
  refuse(data.is_pairwise_dataset, "is-pairwise-dataset");
  refuse(data.pack, "pack");
  refuse(data.neat_pack, "neat-pack");
  refuse(data.no_shuffle, "no-shuffle");
  refuse(data.full_shuffle_instruction_dataset, "full-shuffle-instruction-dataset");
  refuse(data.padded_samples, "padded-samples");
  refuse(data.variable_seq_lengths, "variable-seq-lengths");
  refuse(data.pad_to_multiple_of != usual.pad_to_multiple_of, "pad-to-multiple-of");
  const RecordFileOptions& records = options.records;
  refuse(records.handler_name != RecordFileOptions().handler_name, "handler-name");
  refuse(!records.prompt_type.empty(), "prompt-type");
  refuse(!records.prompt_type_path.empty(), "prompt-type-path");
  refuse(!records.map_keys.empty(), "map-keys");
  refuse(records.keeps_thoughts(), "enable-thinking");
}

// Of the updates of one batch of answers, which learn from each of them `passes` times.
StepReport mean_of(const std::vector<StepReport>& reports, std::int64_t passes) {
  if (reports.size() == 1) return reports[0];
  const auto count = static_cast<double>(reports.size());
  StepReport mean{.skipped = true, .loss_scale = reports.back().loss_scale};
  for (const StepReport& one : reports) {
    mean.loss += one.loss / count;
    mean.grad_norm += one.grad_norm / count;
    mean.loss_tokens += one.loss_tokens / static_cast<double>(passes);
    mean.skipped = mean.skipped && one.skipped;
    add_figures(one.figures, mean.figures);
  }
  return mean;
}

}  // namespace

void check_rollout_options(const PretrainOptions& options) {
  const RolloutOptions& rollouts = options.rollouts;
  const LoopOptions& loop = options.loop;
  const std::string stage = name(options.preferences.stage);
  if (!options.preferences.by_rewards()) return rollouts.check_absent(stage);
  rollouts.check();
  const double beta = options.preferences.grpo_beta;
  if (rollouts.kl_in_reward && beta == 0)
    throw Error(Fault::kUsage, "--kl-in-reward: needs --grpo-beta, the weight of the divergence");
  if (rollouts.loss == PolicyLossKind::kRloo && beta > 0 && !rollouts.kl_in_reward) {
    throw Error(Fault::kUsage,
                "--grpo-beta: with --grpo-loss-type rloo the divergence is in the reward; add "
                "--kl-in-reward");
  }
  refuse_other_data(options);
  check_question_files(stage, options.data);
  if (loop.skip_train) {
    throw Error(Fault::kUsage,
                "--skip-train: --stage {} has no loss to evaluate; evaluate checkpoints with piton "
                "eval",
                stage);
  }
  if (loop.evaluates() != !options.data.valid_data_path.empty()) {
    throw Error(Fault::kUsage,
                "--{}: --stage {} evaluates --eval-iters batches of the questions in "
                "--valid-data-path, or with --full-validation all of them; give both, or none",
                loop.full_validation  ? "full-validation"
                : loop.eval_iters > 0 ? "eval-iters"
                                      : "valid-data-path",
                stage);
  }
  if (rollouts.temperature != 1 && !options.tasks.tasks.empty()) {
    throw Error(Fault::kUsage,
                "--rollout-temperature: --eval-tasks would read the probabilities of tokens at it; "
                "leave one of them out");
  }
  if (options.parallel.linears.sequence_parallel && options.parallel.tensor > 1) {
    throw Error(Fault::kUsage,
                "--sequence-parallel: divides the tokens of a text, and --stage {} writes one "
                "token at a time; leave it out",
                stage);
  }
  if (rollouts.log_completions > 0 && loop.save.empty())
    throw Error(Fault::kUsage, "--log-completions: needs --save DIR to write to");
}

void check_rollout_batches(const PretrainOptions& options, const RunPlan& plan) {
  if (!options.preferences.by_rewards()) return;
  const RolloutOptions& rollouts = options.rollouts;
  if (rollouts.temperature != 1 && plan.session.model.head_bias) {
    throw Error(
        Fault::kUsage,
        "--rollout-temperature: the head of the model has a bias, which it does not divide; "
        "leave it out");
  }
  for (const std::int64_t batch : plan.batches.all()) {
    if (batch % rollouts.group() == 0) continue;
    throw Error(Fault::kUsage,
                "--global-batch-size: got {} answers, wanted a multiple of --num-generations, "
                "which is {}",
                batch, rollouts.group());
  }
  if (rollouts.max_completion_length < plan.sequence) return;
  throw Error(Fault::kUsage,
              "--max-completion-length: got {}, wanted less than --seq-length, which is {}: a "
              "question and its answer are one row",
              rollouts.max_completion_length, plan.sequence);
}

Rollouts& RunRollouts::opened(Communicator& everyone) {
  if (rollouts_ == nullptr) {
    phase(everyone, std::nullopt, [&] {
      rollouts_ = std::make_unique<Rollouts>(settings_, questions_.training, tokenizer_,
                                             everyone.rank() == 0);
    });
  }
  return *rollouts_;
}

BatchPlace RunRollouts::place(Mesh& mesh, std::int64_t consumed) const {
  return {.consumed_samples = consumed,
          .global_batch = batches_.at(consumed),
          .micro_batch = micro_batch_,
          .sizes = sizes_,
          .rank = mesh.sample_rank(),
          .ranks = mesh.sizes().sample_ranks()};
}

std::vector<ObjectiveFigure> RunRollouts::evaluate(const RolloutModels& models,
                                                   Communicator& everyone) {
  return opened(everyone).evaluate(models, *questions_.validation, questions_.validated,
                                   place(models.policy.mesh(), 0), everyone);
}

StepReport RunRollouts::train_step(const RolloutModels& models, Objective& objective,
                                   const RolloutStep& step, Communicator& everyone) {
  Session& session = models.policy;
  RolloutBatch made =
      opened(everyone).next(models, place(session.mesh(), step.consumed_samples), everyone);
  row_length_ = made.row_length;
  completions_ = std::move(made.completions);
  auto& policy = dynamic_cast<RolloutObjective&>(objective);
  policy.report(std::move(made.figures));
  const RolloutOptions& options = settings_.options;
  policy.begin_batch(options.updates() > 1 ? std::span(made.parts)
                                           : std::span<std::vector<MicroBatch>>());
  Critic* const critic = models.critic;
  if (critic != nullptr) critic->objective.begin_batch(std::move(made.values));
  std::vector<StepReport> reports;
  for (std::int64_t pass = 0; pass < options.passes(); ++pass) {
    for (const std::vector<MicroBatch>& part : made.parts) {
      StepReport& report = reports.emplace_back(
          session.train_step(part, step.consumed_samples, step.learning_rate, step.weight_decay));
      if (critic == nullptr) continue;
      const StepReport of_critic = critic->session->train_step(
          part, step.consumed_samples, critic->rates(step.learning_rate), step.weight_decay);
      add_figures(of_critic.figures, report.figures);
      add_figures({{"critic_grad_norm", of_critic.grad_norm, 1}}, report.figures);
    }
  }
  policy.begin_batch({});
  return mean_of(reports, options.passes());
}

std::string RunRollouts::completions(std::int64_t iteration) const {
  std::string lines;
  for (const nlohmann::ordered_json& one : completions_) {
    nlohmann::ordered_json line = {{"iteration", iteration}};
    line.update(one);
    // An answer may end inside a character.
    lines += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return lines;
}

std::unique_ptr<RunRollouts> open_rollouts(const PretrainOptions& options, const RunPlan& plan,
                                           const QuestionTexts& texts, Log& log) {
  const std::string stage = name(options.preferences.stage);
  if (texts.tokenizer == nullptr) {
    throw Error(Fault::kUsage,
                "--stage {}: the run has no tokenizer; name it with --tokenizer-type or "
                "--tokenizer-name-or-path",
                stage);
  }
  if (texts.samples.make) {
    throw Error(Fault::kUsage,
                "--stage {}: learns from answers to the questions of --data-path, got samples of "
                "the program; leave them out",
                stage);
  }
  const RolloutOptions& rollouts = options.rollouts;
  const auto read = [&](const std::vector<std::string>& files) {
    return std::make_shared<const Questions>(
        files,
        QuestionReading{
            .tokenizer = *texts.tokenizer,
            .templates = texts.templates.files,
            .template_fault = texts.templates.fault,
            .ends = text_ends_of_run(options.tokenizer, *texts.tokenizer),
            .longest = plan.sequence - rollouts.max_completion_length,
            .needs_answer = std::ranges::count(rollouts.rewards, std::string("answer")) > 0},
        options.loop.seed, log);
  };
  RunQuestions questions{.training = read(options.data.data_path)};
  log.info(fmt::format("--data-path: {} questions, {} answers to each", questions.training->size(),
                       rollouts.group()));
  if (!options.data.valid_data_path.empty()) {
    questions.validation = read(options.data.valid_data_path);
    questions.validated = questions.validation->size();
    if (!options.loop.full_validation) {
      questions.validated =
          std::min(questions.validated, options.loop.eval_iters * plan.global_batch);
    }
    log.info(fmt::format("--valid-data-path: {} questions; evaluations ask {} of them",
                         questions.validation->size(), questions.validated));
  }
  if (questions.training->ends().empty()) {
    log.warning(
        fmt::format("--stage {}: the tokenizer has no token that ends a text, so all answers have "
                    "--max-completion-length tokens",
                    stage));
  }
  return std::make_unique<RunRollouts>(
      RolloutSettings{.options = rollouts,
                      .seed = options.loop.seed,
                      .sequence = plan.sequence,
                      .beta = options.preferences.divergence_weight()},
      plan, std::move(questions), *texts.tokenizer);
}

std::unique_ptr<RunData> data_of_questions(const RunRollouts& rollouts, PretrainOptions options,
                                           const RunPlan& plan, Log& notes) {
  options.data = {};
  options.loop.eval_iters = 0;  // its questions are not in the data
  options.loop.full_validation = false;
  const auto make = [questions = rollouts.questions(),
                     generations = options.rollouts.group()](const SampleSettings& settings) {
    return samples_of_questions(questions, generations, settings.sequence);
  };
  return std::make_unique<RunData>(
      options, plan, &rollouts.tokenizer(), notes,
      RunInputs{.own = {.name = rollouts.questions()->identity(), .make = make, .endless = true}});
}

}  // namespace piton
