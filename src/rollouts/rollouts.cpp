#include "rollouts/rollouts.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "generate/batched_engine.h"
#include "generate/generator.h"
#include "parallel/without_observer.h"
#include "rollouts/advantages.h"
#include "rollouts/answer_divergences.h"
#include "rollouts/answer_losses.h"
#include "rollouts/token_advantages.h"
#include "rollouts/value_bytes.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

std::string name_of_figure(const std::string& reward) { return "reward_" + reward; }

// `numbers`: of the tokens of all answers; the weights of those with a label.
void weigh_tokens(const std::vector<std::vector<double>>& numbers,
                  std::vector<MicroBatch>& batches) {
  for (MicroBatch& batch : batches) {
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      auto next = numbers.at(static_cast<std::size_t>(batch.sample_index + sample)).begin();
      const auto begin = static_cast<std::size_t>(sample * batch.sequence);
      for (std::size_t row = begin; row < begin + static_cast<std::size_t>(batch.sequence); ++row)
        if (batch.labels[row] >= 0) batch.loss_mask[row] = static_cast<float>(*next++);
    }
  }
}

}  // namespace

Rollouts::Rollouts(const RolloutSettings& settings, std::shared_ptr<const Questions> questions,
                   const Tokenizer& tokenizer, bool leads)
    : settings_(settings), questions_(std::move(questions)), tokenizer_(tokenizer) {
  if (leads) rewards_ = make_rewards(settings.options);
}

// The logits are those of --rollout-temperature already.
SamplingOptions Rollouts::sampling_of(const AnswerDraws& chosen) const {
  const RolloutOptions& options = settings_.options;
  return {.max_new_tokens = options.max_completion_length,
          .greedy = chosen.greedy,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .seed = settings_.seed};
}

// The tokens of the answers of a share, by this rank and those that it shares a copy with.
std::vector<std::vector<std::int32_t>> Rollouts::written(Session& session,
                                                         const std::vector<Answer>& answers,
                                                         const Share& share,
                                                         const AnswerDraws& chosen) {
  if (share.first == share.end) return {};
  Inference inference(session.context(false), session.pipeline(), session.mesh(),
                      session.settings().model);
  if (share.apart) inference.read_apart();
  // Its cache is released with it: training needs the memory.
  const std::unique_ptr<DecodingEngine> engine = make_batched_engine(inference, {});
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::uint64_t> draws;
  for (std::int64_t i = share.first; i < share.end; ++i) {
    prompts.push_back(answers[static_cast<std::size_t>(i)].question->ids);
    draws.push_back(static_cast<std::uint64_t>(chosen.consumed + i));
  }
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::vector<GeneratedToken>& text : generate_batch(
           *engine, {.ids = prompts, .draws = draws, .ends = chosen.ends}, sampling_of(chosen),
           [](std::size_t, const GeneratedToken&) { return true; })) {
    std::vector<std::int32_t>& one = ids.emplace_back();
    for (const GeneratedToken& token : text) one.push_back(token.id);
  }
  return ids;
}

std::vector<Rollouts::Answer> Rollouts::write_answers(
    Session& session, const std::vector<const RolloutQuestion*>& questions,
    const AnswerDraws& draws, Communicator& everyone) {
  std::vector<Answer> answers(questions.size());
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i].question = questions[i];
  Mesh& mesh = session.mesh();
  const std::int64_t ranks = mesh.sizes().sample_ranks();
  // Under ZeRO-3 each pass gathers weights of all ranks.
  const bool apart = ranks > 1 && session.settings().zero_stage < 3;
  const std::int64_t copies = apart ? ranks : 1;
  const std::int64_t copy = apart ? mesh.sample_rank() : 0;
  const Share share{.first = std::ssize(answers) * copy / copies,
                    .end = std::ssize(answers) * (copy + 1) / copies,
                    .apart = apart};
  const auto own = written(session, answers, share, draws);
  // One rank of each copy tells: the place of its answers, and the length and tokens of each.
  const bool tells = mesh.coordinate(Axis::kTensor) == 0 && mesh.coordinate(Axis::kPipeline) == 0 &&
                     (apart || mesh.sample_rank() == 0);
  std::vector<std::int32_t> told;
  if (tells) {
    told.push_back(static_cast<std::int32_t>(share.first));
    for (const std::vector<std::int32_t>& ids : own) {
      told.push_back(static_cast<std::int32_t>(ids.size()));
      told.insert(told.end(), ids.begin(), ids.end());
    }
  }
  for (const std::string& bytes : everyone.gather_bytes(bytes_of_values(told))) {
    const auto values = values_in<std::int32_t>(bytes);
    std::size_t index = values.empty() ? 0 : static_cast<std::size_t>(values[0]);
    for (std::size_t at = 1; at < values.size(); ++index) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at) + 1;
      answers[index].ids.assign(begin, begin + values[at]);
      at += static_cast<std::size_t>(values[at]) + 1;
    }
  }
  for (Answer& answer : answers) {
    PITON_ASSERT(!answer.ids.empty(), "an answer without tokens");
    answer.ended = std::ranges::count(draws.ends, answer.ids.back()) > 0;
  }
  return answers;
}

// Tokens of a part of a character, or of bytes that are none, are U+FFFD, as in every other place
// that shows what a model writes: templates and patterns take well-formed texts only.
std::string Rollouts::text_of(const Answer& answer) const {
  StreamDecoder decoder(tokenizer_, DecodeOptions{.skip_special_tokens = true});
  decoder.start_after(answer.question->ids);
  std::string text;
  for (const std::int32_t id : answer.ids) text += decoder.push(id);
  return replace_bad_utf8(text + decoder.finish());
}

// The rewards of each name, of all answers.
std::vector<std::vector<double>> Rollouts::judged(const RolloutModels& models,
                                                  const std::vector<Answer>& answers,
                                                  const BatchPlace& place, Communicator& everyone) {
  std::vector<JudgedAnswer> texts;
  for (const Answer& one : answers)
    texts.push_back({&one.question->record, text_of(one), std::ssize(one.ids)});
  const std::string bytes = found_by_first(everyone, [&] {
    std::string all;
    for (const auto& reward : rewards_) {
      if (reward != nullptr) all += bytes_of_values(reward->rewards(texts));
    }
    return all;
  });
  const auto values = values_in<double>(bytes);
  auto next = values.begin();
  std::vector<std::vector<double>> rewards;
  for (const std::string& name : settings_.options.rewards) {
    if (name == kModelReward) {
      PITON_ASSERT(models.judge != nullptr, "no reward model");
      std::vector<std::vector<std::int32_t>> read;
      phase(everyone, std::nullopt, [&] { read = judged_texts(*models.judge, texts); });
      const RewardBatches batches{place.global_batch / settings_.options.num_mini_batches,
                                  place.micro_batch};
      rewards.push_back(rewards_of(*models.judge, read, batches, everyone));
      continue;
    }
    PITON_ASSERT(values.end() - next >= std::ssize(answers), "{} rewards of {} answers",
                 values.size(), answers.size());
    rewards.emplace_back(next, next + std::ssize(answers));
    next += std::ssize(answers);
  }
  return rewards;
}

// The weighted sum of the rewards of each answer.
std::vector<double> Rollouts::sums_of(const std::vector<std::vector<double>>& rewards) const {
  std::vector<double> sums(rewards.at(0).size());
  for (std::size_t k = 0; k < rewards.size(); ++k) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] += settings_.options.weight(k) * rewards[k][i];
  }
  return sums;
}

// Means of rewards and lengths.
std::vector<ObjectiveFigure> Rollouts::figures_of(
    const std::vector<Answer>& answers, const std::vector<std::vector<double>>& rewards) const {
  const auto n = static_cast<double>(answers.size());
  const auto total = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  std::vector<ObjectiveFigure> figures = {{"reward", total(sums_of(rewards)), n}};
  for (std::size_t k = 0; k < rewards.size(); ++k)
    figures.push_back({name_of_figure(settings_.options.rewards[k]), total(rewards[k]), n});
  double tokens = 0;
  double truncated = 0;
  for (const Answer& one : answers) {
    tokens += static_cast<double>(one.ids.size());
    truncated += one.ended ? 0 : 1;
  }
  figures.push_back({"completion_length", tokens, n});
  figures.push_back({"completions_truncated", truncated, n});
  return figures;
}

MicroBatch Rollouts::rows_of(std::span<const Answer> answers, std::span<const double> advantages,
                             std::int64_t length) const {
  MicroBatch batch;
  batch.samples = std::ssize(answers);
  batch.sequence = length;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    const auto weight = static_cast<float>(advantages[i]);
    const bool learned = learns_from(answer);
    const std::vector<std::int32_t>& question = answer.question->ids;
    for (std::int64_t at = 0; at < length; ++at) {
      const std::int64_t of_answer = at - std::ssize(question);  // the token at `at`
      std::int32_t token = 0;
      if (of_answer < 0) token = question[static_cast<std::size_t>(at)];
      if (of_answer >= 0 && of_answer < std::ssize(answer.ids))
        token = answer.ids[static_cast<std::size_t>(of_answer)];
      const bool has_label = learned && of_answer >= -1 && of_answer + 1 < std::ssize(answer.ids);
      batch.tokens.push_back(token);
      batch.labels.push_back(has_label ? answer.ids[static_cast<std::size_t>(of_answer + 1)]
                                       : kNoLabel);
      batch.loss_mask.push_back(has_label ? weight : 0.0F);
      batch.positions.push_back(static_cast<std::int32_t>(at));
    }
  }
  return batch;
}

std::vector<std::vector<MicroBatch>> Rollouts::parts_of(const std::vector<Answer>& answers,
                                                        const std::vector<double>& advantages,
                                                        const BatchPlace& place,
                                                        std::int64_t length) const {
  std::vector<std::vector<MicroBatch>> parts;
  BatchPlace of_part = place;
  of_part.global_batch /= settings_.options.num_mini_batches;
  for (std::int64_t begin = 0; begin < place.global_batch; begin += of_part.global_batch) {
    std::vector<MicroBatch>& part = parts.emplace_back();
    BatchSource::for_each_micro_batch(of_part, [&](std::int64_t first, std::int64_t samples) {
      const auto offset = static_cast<std::size_t>(begin + first);
      const auto count = static_cast<std::size_t>(samples);
      part.push_back(rows_of(std::span(answers).subspan(offset, count),
                             std::span(advantages).subspan(offset, count), length));
      part.back().sample_index = begin + first;
    });
  }
  return parts;
}

nlohmann::ordered_json Rollouts::line_of(const Answer& answer,
                                         const std::vector<std::vector<double>>& rewards,
                                         std::size_t index, double advantage) const {
  nlohmann::ordered_json line;
  line["prompt"] = question_in(answer.question->record);
  line["completion"] = text_of(answer);
  line["tokens"] = answer.ids.size();
  line["truncated"] = !answer.ended;
  for (std::size_t k = 0; k < rewards.size(); ++k)
    line[name_of_figure(settings_.options.rewards[k])] = rewards[k][index];
  line["advantage"] = advantage;
  return line;
}

// Answers to `count` questions from `first` on, of an order of them, with their rewards.
Rollouts::JudgedAnswers Rollouts::asked(const RolloutModels& models, const Round& round,
                                        const BatchPlace& place, Communicator& everyone) {
  // Answers of a run are fewer than this: each round draws other random numbers.
  constexpr std::int64_t kDrawsOfRound = std::int64_t{1} << 48;
  const std::int64_t group = settings_.options.group();
  std::vector<const RolloutQuestion*> questions;
  for (std::int64_t i = 0; i < round.count * group; ++i)
    questions.push_back(&questions_->at(round.first + i / group, round.number));
  const auto begin = std::chrono::steady_clock::now();
  JudgedAnswers found;
  found.answers = write_answers(models.policy, questions,
                                {.consumed = place.consumed_samples + round.number * kDrawsOfRound,
                                 .ends = questions_->ends()},
                                everyone);
  found.milliseconds = 1e3 * seconds_since(begin);
  found.rewards = judged(models, found.answers, place, everyone);
  return found;
}

namespace {

template <typename T>
void append_part(const std::vector<T>& from, std::size_t begin, std::size_t count,
                 std::vector<T>& to) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

// A function of the weights and the place, as a batch of one round is: each round takes its
// questions from another order of all of them, at the place of the batch.
Rollouts::JudgedAnswers Rollouts::batch_with_spread(const RolloutModels& models,
                                                    const BatchPlace& place,
                                                    Communicator& everyone) {
  const RolloutOptions& options = settings_.options;
  const std::int64_t wanted = place.global_batch / options.group();
  const auto size = static_cast<std::size_t>(options.group());
  const std::int64_t first = place.consumed_samples / options.group();
  JudgedAnswers kept = asked(models, {.first = first, .count = wanted}, place, everyone);
  JudgedAnswers rest;  // without spread, of the last round
  kept.groups = static_cast<double>(wanted);
  kept.rounds = 1;
  if (options.dynamic_sampling == 0) {
    kept.without_spread =
        advantages_of(sums_of(kept.rewards), options.group(), {.scale = RewardScale::kNone})
            .without_spread;
    return kept;
  }
  JudgedAnswers round =
      std::exchange(kept, {.milliseconds = kept.milliseconds, .groups = kept.groups, .rounds = 1});
  kept.rewards.resize(options.rewards.size());
  for (std::int64_t number = 0;; ++number) {
    rest = {};
    rest.rewards.resize(options.rewards.size());
    const std::vector<double> sums = sums_of(round.rewards);
    for (std::size_t begin = 0; begin < sums.size(); begin += size) {
      const bool spread = advantages_of(std::span(sums).subspan(begin, size), options.group(),
                                        {.scale = RewardScale::kNone})
                              .without_spread == 0;
      JudgedAnswers& to = spread ? kept : rest;
      append_part(round.answers, begin, size, to.answers);
      for (std::size_t k = 0; k < options.rewards.size(); ++k)
        append_part(round.rewards[k], begin, size, to.rewards[k]);
      kept.without_spread += spread ? 0 : 1;
    }
    const std::int64_t missing = wanted - std::ssize(kept.answers) / options.group();
    if (missing == 0) return kept;
    if (number == options.dynamic_sampling) break;
    round =
        asked(models, {.number = number + 1, .first = first, .count = missing}, place, everyone);
    kept.milliseconds += round.milliseconds;
    kept.groups += static_cast<double>(missing);
    kept.rounds += 1;
  }
  // Nothing is learned from the rest, which completes the batch.
  append_part(rest.answers, 0, rest.answers.size(), kept.answers);
  for (std::size_t k = 0; k < options.rewards.size(); ++k)
    append_part(rest.rewards[k], 0, rest.rewards[k].size(), kept.rewards[k]);
  return kept;
}

// Of whole answers, by comparing those to one question.
void Rollouts::compare_groups(const RolloutModels& models, const JudgedAnswers& found,
                              const BatchPlace& place, RolloutBatch& made, Communicator& everyone) {
  const RolloutOptions& options = settings_.options;
  const std::vector<Answer>& answers = found.answers;
  std::vector<double> sums = sums_of(found.rewards);
  made.figures.push_back({"groups_without_spread", found.without_spread, found.groups});
  if (options.kl_in_reward) {
    const auto parts = parts_of(answers, sums, place, made.row_length);
    const std::vector<double> divergences =
        answer_divergences({models.policy, models.reference}, parts, std::ssize(answers), everyone);
    ObjectiveFigure& kl = made.figures.emplace_back(ObjectiveFigure{"kl", 0, 0});
    for (std::size_t i = 0; i < answers.size(); ++i) {
      sums[i] -= settings_.beta * divergences[i];
      kl.sum += divergences[i];
      kl.count += static_cast<double>(learns_from(answers[i]) ? answers[i].ids.size() : 0);
    }
    kl.count = std::max(kl.count, 1.0);
  }
  made.advantages = advantages_of(sums, options.group(), options.advantage_rules()).values;
  made.parts = parts_of(answers, made.advantages, place, made.row_length);
}

// Of tokens, by the values that the critic gives them.
void Rollouts::compare_with_critic(const RolloutModels& models, const JudgedAnswers& found,
                                   const BatchPlace& place, RolloutBatch& made,
                                   Communicator& everyone) {
  const PpoOptions& options = settings_.options.ppo;
  const std::int64_t count = std::ssize(found.answers);
  const std::vector<double> sums = sums_of(found.rewards);
  made.parts = parts_of(found.answers, sums, place, made.row_length);
  std::vector<std::vector<MicroBatch>> valued = made.parts;
  for (std::vector<MicroBatch>& part : valued) read_values(part);
  std::vector<ValuedAnswer> answers(sums.size());
  const auto values = answer_losses(*models.critic->session, valued, {}, count, everyone);
  const auto policy = answer_losses(models.policy, made.parts, {}, count, everyone);
  std::vector<std::vector<double>> reference;
  if (settings_.beta > 0)
    reference = losses_of_reference({models.policy, models.reference}, made.parts, count, everyone);
  const auto negative = [](std::vector<double> losses) {
    for (double& one : losses) one = -one;
    return losses;
  };
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i] = {.policy = negative(policy[i]), .values = values[i], .reward = sums[i]};
    if (settings_.beta > 0) answers[i].reference = negative(reference[i]);
    if (!found.answers[i].ended) answers[i].reward -= options.missing_eos_penalty.value_or(0);
  }
  TokenAdvantages tokens = token_advantages(answers, {.divergence_weight = settings_.beta,
                                                      .gamma = options.gamma,
                                                      .lambda = options.lambda,
                                                      .whitens_rewards = options.whiten_rewards});
  for (std::vector<MicroBatch>& part : made.parts) weigh_tokens(tokens.advantages, part);
  if (settings_.beta > 0)
    made.figures.push_back({"kl", tokens.divergence, std::max(tokens.tokens, 1.0)});
  for (const std::vector<double>& one : tokens.advantages) {
    made.advantages.push_back(std::accumulate(one.begin(), one.end(), 0.0) /
                              std::max(static_cast<double>(one.size()), 1.0));
  }
  made.values = {.written = values, .wanted = std::move(tokens.returns)};
}

RolloutBatch Rollouts::next(const RolloutModels& models, const BatchPlace& place,
                            Communicator& everyone) {
  const RolloutOptions& options = settings_.options;
  const WithoutObserver unobserved(models.policy.pipeline());
  const JudgedAnswers found = batch_with_spread(models, place, everyone);
  const std::vector<Answer>& answers = found.answers;
  const auto& rewards = found.rewards;
  RolloutBatch made{.figures = figures_of(answers, rewards)};
  made.figures.push_back(
      {"reward_std",
       advantages_of(sums_of(rewards), options.group(), {.scale = RewardScale::kNone}).spread, 1});
  made.figures.push_back({"generation_ms", found.milliseconds, 1});
  if (options.dynamic_sampling > 0) made.figures.push_back({"sampling_rounds", found.rounds, 1});
  for (const Answer& one : answers) {
    const std::int64_t length = std::ssize(one.question->ids) + std::ssize(one.ids) - 1;
    made.row_length = std::max(made.row_length, length);
  }
  made.row_length = BatchSource::padded_length(made.row_length, kRowMultiple, settings_.sequence);
  if (models.critic != nullptr) {
    compare_with_critic(models, found, place, made, everyone);
  } else {
    compare_groups(models, found, place, made, everyone);
  }
  if (rewards_.empty()) return made;  // the first rank alone has them
  for (std::size_t i = 0; i < answers.size() && std::cmp_less(i, options.log_completions); ++i)
    made.completions.push_back(line_of(answers[i], rewards, i, made.advantages[i]));
  return made;
}

std::vector<ObjectiveFigure> Rollouts::evaluate(const RolloutModels& models,
                                                const Questions& questions, std::int64_t count,
                                                const BatchPlace& place, Communicator& everyone) {
  const WithoutObserver unobserved(models.policy.pipeline());
  std::vector<const RolloutQuestion*> asked;
  for (std::int64_t i = 0; i < std::min(count, questions.size()); ++i)
    asked.push_back(&questions.at(i));
  const std::vector<Answer> answers =
      write_answers(models.policy, asked, {.greedy = true, .ends = questions.ends()}, everyone);
  return figures_of(answers, judged(models, answers, place, everyone));
}

}  // namespace piton
