#include "rollouts/rollouts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
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

namespace piton {
namespace {

// Rows of a batch are as long as its longest text, rounded up to a multiple of this.
constexpr std::int64_t kRowMultiple = 16;

template <typename T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_in(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string name_of_figure(const std::string& reward) { return "reward_" + reward; }

}  // namespace

Rollouts::Rollouts(const RolloutSettings& settings, std::shared_ptr<const Questions> questions,
                   const Tokenizer& tokenizer, bool leads)
    : settings_(settings), questions_(std::move(questions)), tokenizer_(tokenizer) {
  if (leads) rewards_ = make_rewards(settings.options);
}

// The tokens of the answers of a share, by this rank and those that it shares a copy with.
std::vector<std::vector<std::int32_t>> Rollouts::written(Session& session,
                                                         const std::vector<Answer>& answers,
                                                         const Share& share) {
  Inference inference(session.context(false), session.pipeline(), session.mesh(),
                      session.settings().model);
  if (share.apart) inference.read_apart();
  // Its cache is released with it: training needs the memory.
  const std::unique_ptr<DecodingEngine> engine = make_batched_engine(inference, {});
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::uint64_t> draws;
  for (std::int64_t i = share.first; i < share.end; ++i) {
    prompts.push_back(answers[static_cast<std::size_t>(i)].question->ids);
    draws.push_back(static_cast<std::uint64_t>(share.consumed + i));
  }
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::vector<GeneratedToken>& text : generate_batch(
           *engine, {.ids = prompts, .draws = draws, .ends = questions_->ends()},
           {.max_new_tokens = settings_.options.max_completion_length, .seed = settings_.seed},
           [](std::size_t, const GeneratedToken&) { return true; })) {
    std::vector<std::int32_t>& one = ids.emplace_back();
    for (const GeneratedToken& token : text) one.push_back(token.id);
  }
  return ids;
}

std::vector<Rollouts::Answer> Rollouts::write_answers(Session& session, const BatchPlace& place,
                                                      Communicator& everyone) {
  const std::int64_t group = settings_.options.num_generations;
  std::vector<Answer> answers(static_cast<std::size_t>(place.global_batch));
  for (std::int64_t i = 0; i < place.global_batch; ++i) {
    answers[static_cast<std::size_t>(i)].question =
        &questions_->at((place.consumed_samples + i) / group);
  }
  // Under ZeRO-3 each pass gathers weights of all ranks.
  const bool apart = place.ranks > 1 && session.settings().zero_stage < 3;
  const std::int64_t copies = apart ? place.ranks : 1;
  const std::int64_t copy = apart ? place.rank : 0;
  const Share share{.first = place.global_batch * copy / copies,
                    .end = place.global_batch * (copy + 1) / copies,
                    .consumed = place.consumed_samples,
                    .apart = apart};
  const auto own = written(session, answers, share);
  // One rank of each copy tells: the place of its answers, and the length and tokens of each.
  Mesh& mesh = session.mesh();
  const bool tells = mesh.coordinate(Axis::kTensor) == 0 && mesh.coordinate(Axis::kPipeline) == 0 &&
                     (apart || place.rank == 0);
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
    answer.ended = std::ranges::count(questions_->ends(), answer.ids.back()) > 0;
  }
  return answers;
}

std::string Rollouts::text_of(const Answer& answer) const {
  StreamDecoder decoder(tokenizer_, DecodeOptions{.skip_special_tokens = true});
  decoder.start_after(answer.question->ids);
  std::string text;
  for (const std::int32_t id : answer.ids) text += decoder.push(id);
  return text + decoder.finish();
}

// The rewards of each name, of all answers.
std::vector<std::vector<double>> Rollouts::judged(const std::vector<Answer>& answers,
                                                  Communicator& everyone) {
  const std::string bytes = found_by_first(everyone, [&] {
    std::vector<JudgedAnswer> judged;
    for (const Answer& one : answers) judged.push_back({&one.question->record, text_of(one)});
    std::string all;
    for (const auto& reward : rewards_) all += bytes_of_values(reward->rewards(judged));
    return all;
  });
  const auto values = values_in<double>(bytes);
  const std::size_t names = settings_.options.rewards.size();
  PITON_ASSERT(values.size() == names * answers.size(), "{} rewards of {} answers", values.size(),
               answers.size());
  std::vector<std::vector<double>> rewards;
  for (std::size_t i = 0; i < names; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * answers.size());
    rewards.emplace_back(begin, begin + std::ssize(answers));
  }
  return rewards;
}

MicroBatch Rollouts::rows_of(std::span<const Answer> answers, std::span<const double> advantages,
                             std::int64_t length) const {
  MicroBatch batch;
  batch.samples = std::ssize(answers);
  batch.sequence = length;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    const auto weight = static_cast<float>(advantages[i]);
    const bool learned = answer.ended || !settings_.options.mask_truncated;
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
  const nlohmann::ordered_json& record = answer.question->record;
  nlohmann::ordered_json line;
  line["prompt"] = record.contains("prompt") ? record["prompt"] : record["messages"];
  line["completion"] = text_of(answer);
  line["tokens"] = answer.ids.size();
  line["truncated"] = !answer.ended;
  for (std::size_t k = 0; k < rewards.size(); ++k)
    line[name_of_figure(settings_.options.rewards[k])] = rewards[k][index];
  line["advantage"] = advantage;
  return line;
}

RolloutBatch Rollouts::next(Session& session, const BatchPlace& place, Communicator& everyone) {
  const RolloutOptions& options = settings_.options;
  const WithoutObserver unobserved(session.pipeline());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Answer> answers = write_answers(session, place, everyone);
  const double milliseconds = 1e3 * seconds_since(begin);
  const auto rewards = judged(answers, everyone);
  const auto n = static_cast<double>(answers.size());
  std::vector<double> sums(answers.size());
  RolloutBatch made;
  for (std::size_t k = 0; k < rewards.size(); ++k) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += options.weight(k) * rewards[k][i];
  }
  const Advantages advantages = advantages_of(sums, options.num_generations, options.scale_rewards);
  const auto total = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  made.figures = {{"reward", total(sums), n}, {"reward_std", advantages.spread, 1}};
  for (std::size_t k = 0; k < rewards.size(); ++k)
    made.figures.push_back({name_of_figure(options.rewards[k]), total(rewards[k]), n});
  double tokens = 0;
  double truncated = 0;
  for (const Answer& one : answers) {
    const std::int64_t length = std::ssize(one.question->ids) + std::ssize(one.ids) - 1;
    made.row_length = std::max(made.row_length, length);
    tokens += static_cast<double>(one.ids.size());
    truncated += one.ended ? 0 : 1;
  }
  made.figures.push_back({"completion_length", tokens, n});
  made.figures.push_back({"completions_truncated", truncated, n});
  made.figures.push_back({"groups_without_spread", advantages.without_spread, advantages.groups});
  made.figures.push_back({"generation_ms", milliseconds, 1});
  made.row_length = std::min((made.row_length + kRowMultiple - 1) / kRowMultiple * kRowMultiple,
                             settings_.sequence);
  made.parts = parts_of(answers, advantages.values, place, made.row_length);
  if (rewards_.empty()) return made;  // the first rank alone has them
  for (std::size_t i = 0; i < answers.size() && std::cmp_less(i, options.log_completions); ++i)
    made.completions.push_back(line_of(answers[i], rewards, i, advantages.values[i]));
  return made;
}

}  // namespace piton
