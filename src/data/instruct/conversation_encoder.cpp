#include "data/instruct/conversation_encoder.h"

#include <algorithm>

namespace piton {

TurnLengths cut_turn(TurnLengths turn, std::int64_t cutoff) {
  std::int64_t most = 0;  // ids of the answer
  if (turn.target * 2 < cutoff) {
    most = cutoff;
  } else if (turn.source * 2 < cutoff) {
    most = cutoff - turn.source;
  } else {
    // In doubles, as Python divides.
    most = static_cast<std::int64_t>(
        static_cast<double>(cutoff) *
        (static_cast<double>(turn.target) / static_cast<double>(turn.source + turn.target)));
  }
  const std::int64_t target = std::min(most, turn.target);
  return {std::min(std::max<std::int64_t>(cutoff - target, 0), turn.source), target};
}

TaughtText cut_sample(const TaughtText& sample, std::int64_t cutoff) {
  if (std::ssize(sample.ids) <= cutoff) return sample;
  TaughtText cut;
  const auto keep = [&](std::int64_t from, std::int64_t count) {
    cut.ids.insert(cut.ids.end(), sample.ids.begin() + from, sample.ids.begin() + from + count);
    cut.labels.insert(cut.labels.end(), sample.labels.begin() + from,
                      sample.labels.begin() + from + count);
  };
  const auto begin = sample.labels.begin(), end = sample.labels.end();
  for (auto at = begin; at != end && std::ssize(cut.ids) < cutoff;) {
    const auto answer = std::find_if(at, end, [](auto label) { return label != kIgnoredLabel; });
    const auto next = std::find(answer, end, kIgnoredLabel);
    const TurnLengths kept = cut_turn({answer - at, next - answer}, cutoff - std::ssize(cut.ids));
    keep(at - begin, kept.source);
    keep(answer - begin, kept.target);
    at = next;
  }
  return cut;
}

std::int64_t AnswerText::question() const {
  const auto is_label = [](std::int32_t label) { return label != kIgnoredLabel; };
  return std::find_if(labels.begin(), labels.end(), is_label) - labels.begin();
}

void cut_answers(std::span<const AnswerText> texts, std::int64_t cutoff) {
  TurnLengths longest;
  for (const AnswerText& text : texts) {
    longest.source = std::max(longest.source, text.question());
    longest.target = std::max(longest.target, std::ssize(text.ids) - text.question());
  }
  TurnLengths kept = cut_turn(longest, cutoff);
  kept.target = std::max<std::int64_t>(kept.target, 1);
  kept.source = std::min(kept.source, cutoff - kept.target);
  for (const AnswerText& text : texts) {
    const std::int64_t question = text.question();
    for (std::vector<std::int32_t>* const list : {&text.ids, &text.labels}) {
      const auto answer = list->begin() + question;
      const std::int64_t target = std::min(kept.target, list->end() - answer);
      list->erase(answer + target, list->end());
      list->erase(list->begin() + std::min(kept.source, question), answer);
    }
  }
}

void cut_answers(std::vector<TaughtText>& samples, std::int64_t cutoff) {
  std::vector<AnswerText> texts;
  for (TaughtText& sample : samples) texts.push_back({sample.ids, sample.labels});
  cut_answers(texts, cutoff);
}

}  // namespace piton
