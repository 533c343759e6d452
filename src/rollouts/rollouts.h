// Batches of answers that the model in training writes: drawn from its distribution, which
// --rollout-temperature is part of, or the likelier tokens of it, judged by rewards, with
// advantages in place of the weights of their tokens.
//
// Random numbers of an answer are drawn by (seed, position of the answer in the run), so a batch is
// a function of the weights and the number of samples before it: nothing is kept between updates.
// Copies of the model share the answers of a batch; under ZeRO-3 all ranks write all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/samples/batch_source.h"
#include "generate/sampling.h"
#include "rollouts/questions.h"
#include "rollouts/reward.h"
#include "rollouts/reward_model.h"
#include "rollouts/rollout_options.h"
#include "rollouts/value_objective.h"
#include "session/session.h"

namespace piton {

struct RolloutBatch {
  // Of this rank: those of each update, --num-mini-batches in all.
  std::vector<std::vector<MicroBatch>> parts;
  std::int64_t row_length = 0;     // tokens of each row, on all ranks
  std::vector<double> advantages;  // of all answers; of --stage ppo the means of their tokens
  ValueTargets values;             // of --stage ppo
  std::vector<ObjectiveFigure> figures;
  // Of the first rank: objects of completions.jsonl, without the number of the update.
  std::vector<nlohmann::ordered_json> completions;
};

struct RolloutSettings {
  RolloutOptions options;
  std::uint64_t seed = 1234;
  std::int64_t sequence = 0;  // most tokens of a question with its answer
  double beta = 0;            // --grpo-beta, or --kl-coef
};

struct RolloutModels {
  Session& policy;                     // the model in training
  const RewardModel* judge = nullptr;  // of --reward model
  // Of --kl-in-reward and --stage ppo; null: the base under the adapters of `policy`.
  Session* reference = nullptr;
  Critic* critic = nullptr;  // of --stage ppo
};

class Rollouts {
 public:
  // `tokenizer` must outlive it. `leads`: whether this rank computes rewards. Throws as
  // make_rewards().
  Rollouts(const RolloutSettings& settings, std::shared_ptr<const Questions> questions,
           const Tokenizer& tokenizer, bool leads);

  // The batch at a place of the run. Collective over `everyone`, all ranks of the session. Throws
  // as Reward::rewards() and judged_texts(), on all ranks.
  RolloutBatch next(const RolloutModels& models, const BatchPlace& place, Communicator& everyone);

  // The rewards of one greedy answer to each of the first `count` of `questions`. Collective and
  // throws as next(); `place` is of a batch in training, as many answers as are judged at once.
  std::vector<ObjectiveFigure> evaluate(const RolloutModels& models, const Questions& questions,
                                        std::int64_t count, const BatchPlace& place,
                                        Communicator& everyone);

  const Questions& questions() const { return *questions_; }

 private:
  struct Answer {
    const RolloutQuestion* question = nullptr;
    std::vector<std::int32_t> ids;
    bool ended = false;
  };
  bool learns_from(const Answer& answer) const {
    return answer.ended || !settings_.options.mask_truncated;
  }
  // How tokens of answers are chosen.
  struct AnswerDraws {
    bool greedy = false;
    std::int64_t consumed = 0;  // answers of the run before these; random numbers are drawn by it
    std::vector<std::int32_t> ends = {};  // of a text
  };
  SamplingOptions sampling_of(const AnswerDraws& chosen) const;
  // Questions that answers are written to at once: `count` of them, of one of the orders.
  struct Round {
    std::int64_t number = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  struct JudgedAnswers {
    std::vector<Answer> answers;
    std::vector<std::vector<double>> rewards;  // of each name, of all answers
    double milliseconds = 0;                   // in which they were written
    double groups = 0;                         // questions that were asked for a batch
    double without_spread = 0;                 // those of them whose answers all earn the same
    double rounds = 0;
  };
  JudgedAnswers asked(const RolloutModels& models, const Round& round, const BatchPlace& place,
                      Communicator& everyone);
  JudgedAnswers batch_with_spread(const RolloutModels& models, const BatchPlace& place,
                                  Communicator& everyone);
  std::vector<Answer> write_answers(Session& session,
                                    const std::vector<const RolloutQuestion*>& questions,
                                    const AnswerDraws& draws, Communicator& everyone);
  // Answers [first, end) of a batch: those of one copy of the model.
  struct Share {
    std::int64_t first = 0;
    std::int64_t end = 0;
    bool apart = false;  // other copies write others
  };
  std::vector<std::vector<std::int32_t>> written(Session& session,
                                                 const std::vector<Answer>& answers,
                                                 const Share& share, const AnswerDraws& draws);
  std::vector<std::vector<double>> judged(const RolloutModels& models,
                                          const std::vector<Answer>& answers,
                                          const BatchPlace& place, Communicator& everyone);
  std::vector<std::vector<MicroBatch>> parts_of(const std::vector<Answer>& answers,
                                                const std::vector<double>& advantages,
                                                const BatchPlace& place, std::int64_t length) const;
  // These set the advantages of `made` and what follows from them.
  void compare_groups(const RolloutModels& models, const JudgedAnswers& found,
                      const BatchPlace& place, RolloutBatch& made, Communicator& everyone);
  void compare_with_critic(const RolloutModels& models, const JudgedAnswers& found,
                           const BatchPlace& place, RolloutBatch& made, Communicator& everyone);
  MicroBatch rows_of(std::span<const Answer> answers, std::span<const double> advantages,
                     std::int64_t length) const;
  std::vector<double> sums_of(const std::vector<std::vector<double>>& rewards) const;
  std::vector<ObjectiveFigure> figures_of(const std::vector<Answer>& answers,
                                          const std::vector<std::vector<double>>& rewards) const;
  std::string text_of(const Answer& answer) const;
  nlohmann::ordered_json line_of(const Answer& answer,
                                 const std::vector<std::vector<double>>& rewards, std::size_t index,
                                 double advantage) const;

  RolloutSettings settings_;
  std::shared_ptr<const Questions> questions_;
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<Reward>> rewards_;  // of the rank that leads; null: of the model
};

}  // namespace piton
