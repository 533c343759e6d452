#include "data/samples/instruction_dataset.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/samples/numpy_random.h"

namespace piton {
namespace {

// 64 GiB of an order are a mistake in the request.
constexpr std::int64_t kLongestOrder = std::int64_t{1} << 34;

// A segment for the tokens up to each end of document; padding keeps its own.
void divide_at(std::int32_t eod, Sample& sample) {
  sample.segments.resize(sample.tokens.size());
  std::int32_t segment = 0;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.segments[i] == kPaddingSegment) continue;
    sample.segments[i] = segment;
    if (sample.tokens[i] == eod) ++segment;
  }
}

}  // namespace

std::array<std::string, 3> InstructionFiles::prefixes(const std::string& prefix) {
  return {prefix + "_packed_input_ids_document", prefix + "_packed_attention_mask_document",
          prefix + "_packed_labels_document"};
}

InstructionFiles::InstructionFiles(std::string prefix,
                                   std::array<std::shared_ptr<const IndexedDataset>, 3> three)
    : ids(three[0]), attention_mask(three[1]), labels(three[2]), prefix(std::move(prefix)) {
  for (const auto& other : {attention_mask, labels}) {
    if (other->sequences() == ids->sequences()) continue;
    throw Error(Fault::kData,
                "{}: {} samples, but {} has {}; the three files of an instruction data set belong "
                "together; preprocess it again",
                other->prefix(), other->sequences(), ids->prefix(), ids->sequences());
  }
  if (ids->sequences() > std::numeric_limits<std::int32_t>::max()) {
    throw Error(Fault::kData, "{}: {} samples, wanted at most 2147483647; split the data set",
                ids->prefix(), ids->sequences());
  }
  lengths = ids->lengths(0, ids->sequences());
  for (const auto& other : {attention_mask, labels}) {
    const std::vector<std::int32_t> others = other->lengths(0, other->sequences());
    const auto differ = std::mismatch(lengths.begin(), lengths.end(), others.begin());
    if (differ.first == lengths.end()) continue;
    throw Error(Fault::kData,
                "{}: sample {} has {} values, but {} has {} ids; the three files of an instruction "
                "data set belong together; preprocess it again",
                other->prefix(), differ.first - lengths.begin(), *differ.second, ids->prefix(),
                *differ.first);
  }
  const auto shortest =
      std::find_if(lengths.begin(), lengths.end(), [](std::int32_t length) { return length < 2; });
  if (shortest != lengths.end()) {
    throw Error(Fault::kData, "{}: sample {} has {} ids, wanted at least 2: a token and its label",
                ids->prefix(), shortest - lengths.begin(), *shortest);
  }
}

std::int64_t longer_samples(const InstructionFiles& files, std::int64_t first, std::int64_t end,
                            std::int64_t sequence) {
  return std::count_if(files.lengths.begin() + first, files.lengths.begin() + end,
                       [&](std::int32_t ids) { return ids - 1 > sequence; });
}

std::vector<std::int32_t> cut_without_label(const InstructionFiles& files, std::int64_t first,
                                            std::int64_t end, std::int64_t sequence) {
  std::vector<std::int32_t> found;
  std::vector<std::int32_t> labels(static_cast<std::size_t>(sequence));
  for (std::int64_t i = first; i < end; ++i) {
    if (files.lengths[static_cast<std::size_t>(i)] - 1 <= sequence) continue;
    files.labels->read(i, 1, labels);
    const bool teaches = std::any_of(labels.begin(), labels.end(),
                                     [](std::int32_t label) { return label != kNoLabel; });
    if (!teaches) found.push_back(static_cast<std::int32_t>(i));
  }
  return found;
}

std::vector<std::int32_t> instruction_order(const InstructionOrder& order) {
  PITON_ASSERT(order.first >= 0 && order.multiple > 0, "split {}..{}", order.first, order.end);
  std::vector<std::int32_t> taken;
  taken.reserve(static_cast<std::size_t>(order.end - order.first));
  for (std::int64_t i = order.first; i < order.end; ++i) {
    const auto number = static_cast<std::int32_t>(i);
    if (!std::binary_search(order.left_out.begin(), order.left_out.end(), number))
      taken.push_back(number);
  }
  const auto samples = static_cast<std::int64_t>(taken.size());
  PITON_ASSERT(samples > 0, "split {}..{}, {} left out", order.first, order.end,
               order.left_out.size());
  const std::int64_t extended = (samples + order.multiple - 1) / order.multiple * order.multiple;
  std::int64_t epochs = order.epochs.value_or(1);
  if (!order.epochs && order.samples) {
    epochs = std::max<std::int64_t>(1, (*order.samples + extended - 1) / extended);
  }
  if (epochs > kLongestOrder / extended) {
    throw Error(Fault::kUsage,
                "instruction data: {} epochs of {} samples; an order holds at most {} samples; "
                "train for fewer",
                epochs, extended, kLongestOrder);
  }
  std::vector<std::int32_t> all;
  all.reserve(static_cast<std::size_t>(epochs * extended));
  NumpyRandom random(order.seed);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::size_t start = all.size();
    for (std::int64_t i = 0; i < extended; ++i) {
      all.push_back(taken[static_cast<std::size_t>(i % samples)]);
    }
    if (order.shuffle) random.shuffle(std::span(all).subspan(start));
  }
  if (order.full_shuffle) random.shuffle(std::span(all));
  return all;
}

InstructionDataset::InstructionDataset(std::shared_ptr<const InstructionFiles> files,
                                       const InstructionRules& rules, const InstructionOrder& order)
    : files_(std::move(files)), rules_(rules), order_(instruction_order(order)) {
  PITON_ASSERT(rules_.sequence > 0 && order.end <= files_->ids->sequences(),
               "{} tokens, sequences to {} of {}", rules_.sequence, order.end,
               files_->ids->sequences());
}

std::int32_t InstructionDataset::number(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  return order_[static_cast<std::size_t>(index)];
}

std::int64_t InstructionDataset::longest(std::int64_t index) const {
  const std::int64_t ids = files_->lengths[static_cast<std::size_t>(number(index))];
  return std::min(ids - 1, rules_.sequence);
}

void InstructionDataset::announce(std::int64_t index) const {
  const std::int64_t ids = longest(index) + 1;
  for (const auto& file : {files_->ids, files_->attention_mask, files_->labels}) {
    file->announce(number(index), 0, ids);
  }
}

void InstructionDataset::sample(std::int64_t index, Sample& sample) const {
  const std::int32_t number = this->number(index);
  const auto length = static_cast<std::size_t>(longest(index));
  sample.tokens.resize(length);
  files_->ids->read(number, 0, sample.tokens);
  sample.labels.resize(length);
  files_->labels->read(number, 1, sample.labels);
  std::vector<std::int32_t> mask(length + 1);
  files_->attention_mask->read(number, 0, mask);
  sample.length = static_cast<std::int64_t>(length);
  sample.positions.resize(length);
  sample.segments.clear();
  apply_mask(number, mask, sample);
  if (rules_.divides) divide_at(*rules_.divides, sample);
  std::int32_t position = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const bool restarts =
        i > 0 && !sample.segments.empty() && sample.segments[i] != sample.segments[i - 1];
    const bool ended = i > 0 && rules_.eod && sample.tokens[i - 1] == *rules_.eod;
    if (restarts || ended) position = 0;
    sample.positions[i] = position++;
  }
  pad_sample(rules_.pad, rules_.sequence, sample);
}

// Segments, and what padding within the file and ends of packed texts do not teach. `mask`: one
// entry more than there are tokens.
void InstructionDataset::apply_mask(std::int32_t number, const std::vector<std::int32_t>& mask,
                                    Sample& sample) const {
  const auto wrong = [&](std::size_t at, std::string_view wanted) {
    return Error(Fault::kData, "{}: sample {}, place {}: got {}, wanted {}",
                 files_->attention_mask->prefix(), number, at, mask[at], wanted);
  };
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!rules_.neat_pack) {
      if (mask[i] == 0 || mask[i] == 1) continue;
      throw wrong(i, "0 or 1; if texts were packed with their numbers, set --neat-pack");
    }
    const std::int32_t before = i > 0 ? mask[i - 1] : 1;
    const bool next_text = before > 0 && i > 0 && mask[i] == before + 1;
    if (mask[i] == before || next_text || (i > 0 && mask[i] == 0)) continue;
    if (i == 0) throw wrong(i, "1, the number of the first text");
    if (before == 0) throw wrong(i, "0, as padding has begun");
    throw wrong(i, fmt::format("{}, {}, or 0 for padding", before, before + 1));
  }
  const std::size_t length = sample.tokens.size();
  const bool whole = std::all_of(mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(length),
                                 [](std::int32_t one) { return one == 1; });
  if (!whole) sample.segments.resize(length);
  for (std::size_t i = 0; i < length; ++i) {
    if (!whole) sample.segments[i] = mask[i] == 0 ? kPaddingSegment : mask[i] - 1;
    if (mask[i] == 0 || mask[i + 1] != mask[i]) sample.labels[i] = kNoLabel;
  }
  while (sample.length > 0 && mask[static_cast<std::size_t>(sample.length - 1)] == 0) {
    --sample.length;
  }
}

void pad_sample(std::int32_t pad, std::int64_t sequence, Sample& sample) {
  const std::size_t given = sample.tokens.size();
  const auto wanted = static_cast<std::size_t>(sequence);
  PITON_ASSERT(given <= wanted, "{} tokens, wanted at most {}", given, wanted);
  if (given == wanted) return;
  sample.tokens.resize(wanted, pad);
  sample.labels.resize(wanted, kNoLabel);
  sample.positions.resize(wanted);
  std::iota(sample.positions.begin() + static_cast<std::ptrdiff_t>(given), sample.positions.end(),
            0);
  if (sample.segments.empty()) sample.segments.resize(given);
  sample.segments.resize(wanted, kPaddingSegment);
}

}  // namespace piton
