#include "data/preprocess/sample_encoder.h"

#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "data/corpus/indexed_dataset.h"

namespace piton {
namespace {

ContentHash hash_of(const Conversation& conversation) {
  ContentHash hash;
  hash.add(conversation.system);
  hash.add(conversation.tools);
  const auto add = [&](const Message& message) {
    hash.add(name(message.role));
    hash.add(message.content);
  };
  for (const Message& message : conversation.messages) add(message);
  if (conversation.rejected) add(*conversation.rejected);
  if (conversation.desirable) hash.add(*conversation.desirable ? "good" : "bad");
  if (conversation.label) hash.add(*conversation.label);
  for (const std::string& label : conversation.label_list.value_or(std::vector<std::string>()))
    hash.add(label);
  return hash;
}

void append(std::span<const std::int32_t> ids, EncodedBlock::Column& column) {
  append_ids(ids, IdType::kInt32, column.ids);
  column.lengths.push_back(static_cast<std::int32_t>(ids.size()));
}

}  // namespace

void SampleEncoder::encode(RecordBlock& block, EncodedBlock& out) {
  out.begin(block, sample_columns(rules_.handler->form).size());
  if (file_ != block.file) {
    file_ = block.file;
    parser_ = make_whole_record_parser(*file_, rules_.sample_by);
  }
  const std::size_t entries = entries_of_record(*file_);
  for (std::size_t i = 0; i < records_of(block, entries); ++i) {
    std::string reason;
    const Parsed parsed = parser_->parse(block, i, record_, reason);
    if (parsed == Parsed::kNothing) continue;
    if (parsed == Parsed::kRecord) {
      try {
        add(read_conversation(*rules_.handler, rules_.fields, record_), block, i, out);
        continue;
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    BadRecord bad = place_of(block, i, entries);
    bad.reason = std::move(reason);
    out.bad.push_back(std::move(bad));
  }
  for (BadRecord& bad : block.unusable) out.bad.push_back(std::move(bad));
}

std::optional<SampleEncoder::Refusal> SampleEncoder::refusal(
    std::span<const TaughtText> samples) const {
  for (const TaughtText& sample : samples) {
    if (rules_.seq_length && std::ssize(sample.ids) >= *rules_.seq_length) {
      return {{&EncodedBlock::too_long,
               fmt::format("the sample has {} tokens, not below --seq-length {}", sample.ids.size(),
                           *rules_.seq_length)}};
    }
    if (taught_tokens(sample) == 0) {
      return {{&EncodedBlock::unteaching, "the sample has no token to learn"}};
    }
  }
  if (samples.size() == 2 && samples[0].ids == samples[1].ids) {
    return {{&EncodedBlock::unteaching, "chosen and rejected have the same tokens"}};
  }
  return {};
}

void SampleEncoder::add_labeled(const Conversation& conversation, EncodedBlock& out) {
  const std::vector<std::int32_t> labels = rules_.labels.stored(conversation);
  const TaughtText text = rules_.prompt->encode(conversation).front();
  for (const Message& message : conversation.messages)
    out.text_bytes += std::ssize(message.content);
  append(text.ids, out.columns[0]);
  append(text.labels, out.columns[1]);
  append(labels, out.columns[2]);
  ++out.documents;
  out.taught.push_back(1);
  for (EncodedBlock::Column& column : out.columns) column.sequences.push_back(1);
  if (rules_.hash_documents) out.hashes.push_back(hash_of(conversation));
}

void SampleEncoder::add(const Conversation& conversation, RecordBlock& block, std::size_t index,
                        EncodedBlock& out) {
  if (rules_.handler->form == SampleForm::kLabels) return add_labeled(conversation, out);
  const std::vector<TaughtText> samples = rules_.prompt->encode(conversation);
  for (const Message& message : conversation.messages)
    out.text_bytes += std::ssize(message.content);
  const bool pairs = rules_.handler->form == SampleForm::kPairs;
  const bool masked = rules_.handler->form == SampleForm::kAnswers;
  const std::size_t step = pairs ? 2 : 1;
  std::int32_t sequences = 0;
  std::int64_t taught = 0;
  for (std::size_t i = 0; i < samples.size(); i += step) {
    const auto group = std::span(samples).subspan(i, step);
    if (auto fault = refusal(group)) {
      BadRecord record = place_of(block, index, entries_of_record(*file_));
      record.reason = std::move(fault->reason);
      (out.*fault->list).push_back(std::move(record));
      continue;
    }
    std::size_t column = 0;
    for (const TaughtText& sample : group) {
      append(sample.ids, out.columns[column++]);
      if (masked) {
        mask_.assign(sample.ids.size(), 1);
        append(mask_, out.columns[column++]);
      }
      append(sample.labels, out.columns[column++]);
      taught += taught_tokens(sample);
    }
    if (conversation.desirable) {
      append(std::array<std::int32_t, 1>{*conversation.desirable ? 1 : 0}, out.columns[column++]);
    }
    ++sequences;
  }
  if (sequences == 0) return;
  ++out.documents;
  out.taught.push_back(taught);
  for (EncodedBlock::Column& column : out.columns) column.sequences.push_back(sequences);
  if (rules_.hash_documents) out.hashes.push_back(hash_of(conversation));
}

}  // namespace piton
