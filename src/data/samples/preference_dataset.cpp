#include "data/samples/preference_dataset.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "data/instruct/conversation_encoder.h"
#include "data/samples/describe.h"

namespace piton {
namespace {

constexpr std::array<const char*, 4> kPairs = {"chosen_input_ids", "chosen_labels",
                                               "rejected_input_ids", "rejected_labels"};
constexpr std::array<const char*, 3> kJudged = {"input_ids", "labels", "desirable"};

template <typename Names>
std::vector<std::string> columns_of(const std::string& prefix, const Names& names) {
  std::vector<std::string> all;
  for (const char* name : names) all.push_back(fmt::format("{}_packed_{}_document", prefix, name));
  return all;
}

}  // namespace

std::vector<std::string> PreferenceFiles::prefixes(const std::string& prefix) {
  const std::vector<std::string> pairs = columns_of(prefix, kPairs);
  const std::vector<std::string> judged = columns_of(prefix, kJudged);
  // By their first file and their last one, the files that are there are recognized.
  const bool has_pairs = is_corpus(pairs.front()) || is_corpus(pairs[2]);
  if (!has_pairs && !is_corpus(judged.back())) {
    throw Error(Fault::kData,
                "{}.idx: does not exist; preferences are {}_packed_chosen_input_ids_document, "
                "_packed_chosen_labels_document, _packed_rejected_input_ids_document and "
                "_packed_rejected_labels_document (.bin and .idx), which piton preprocess "
                "--handler-name AlpacaStylePairwiseHandler writes; give their common prefix",
                pairs.front(), prefix);
  }
  for (const std::string& name : has_pairs ? pairs : judged) {
    if (is_corpus(name)) continue;
    throw Error(Fault::kData,
                "{}.idx: does not exist; the files of {} belong together; preprocess it again",
                name, prefix);
  }
  return has_pairs ? pairs : judged;
}

PreferenceFiles::PreferenceFiles(std::string prefix,
                                 std::vector<std::shared_ptr<const IndexedDataset>> columns)
    : prefix(std::move(prefix)), columns(std::move(columns)) {
  const auto& ids = this->columns[0];
  for (const auto& other : this->columns) {
    if (other->sequences() == ids->sequences()) continue;
    throw Error(Fault::kData,
                "{}: {} samples, but {} has {}; the files of preferences belong together; "
                "preprocess them again",
                other->prefix(), other->sequences(), ids->prefix(), ids->sequences());
  }
  if (ids->sequences() > std::numeric_limits<std::int32_t>::max()) {
    throw Error(Fault::kData, "{}: {} samples, wanted at most 2147483647; split the data set",
                ids->prefix(), ids->sequences());
  }
}

PreferenceDataset::PreferenceDataset(std::shared_ptr<const PreferenceFiles> files,
                                     const PreferenceRules& rules, const InstructionOrder& order)
    : files_(std::move(files)),
      rules_(rules),
      first_(static_cast<std::int32_t>(order.first)),
      end_(static_cast<std::int32_t>(order.end)),
      order_(instruction_order(order)) {
  if (!files_->pairs() && end_ - first_ < 2) {
    throw Error(Fault::kData,
                "{}: one judged answer in the split, wanted at least 2: each is compared with the "
                "answer of another one",
                files_->prefix);
  }
  for (std::int32_t number = first_; number < end_; ++number) check(number);
}

std::int32_t PreferenceDataset::number(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  return order_[static_cast<std::size_t>(index)];
}

std::int64_t PreferenceDataset::Text::question() { return AnswerText{ids, labels}.question(); }

std::int64_t PreferenceDataset::tokens_of(const Text& text) const {
  return std::ssize(text.ids) - (rules_.for_rewards ? 0 : 1);
}

bool PreferenceDataset::fit(const std::vector<Text>& texts) const {
  std::int64_t tokens = 0;
  for (const Text& text : texts) tokens += tokens_of(text);
  return tokens <= rules_.sequence;
}

// Each text to half of a row.
void PreferenceDataset::cut(std::vector<Text>& texts) const {
  const std::int64_t most = rules_.sequence / 2 + (rules_.for_rewards ? 0 : 1);  // ids
  std::vector<AnswerText> answers;
  for (Text& text : texts) answers.push_back({text.ids, text.labels});
  cut_answers(answers, most);
}

std::vector<PreferenceDataset::Text> PreferenceDataset::texts(std::int32_t number) const {
  std::vector<Text> both = whole_texts(number);
  if (!fit(both)) cut(both);
  return both;
}

// The text of files `column` and `column` + 1.
PreferenceDataset::Text PreferenceDataset::text(std::int32_t number, std::size_t column) const {
  const IndexedDataset& ids = *files_->columns[column];
  const IndexedDataset& labels = *files_->columns[column + 1];
  const std::int64_t length = ids.length(number);
  if (labels.length(number) != length || length < 2) {
    throw Error(Fault::kData,
                "{}: sample {} has {} values, but {} has {} ids; wanted equal numbers, at least 2; "
                "preprocess it again",
                labels.prefix(), number, labels.length(number), ids.prefix(), length);
  }
  Text text;
  text.ids.resize(static_cast<std::size_t>(length));
  text.labels.resize(text.ids.size());
  ids.read(number, 0, text.ids);
  labels.read(number, 0, text.labels);
  return text;
}

std::vector<PreferenceDataset::Text> PreferenceDataset::whole_texts(std::int32_t number) const {
  std::vector<Text> both{text(number, 0)};
  if (files_->pairs()) {
    both.push_back(text(number, 2));
    both[1].role = AnswerRole::kRejected;
    return both;
  }
  std::array<std::int32_t, 1> desirable{-1};
  const IndexedDataset& judgments = *files_->columns[2];
  if (judgments.length(number) == 1) judgments.read(number, 0, desirable);
  if (desirable[0] != 0 && desirable[0] != 1) {
    throw Error(Fault::kData, "{}: sample {}: wanted one value, 0 or 1; preprocess it again",
                judgments.prefix(), number);
  }
  both[0].role = desirable[0] == 1 ? AnswerRole::kDesirable : AnswerRole::kUndesirable;
  Text next = text(number + 1 < end_ ? number + 1 : first_, 0);
  Text mixed{.ids = both[0].ids, .labels = both[0].labels, .role = AnswerRole::kMismatched};
  const auto keep = static_cast<std::size_t>(both[0].question());
  mixed.ids.resize(keep);
  mixed.labels.resize(keep);
  mixed.ids.insert(mixed.ids.end(), next.ids.begin() + next.question(), next.ids.end());
  mixed.labels.insert(mixed.labels.end(), next.labels.begin() + next.question(), next.labels.end());
  both.push_back(std::move(mixed));
  return both;
}

void PreferenceDataset::check(std::int32_t number) {
  std::vector<Text> both = whole_texts(number);
  const auto place = [&] { return fmt::format("{}: sample {}", files_->prefix, number); };
  for (const Text& text : both) {
    const bool teaches = std::any_of(text.labels.begin() + 1, text.labels.end(),
                                     [](std::int32_t label) { return label != kNoLabel; });
    if (!teaches) {
      throw Error(Fault::kData, "{}: an answer is empty: none of its {} ids has a label", place(),
                  text.ids.size());
    }
  }
  if (files_->pairs() && both[0].ids == both[1].ids) {
    throw Error(Fault::kData, "{}: chosen and rejected are equal; there is nothing to prefer",
                place());
  }
  if (!fit(both)) {
    // Of each text an id of the question and one of the answer.
    constexpr std::int64_t kFewest = 4;
    if (rules_.sequence < kFewest) {
      throw Error(Fault::kData,
                  "{}: its two texts do not fit into --seq-length {}, wanted at least {}", place(),
                  rules_.sequence, kFewest);
    }
    cut(both);
    ++cut_samples_;
    if (!first_cut_) first_cut_ = number;
  }
  std::int64_t tokens = 0;
  for (const Text& text : both) tokens += tokens_of(text);
  lengths_.push_back(static_cast<std::int32_t>(tokens));
}

std::int64_t PreferenceDataset::longest(std::int64_t index) const {
  return lengths_[static_cast<std::size_t>(number(index) - first_)];
}

void PreferenceDataset::announce(std::int64_t index) const {
  const std::int32_t sample = number(index);
  for (const auto& file : files_->columns) file->announce(sample, 0, file->length(sample));
}

void PreferenceDataset::sample(std::int64_t index, Sample& sample) const {
  sample = {};
  std::int32_t segment = 0;
  for (const Text& text : texts(number(index))) {
    const std::int64_t count = tokens_of(text);
    sample.answers.push_back({text.role, sample.length, sample.length + count});
    sample.tokens.insert(sample.tokens.end(), text.ids.begin(), text.ids.begin() + count);
    sample.labels.insert(sample.labels.end(), text.labels.begin() + 1, text.labels.end());
    if (rules_.for_rewards) sample.labels.push_back(kNoLabel);
    for (std::int32_t i = 0; i < count; ++i) sample.positions.push_back(i);
    sample.segments.insert(sample.segments.end(), static_cast<std::size_t>(count), segment++);
    sample.length += count;
  }
  pad_sample(rules_.pad, rules_.sequence, sample);
}

}  // namespace piton
