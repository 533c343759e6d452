#include "evaluate/evaluation.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "evaluate/answer_text.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

class Runner {
 public:
  Runner(EvaluatedModel& model, const EvaluationRules& rules, TaskEvaluation& out)
      : model_(model),
        rules_(rules),
        out_(out),
        requests_(make_requests(model, out.data, rules.requests)),
        answers_(requests_.size()),
        journal_(rules.journal, key(), rules.writes) {}

  void run(Progress& progress) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const auto known = journal_.answers().find(i);
      if (known == journal_.answers().end())
        order.push_back(i);
      else
        answers_[i] = known->second;
    }
    out_.restored = std::ssize(requests_) - std::ssize(order);
    sort(order);
    const std::vector<std::span<const std::size_t>> batches = batches_of(order);
    // Neighbors share beginnings, so a model answers neighbors.
    const auto count = static_cast<std::size_t>(rules_.shares.count);
    const std::size_t rounds = (batches.size() + count - 1) / count;
    const auto first = static_cast<std::size_t>(rules_.shares.index) * rounds;
    const std::int64_t computed_before = model_.computed_tokens();
    std::vector<ContinuationRequest> mine;
    ThrottledProgress shown(progress, std::ssize(order));
    std::int64_t done = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      RequestAnswers answers;
      if (first + round < batches.size()) {
        for (const std::size_t i : batches[first + round]) mine.push_back(requests_[i].text);
        answers = answers_to(batches[first + round]);
      }
      answers = shared(answers);
      for (const auto& [request, answer] : answers) answers_[request] = answer;
      journal_.add(answers);
      done += std::ssize(answers);
      shown.at(done, [&] {
        return fmt::format("{}: {:.1f} requests/s", out_.data.task.name,
                           static_cast<double>(done) / std::max(shown.seconds(), 1e-9));
      });
    }
    if (kind() != TaskKind::kGeneration && kind() != TaskKind::kPreference) {
      out_.computed_tokens = sum_over_models(model_.computed_tokens() - computed_before);
      out_.distinct_tokens = sum_over_models(distinct_tokens(mine));
    }
    progress.finish();
    collect();
  }

 private:
  TaskKind kind() const { return out_.data.task.kind; }

  JournalKey key() const {
    const TaskData& data = out_.data;
    // Ten tokens of the first request: cheap, and different for other weights.
    std::vector<std::int32_t> probe = requests_.front().text.ids;
    probe.resize(std::min<std::size_t>(
        probe.size(),
        static_cast<std::size_t>(std::min<std::int64_t>(10, model_.longest_sequence()))));
    if (probe.size() < 2) probe.resize(2, probe.front());
    JournalKey key{.facts = {{"task", data.task.name},
                             {"protocol", name(data.task.protocol)},
                             {"prompt_hash", data.prompt_hash},
                             {"requests", requests_.size()},
                             {"tokenizer", model_.tokenizer().content_hash()},
                             {"special_tokens", model_.adds_special_tokens()},
                             {"longest_sequence", model_.longest_sequence()},
                             {"overlapping_eval", rules_.requests.overlapping_eval},
                             {"max_new_tokens", rules_.requests.max_new_tokens},
                             {"stop", data.task.stop}},
                   .probe = figure_of(std::move(probe))};
    if (!data.task.reasoning_end.empty()) key.facts["reasoning_end"] = data.task.reasoning_end;
    const AnswerSampling& sampling = rules_.sampling;
    if (sampling.draws())
      key.facts["sampling"] = {{"answers", sampling.answers},
                               {"temperature", sampling.temperature},
                               {"top_k", sampling.top_k},
                               {"top_p", sampling.top_p},
                               {"seed", sampling.seed}};
    return key;
  }

  // A number that differs for other weights.
  double figure_of(std::vector<std::int32_t> ids) const {
    if (kind() == TaskKind::kPreference) return model_.rewards(std::span(&ids, 1)).front();
    const ContinuationRequest text{.ids = std::move(ids), .given = 1};
    return model_.score(std::span(&text, 1)).front().log_likelihood;
  }

  // By their tokens, so that those that begin alike are neighbors: the model then has their
  // beginning.
  void sort(std::vector<std::size_t>& order) const {
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return requests_[a].text.ids < requests_[b].text.ids;
    });
  }

  // Texts that are generated, as many as a batch has; or texts that are scored, up to the tokens of
  // a round. Every model gets about as many.
  std::vector<std::span<const std::size_t>> batches_of(std::span<const std::size_t> order) const {
    const bool generates = kind() == TaskKind::kGeneration;
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (generates)
        sizes.push_back(1);
      else if (i == 0)
        sizes.push_back(std::ssize(requests_[order[i]].text.ids));
      else
        sizes.push_back(new_tokens(order[i - 1], order[i]));
    }
    std::int64_t most = rules_.batch_size;
    if (!generates) {
      const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
      most = std::min(rules_.round_tokens, all / rules_.shares.count + 1);
    }
    std::vector<std::span<const std::size_t>> batches;
    std::int64_t size = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (size >= most && sizes[i] > 0) {
        batches.push_back(order.subspan(begin, i - begin));
        begin = i;
        size = 0;
      }
      size += sizes[i];
    }
    if (begin < order.size()) batches.push_back(order.subspan(begin));
    return batches;
  }

  // Tokens that are read for request b and not for a. None if they differ in the last one alone,
  // which is not read.
  std::int64_t new_tokens(std::size_t a, std::size_t b) const {
    const auto read = [&](std::size_t i) {
      const std::span<const std::int32_t> ids(requests_[i].text.ids);
      return ids.first(ids.size() - 1);
    };
    return read(b).end() - std::ranges::mismatch(read(b), read(a)).in1;
  }

  // Those of all models.
  RequestAnswers shared(const RequestAnswers& mine) const {
    const RequestShares& shares = rules_.shares;
    if (shares.everyone == nullptr || shares.count == 1) return mine;
    RequestAnswers all;
    for (const std::string& lines :
         shares.everyone->gather_bytes(shares.leads ? lines_of(mine) : std::string())) {
      for (std::size_t at = 0; at < lines.size();) {
        const std::size_t end = lines.find('\n', at);
        add_answer(std::string_view(lines).substr(at, end - at), all);
        at = end + 1;
      }
    }
    return all;
  }

  // Of all models, each counted once.
  std::int64_t sum_over_models(std::int64_t mine) const {
    const RequestShares& shares = rules_.shares;
    if (shares.everyone == nullptr || shares.count == 1) return mine;
    std::int64_t sum = 0;
    for (const std::string& one :
         shares.everyone->gather_bytes(shares.leads ? std::to_string(mine) : "0"))
      sum += std::stoll(one);
    return sum;
  }

  RequestAnswers answers_to(std::span<const std::size_t> batch) {
    RequestAnswers new_answers;
    if (kind() == TaskKind::kGeneration) {
      generate(batch, new_answers);
    } else if (kind() == TaskKind::kPreference) {
      std::vector<std::vector<std::int32_t>> texts;
      for (const std::size_t i : batch) texts.push_back(requests_[i].text.ids);
      const std::vector<double> rewards = model_.rewards(texts);
      for (std::size_t i = 0; i < batch.size(); ++i)
        new_answers[batch[i]] = {rewards[i], false, ""};
    } else {
      std::vector<ContinuationRequest> texts;
      for (const std::size_t i : batch) texts.push_back(requests_[i].text);
      const std::vector<ContinuationScore> scores = model_.score(texts);
      for (std::size_t i = 0; i < batch.size(); ++i)
        new_answers[batch[i]] = {scores[i].log_likelihood, scores[i].greedy, ""};
    }
    return new_answers;
  }

  void generate(std::span<const std::size_t> batch, RequestAnswers& new_answers) {
    std::vector<std::vector<std::int32_t>> prompts;
    AnswerDraws draws{.sampling = rules_.sampling};
    for (const std::size_t i : batch) {
      prompts.push_back(requests_[i].text.ids);
      if (rules_.sampling.draws())
        draws.draws.push_back(AnswerSampling::draw(requests_[i].sample, requests_[i].slot));
    }
    const Task& task = out_.data.task;
    TextEnd end{.max_new_tokens = rules_.requests.max_new_tokens, .stop = task.stop};
    // Reasoning may have the words that end an answer.
    if (!task.reasoning_end.empty()) end.stop.clear();
    const std::vector<std::string> texts = model_.generate(prompts, end, draws);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      std::string text = replace_bad_utf8(texts[i]);
      if (!task.reasoning_end.empty()) text = answer_after(text, task.reasoning_end, task.stop);
      new_answers[batch[i]].text = std::move(text);
    }
  }

  void collect() {
    out_.responses.resize(out_.data.samples.size());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const EvaluationRequest& request = requests_[i];
      SampleResponse& response = out_.responses[request.sample];
      const RequestAnswer& answer = answers_[i];
      out_.cut_prompts += request.cut ? 1 : 0;
      if (request.cut) out_.cut_samples.insert(request.sample);
      if (kind() == TaskKind::kGeneration) {
        if (request.slot == 0) response.text = answer.text;
        if (rules_.sampling.draws()) response.texts.push_back(answer.text);
        out_.empty_answers += answer.text.empty() ? 1 : 0;
      } else if (kind() == TaskKind::kPerplexity) {
        response.log_likelihoods.resize(1);
        response.log_likelihoods[0] += answer.log_likelihood;
      } else {
        response.log_likelihoods.push_back(answer.log_likelihood);
        response.greedy.push_back(answer.greedy);
      }
    }
    for (std::size_t i = 0; i < out_.data.samples.size(); ++i)
      out_.scores.push_back(score_sample(out_.data.task, out_.data.samples[i], out_.responses[i]));
  }

  EvaluatedModel& model_;
  const EvaluationRules& rules_;
  TaskEvaluation& out_;
  std::vector<EvaluationRequest> requests_;
  std::vector<RequestAnswer> answers_;
  AnswerJournal journal_;
};

}  // namespace

ReadingRules reading_rules(const EvaluatedModel& model, const EvaluationRules& rules) {
  return {.adds_special_tokens = model.adds_special_tokens(),
          .longest_sequence = model.longest_sequence(),
          .overlapping_eval = rules.requests.overlapping_eval};
}

TaskEvaluation evaluate_task(EvaluatedModel& model, TaskData data, const EvaluationRules& rules,
                             Progress& progress) {
  TaskEvaluation evaluation{
      .data = std::move(data), .reading = reading_rules(model, rules), .sampling = rules.sampling};
  Runner(model, rules, evaluation).run(progress);
  return evaluation;
}

void forget_journal(const EvaluationRules& rules) {
  if (!rules.journal || !rules.writes) return;
  std::error_code ignored;
  std::filesystem::remove(*rules.journal, ignored);
}

}  // namespace piton
