#include "generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

// A running beam with one more token.
struct Candidate {
  std::int32_t beam = 0;
  LikelyToken token;
  double sum = 0;  // of log-probabilities
};

struct RunningBeam {
  std::vector<LikelyToken> tokens;
  double sum = 0;
};

class BeamSearch {
 public:
  BeamSearch(Inference& inference, const BeamPrompt& prompt, const BeamEnd& end,
             const BeamOptions& options)
      : inference_(inference),
        end_(end),
        prompt_(prompt.ids),
        options_(options),
        vocabulary_(inference.config().vocabulary),
        most_tokens_(std::min(
            inference.config().max_positions - static_cast<std::int64_t>(prompt.ids.size()),
            end.max_new_tokens)),
        cache_(inference.make_cache()) {
    if (!prompt.source.empty()) inference.set_source(prompt.source, cache_);
  }

  std::vector<Beam> run() {
    std::vector<float> logits = read_prompt();
    std::vector<RunningBeam> running(1);
    while (true) {
      const std::vector<Candidate> candidates = agreed_candidates(logits, running);
      std::vector<std::int32_t> parents;
      std::vector<RunningBeam> next;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const Candidate& one = candidates[i];
        RunningBeam grown{running[static_cast<std::size_t>(one.beam)].tokens, one.sum};
        grown.tokens.push_back(one.token);
        const bool over = std::ranges::find(end_.ids, one.token.id) != end_.ids.end() ||
                          std::ssize(grown.tokens) == most_tokens_ || end_.ends(grown.tokens);
        if (over && i < beams()) finish(std::move(grown));
        if (over || next.size() == beams()) continue;
        next.push_back(std::move(grown));
        parents.push_back(one.beam);
      }
      keep_best();
      if (next.empty() || !can_improve(next.front())) return std::move(finished_);
      logits = read_tokens(next, parents);
      running = std::move(next);
    }
  }

 private:
  std::size_t beams() const { return static_cast<std::size_t>(options_.num_beams); }

  // After the next tokens of the texts of all running beams.
  std::vector<float> last_logits(const std::vector<std::vector<std::int32_t>>& ids) {
    std::vector<TextTokens> next;
    for (std::size_t i = 0; i < ids.size(); ++i)
      next.push_back({.text = texts_[i], .ids = ids[i], .prompt_end = std::ssize(prompt_) - 1});
    const auto logits_of = [&](std::span<const TextTokens> texts) {
      return inference_.whole_vocabulary(
          inference_.logits(texts, Inference::last_rows(texts), cache_));
    };
    const bool begins = cache_.pages().length(texts_.front()) == 0;
    if (!begins || !inference_.config().prefix) return logits_of(next);
    // Prompts whose tokens see one another are read one at a time.
    std::vector<float> all;
    for (const TextTokens& one : next) {
      const std::vector<float> logits = logits_of(std::span(&one, 1));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // The prompt is read once, for all beams.
  std::vector<float> read_prompt() {
    texts_ = {cache_.add_text()};
    const std::vector<std::int32_t> whole(prompt_.begin(), prompt_.end());
    return last_logits({whole});
  }

  // Beam i continues what beam parents[i] was.
  std::vector<float> read_tokens(const std::vector<RunningBeam>& running,
                                 const std::vector<std::int32_t>& parents) {
    const std::int64_t length = cache_.pages().length(texts_.front());
    if (changes_all_angles(inference_.config().rotary_scaling, length, length + 1))
      return read_texts(running);
    std::vector<std::int64_t> texts;
    std::vector<std::vector<std::int32_t>> ids;
    for (std::size_t i = 0; i < running.size(); ++i) {
      texts.push_back(cache_.fork(texts_[static_cast<std::size_t>(parents[i])]));
      ids.push_back({running[i].tokens.back().id});
    }
    replace_texts(std::move(texts));
    return last_logits(ids);
  }

  // Reads all beams from the beginning of the prompt.
  std::vector<float> read_texts(const std::vector<RunningBeam>& running) {
    replace_texts({});
    std::vector<std::vector<std::int32_t>> ids;
    for (const RunningBeam& beam : running) {
      texts_.push_back(cache_.add_text());
      ids.emplace_back(prompt_.begin(), prompt_.end());
      for (const LikelyToken& token : beam.tokens) ids.back().push_back(token.id);
    }
    return last_logits(ids);
  }

  void replace_texts(std::vector<std::int64_t> texts) {
    for (const std::int64_t text : texts_) cache_.pages().remove_text(text);
    texts_ = std::move(texts);
  }

  // The likeliest of all running beams with one more token: of two equal ones that of the earlier
  // beam, then the lower id. So many that as many continue as are followed if all ends of each beam
  // are among them. The last stage finds them, and all ranks continue with these.
  std::vector<Candidate> agreed_candidates(const std::vector<float>& logits,
                                           const std::vector<RunningBeam>& running) {
    const std::int64_t wanted =
        options_.num_beams * std::max<std::int64_t>(2, 1 + std::ssize(end_.ids));
    std::vector<Candidate> all;
    for (std::size_t beam = 0; beam < running.size() && !logits.empty(); ++beam) {
      const auto row = std::span(logits).subspan(beam * static_cast<std::size_t>(vocabulary_),
                                                 static_cast<std::size_t>(vocabulary_));
      for (const LikelyToken& token : likeliest_tokens(row, wanted)) {
        all.push_back(
            {static_cast<std::int32_t>(beam), token, running[beam].sum + token.log_probability});
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
    if (std::ssize(all) > wanted) all.resize(static_cast<std::size_t>(wanted));
    const std::string bytes = inference_.from_last_stage(
        {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Candidate)});
    all.resize(bytes.size() / sizeof(Candidate));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }

  double score(double sum, std::int64_t tokens) const {
    return sum / std::pow(static_cast<double>(tokens), options_.length_penalty);
  }

  void finish(RunningBeam beam) {
    const double value = score(beam.sum, std::ssize(beam.tokens));
    finished_.push_back({std::move(beam.tokens), value});
  }

  void keep_best() {
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Beam& a, const Beam& b) { return a.score > b.score; });
    if (finished_.size() > beams()) finished_.resize(beams());
  }

  bool can_improve(const RunningBeam& best) const {
    if (finished_.size() < beams()) return true;
    if (options_.early_stopping == EarlyStopping::kYes) return false;
    const bool hopes =
        options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
    return score(best.sum, hopes ? most_tokens_ : std::ssize(best.tokens)) > finished_.back().score;
  }

  Inference& inference_;
  const BeamEnd& end_;
  std::span<const std::int32_t> prompt_;
  const BeamOptions& options_;
  std::int64_t vocabulary_;
  std::int64_t most_tokens_;  // of a continuation
  KvCache cache_;
  std::vector<std::int64_t> texts_;  // in the cache, of the running beams
  std::vector<Beam> finished_;       // the best first
};

}  // namespace

void BeamOptions::check(std::int64_t vocabulary) const {
  check_range("--num-beams", num_beams, 1, vocabulary);
  if (!std::isfinite(length_penalty)) {
    throw Error(Fault::kUsage, "--length-penalty: got {}, wanted a number", length_penalty);
  }
}

std::vector<Beam> beam_search(Inference& inference, const BeamPrompt& prompt,
                              const BeamOptions& options, const BeamEnd& end) {
  options.check(inference.config().vocabulary);
  check_range("--max-new-tokens", end.max_new_tokens, 1);
  check_prompt(inference.config(), prompt.ids);
  return BeamSearch(inference, prompt, end, options).run();
}

}  // namespace piton
