#include "data/labels/labeled_dataset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/options/problem_types.h"
#include "data/instruct/labeled_texts.h"
#include "data/samples/describe.h"

namespace piton {
namespace {

constexpr std::array<const char*, 3> kColumns = {"input_ids", "parts", "label"};

std::vector<std::string> prefixes_of_labels(const std::string& prefix) {
  std::vector<std::string> names;
  for (const char* column : kColumns) {
    names.push_back(fmt::format("{}_packed_{}_document", prefix, column));
    if (is_corpus(names.back())) continue;
    throw Error(Fault::kData,
                "{}.idx: does not exist; texts with labels are {}_packed_input_ids_document, "
                "_packed_parts_document and _packed_label_document (.bin and .idx), which piton "
                "preprocess --handler-name TextLabelHandler writes; give their common prefix, or a "
                "file of records",
                names.back(), prefix);
  }
  return names;
}

}  // namespace

LabeledDataset::LabeledDataset(const LabelRules& rules, const RecordShare& share)
    : rules_(rules),
      prefix_(share.prefix),
      columns_(share.columns),
      pad_(share.pad),
      order_(instruction_order(share.order)) {
  for (const auto& other : columns_) {
    if (other->sequences() == columns_[0]->sequences()) continue;
    throw Error(Fault::kData,
                "{}: {} samples, but {} has {}; the files of texts with labels belong together; "
                "preprocess them again",
                other->prefix(), other->sequences(), columns_[0]->prefix(),
                columns_[0]->sequences());
  }
  for (std::int64_t i = share.order.first; i < share.order.end; ++i) {
    const auto number = static_cast<std::int32_t>(i);
    if (rules_.regression) {
      target(number);
    } else if (rules_.several) {
      label_set(number);
    } else {
      label(number);
    }
    if (columns_[0]->length(number) > rules_.sequence) ++cut_samples_;
  }
}

std::int32_t LabeledDataset::number(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  return order_[static_cast<std::size_t>(index)];
}

std::int32_t LabeledDataset::label(std::int32_t number) const {
  std::array<std::int32_t, 1> value{-1};
  if (const std::int64_t length = columns_[2]->length(number); length != 1) {
    throw Error(Fault::kData,
                "{}: sample {} has {} labels, wanted one; several of a text are "
                "learned with --problem-type {}",
                columns_[2]->prefix(), number, length, kSeveralLabels);
  }
  columns_[2]->read(number, 0, value);
  if (value[0] >= 0 && value[0] < rules_.labels) return value[0];
  throw Error(Fault::kData, "{}: sample {} has label {}, and the model has labels 0 to {}",
              columns_[2]->prefix(), number, value[0], rules_.labels - 1);
}

float LabeledDataset::target(std::int32_t number) const {
  std::array<std::int32_t, 1> value{-1};
  if (columns_[2]->length(number) == 1) columns_[2]->read(number, 0, value);
  const auto target = std::bit_cast<float>(value[0]);
  // The number of a label has the bits of a subnormal one.
  if (std::isnormal(target) || value[0] == 0) return target;
  throw Error(Fault::kData,
              "{}: sample {} has {}, which is a label, wanted the bits of a number; preprocess it "
              "again with --num-labels 1",
              columns_[2]->prefix(), number, value[0]);
}

std::vector<std::uint8_t> LabeledDataset::label_set(std::int32_t number) const {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(columns_[2]->length(number)));
  if (!labels.empty()) columns_[2]->read(number, 0, labels);
  std::vector<std::uint8_t> set(static_cast<std::size_t>(rules_.labels));
  for (const std::int32_t label : labels) {
    const bool is_there = label >= 0 && label < rules_.labels;
    if (is_there && set[static_cast<std::size_t>(label)]++ == 0) continue;
    throw Error(Fault::kData, "{}: sample {} has label {}{}, and the model has labels 0 to {}",
                columns_[2]->prefix(), number, label, is_there ? " twice" : "", rules_.labels - 1);
  }
  return set;
}

std::int64_t LabeledDataset::longest(std::int64_t index) const {
  return std::min<std::int64_t>(columns_[0]->length(number(index)), rules_.sequence);
}

void LabeledDataset::announce(std::int64_t index) const {
  const std::int32_t sample = number(index);
  for (const auto& column : columns_) column->announce(sample, 0, column->length(sample));
}

void LabeledDataset::sample(std::int64_t index, Sample& sample) const {
  const std::int32_t number = this->number(index);
  const std::int64_t length = columns_[0]->length(number);
  if (columns_[1]->length(number) != length || length == 0) {
    throw Error(Fault::kData,
                "{}: sample {} has {} values, but {} has {} ids; wanted equal numbers, at least 1; "
                "preprocess it again",
                columns_[1]->prefix(), number, columns_[1]->length(number), columns_[0]->prefix(),
                length);
  }
  TaughtText text;
  text.ids.resize(static_cast<std::size_t>(length));
  text.labels.resize(text.ids.size());
  columns_[0]->read(number, 0, text.ids);
  columns_[1]->read(number, 0, text.labels);
  if (!cut_labeled(text, rules_.sequence)) {
    throw Error(Fault::kData, "{}: the special tokens of sample {} do not fit into --seq-length {}",
                prefix_, number, rules_.sequence);
  }
  sample = {};
  sample.length = std::ssize(text.ids);
  sample.tokens = std::move(text.ids);
  sample.labels.assign(sample.tokens.size(), kNoLabel);
  std::int32_t& own = rules_.at_first_token ? sample.labels.front() : sample.labels.back();
  if (rules_.regression) {
    sample.target = target(number);
    own = kNumberLabel;
  } else if (rules_.several) {
    sample.label_set = label_set(number);
    own = 0;
  } else {
    own = label(number);
  }
  sample.positions.resize(sample.tokens.size());
  std::iota(sample.positions.begin(), sample.positions.end(), 0);
  if (rules_.token_types > 0) {
    for (const std::int32_t part : text.labels) {
      const bool second = part >= kPartOfPair && rules_.token_types > 1;
      sample.types.push_back(second ? 1 : 0);
    }
    sample.types.resize(static_cast<std::size_t>(rules_.sequence), 0);
  }
  pad_sample(pad_, rules_.sequence, sample);
}

RecordSamples labeled_samples(const LabelRules& rules, Log& log) {
  return {.prefixes = prefixes_of_labels, .open = [rules, &log](const RecordShare& share) {
            const auto samples = std::make_shared<LabeledDataset>(rules, share);
            if (share.order.samples.value_or(1) > 0) {
              const std::int64_t cut = samples->cut_samples();
              log.info(fmt::format("{}: {} set: {} texts with labels{}", share.prefix, share.set,
                                   share.order.end - share.order.first,
                                   cut == 0 ? ""
                                            : fmt::format(", {} of them longer than {} tokens and "
                                                          "cut",
                                                          cut, rules.sequence)));
            }
            return samples;
          }};
}

}  // namespace piton
