// Pairs of answers, and answers that are judged alone, as micro-batches: a pair to a row, or
// packed.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "data/samples/batch_source.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/packed_samples.h"
#include "preferences/preference_options.h"
#include "support/run_session.h"

namespace piton::test {

struct AnswerText {
  std::vector<std::int32_t> ids;     // [n + 1]
  std::vector<std::int32_t> labels;  // [n + 1]: ids, or kNoLabel
};

// Two texts a sample; the first of each two is chosen, or judged.
class PreferenceSamples final : public SampleSource {
 public:
  PreferenceSamples(std::vector<AnswerText> texts, std::int64_t sequence, bool judged)
      : texts_(std::move(texts)), sequence_(sequence), judged_(judged) {}
  std::int64_t size() const override { return std::ssize(texts_) / 2; }
  std::int64_t sequence() const override { return sequence_; }
  std::int64_t longest(std::int64_t index) const override {
    const auto at = static_cast<std::size_t>(2 * index);
    return std::ssize(texts_[at].ids) + std::ssize(texts_[at + 1].ids) - 2;
  }
  void sample(std::int64_t index, Sample& sample) const override {
    sample = {};
    const bool good = index % 2 == 0;
    const std::array<AnswerRole, 2> pair{AnswerRole::kChosen, AnswerRole::kRejected};
    const std::array<AnswerRole, 2> judged{good ? AnswerRole::kDesirable : AnswerRole::kUndesirable,
                                           AnswerRole::kMismatched};
    for (std::int32_t side = 0; side < 2; ++side) {
      const AnswerText& text = texts_[static_cast<std::size_t>(2 * index + side)];
      const std::int64_t count = std::ssize(text.ids) - 1;
      sample.answers.push_back({(judged_ ? judged : pair)[static_cast<std::size_t>(side)],
                                sample.length, sample.length + count});
      sample.tokens.insert(sample.tokens.end(), text.ids.begin(), text.ids.end() - 1);
      sample.labels.insert(sample.labels.end(), text.labels.begin() + 1, text.labels.end());
      for (std::int32_t i = 0; i < count; ++i) sample.positions.push_back(i);
      sample.segments.insert(sample.segments.end(), static_cast<std::size_t>(count), side);
      sample.length += count;
    }
    pad_sample(0, sequence_, sample);
  }

 private:
  std::vector<AnswerText> texts_;
  std::int64_t sequence_;
  bool judged_;
};

struct PreferenceRows {
  std::int64_t sequence = 0;
  std::int64_t micro = 1;
  bool packed = false;
  int rank = 0;
  int ranks = 1;
};

// All samples as one global batch.
inline std::vector<MicroBatch> preference_batch(const std::vector<AnswerText>& texts, bool judged,
                                                const PreferenceRows& rows) {
  std::shared_ptr<const SampleSource> samples =
      std::make_shared<PreferenceSamples>(texts, rows.sequence, judged);
  if (rows.packed) {
    samples = std::make_shared<PackedSamples>(samples, PackRequest{.epochs = 1});
  }
  return BatchSource(samples, {})
      .batch({.consumed_samples = 0,
              .global_batch = samples->size(),
              .micro_batch = rows.micro,
              .rank = rows.rank,
              .ranks = rows.ranks});
}

// `pairs` questions of different lengths with two answers each, which depend on nothing else.
inline std::vector<AnswerText> answer_texts(std::int64_t vocabulary, int pairs) {
  std::vector<AnswerText> texts;
  for (int i = 0; i < 2 * pairs; ++i) {
    const int question = 2 + i / 2 % 3;
    const int length = question + 2 + i * 5 % 7;
    AnswerText& text = texts.emplace_back();
    for (int place = 0; place < length; ++place) {
      const bool asks = place < question;
      text.ids.push_back(token(100 + (asks ? i / 2 : i), place, vocabulary));
      text.labels.push_back(asks ? kNoLabel : text.ids.back());
    }
  }
  return texts;
}

inline constexpr TrainingStage kPreferenceStages[] = {TrainingStage::kDpo,  TrainingStage::kIpo,
                                                      TrainingStage::kOrpo, TrainingStage::kSimpo,
                                                      TrainingStage::kCpo,  TrainingStage::kKto};

}  // namespace piton::test
