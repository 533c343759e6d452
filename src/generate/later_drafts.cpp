#include "generate/later_drafts.h"

#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

// The likeliest token of each row of logits, which only the last stage has.
std::vector<std::int32_t> agreed_guesses(Inference& inference, const Tensor& logits) {
  std::vector<std::int32_t> ids;
  for (const LikelyToken& one : inference.likeliest(logits)) ids.push_back(one.id);
  const std::string bytes = inference.from_last_stage(
      {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)});
  ids.resize(bytes.size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

// The texts that get another guess, and the rows of the last pass that give it.
class Guesses {
 public:
  Guesses(Inference& inference, std::span<const LaterReading> readings, KvCache& cache)
      : inference_(inference), readings_(readings), cache_(cache), all_(readings.size()) {}

  // `results`: the next guesses of these readings, and what they are guessed from.
  void add(std::vector<std::size_t> of, const PassResults& results) {
    of_ = std::move(of);
    before_ = results.hidden;
    const std::vector<std::int32_t> ids = agreed_guesses(inference_, results.logits);
    PITON_ASSERT(ids.size() == of_.size(), "{} guesses for {} texts", ids.size(), of_.size());
    for (std::size_t i = 0; i < of_.size(); ++i) all_[of_[i]].push_back(ids[i]);
  }

  // A pass over the guesses; false if no text gets more.
  bool guess_again() {
    std::vector<std::size_t> of;
    std::vector<std::int32_t> rows;  // of the last pass
    std::vector<TextTokens> texts;
    for (std::size_t i = 0; i < of_.size(); ++i) {
      const LaterReading& one = readings_[of_[i]];
      const std::vector<std::int32_t>& ids = all_[of_[i]];
      if (std::ssize(ids) >= one.most) continue;
      of.push_back(of_[i]);
      rows.push_back(static_cast<std::int32_t>(i));
      texts.push_back({.text = one.text, .ids = std::span(ids).last(1), .whole = one.whole});
    }
    if (of.empty()) return false;
    const Tensor before = of.size() == of_.size() ? before_ : inference_.chosen_rows(before_, rows);
    std::iota(rows.begin(), rows.end(), 0);
    add(std::move(of), inference_.later_tokens(texts, before, rows, cache_));
    return true;
  }

  std::vector<std::vector<std::int32_t>> take() { return std::move(all_); }

 private:
  Inference& inference_;
  std::span<const LaterReading> readings_;
  KvCache& cache_;
  std::vector<std::vector<std::int32_t>> all_;  // of each reading
  std::vector<std::size_t> of_;                 // the readings of the last pass
  Tensor before_;                               // its outputs, one row each
};

}  // namespace

std::vector<std::vector<std::int32_t>> later_drafts(Inference& inference,
                                                    std::span<const LaterReading> readings,
                                                    const Tensor& hidden, KvCache& cache) {
  std::vector<TextTokens> texts;
  std::vector<std::int32_t> of_pass;  // rows of it that are read
  std::vector<std::int32_t> wanted;   // of these, the last ones of texts that get guesses
  std::vector<std::size_t> guessed;   // their readings
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const LaterReading& one = readings[i];
    texts.push_back({.text = one.text, .ids = one.next, .whole = one.whole, .from = one.begin});
    for (std::int64_t row = 0; row < std::ssize(one.next); ++row)
      of_pass.push_back(static_cast<std::int32_t>(one.first_row + row));
    lengths.push_back(cache.pages().length(one.text));
    if (one.most == 0) continue;
    PITON_ASSERT(one.begin + std::ssize(one.next) == lengths.back(),
                 "guesses after row {} of a text of {}", one.begin + std::ssize(one.next),
                 lengths.back());
    wanted.push_back(static_cast<std::int32_t>(of_pass.size()) - 1);
    guessed.push_back(i);
  }
  Guesses guesses(inference, readings, cache);
  if (texts.empty()) return guesses.take();
  const PassResults first =
      inference.later_tokens(texts, inference.chosen_rows(hidden, of_pass), wanted, cache);
  if (guessed.empty()) return guesses.take();
  guesses.add(std::move(guessed), first);
  while (guesses.guess_again()) {
  }
  // The model has not read the guesses.
  for (std::size_t i = 0; i < readings.size(); ++i)
    cache.pages().truncate(readings[i].text, lengths[i]);
  return guesses.take();
}

}  // namespace piton
