#include "data/preprocess/document_encoder.h"

#include <utility>

#include "base/error.h"

namespace piton {

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, EncodeRules rules)
    : tokenizer_(&tokenizer), rules_(std::move(rules)) {
  PITON_ASSERT(!rules_.append_eod || tokenizer.special().eod, "no end-of-document id");
}

void DocumentEncoder::encode(RecordBlock& block, EncodedBlock& out) {
  out.begin(block, rules_.keys.size());
  if (file_ != block.file) {
    file_ = block.file;
    if (rules_.text_of) {
      whole_parser_ = make_whole_record_parser(*file_, rules_.sample_by);
    } else {
      parser_ = make_record_parser(*file_, rules_.keys, rules_.sample_by);
    }
  }
  const std::size_t entries = rules_.text_of ? entries_of_record(*file_) : rules_.keys.size();
  const std::size_t records = records_of(block, entries);
  for (std::size_t i = 0; i < records; ++i) {
    std::string reason;
    switch (parse(block, i, reason)) {
      case Parsed::kRecord:
        add_document(record_, out);
        break;
      case Parsed::kNothing:
        break;
      case Parsed::kBad: {
        BadRecord bad = place_of(block, i, entries);
        bad.reason = std::move(reason);
        out.bad.push_back(std::move(bad));
        break;
      }
    }
  }
  for (BadRecord& bad : block.unusable) out.bad.push_back(std::move(bad));
}

Parsed DocumentEncoder::parse(RecordBlock& block, std::size_t index, std::string& reason) {
  if (!rules_.text_of) return parser_->parse(block, index, record_, reason);
  const Parsed parsed = whole_parser_->parse(block, index, whole_, reason);
  if (parsed != Parsed::kRecord) return parsed;
  try {
    text_ = rules_.text_of(whole_);
  } catch (const Error& error) {
    reason = error.what();
    return Parsed::kBad;
  }
  record_.texts.assign(1, {std::string_view(text_)});
  return Parsed::kRecord;
}

void DocumentEncoder::add_document(const ParsedRecord& record, EncodedBlock& out) {
  ++out.documents;
  ContentHash hash;
  for (std::size_t key = 0; key < rules_.keys.size(); ++key) {
    EncodedBlock::Column& column = out.columns[key];
    sentences_.clear();
    for (const std::string_view text : record.texts[key]) {
      out.text_bytes += static_cast<std::int64_t>(text.size());
      if (rules_.hash_documents) hash.add(text);
      // A list of strings in the file is already split into sentences.
      if (rules_.splitter != nullptr && record.texts[key].size() == 1) {
        rules_.splitter->split(text, sentences_);
      } else {
        sentences_.push_back(text);
      }
    }
    std::int32_t sequences = 0;
    ids_.clear();
    for (const std::string_view sentence : sentences_) {
      const std::size_t before = ids_.size();
      tokenizer_->encode(sentence, rules_.encode, ids_);
      if (ids_.size() == before) continue;
      column.lengths.push_back(static_cast<std::int32_t>(ids_.size() - before));
      ++sequences;
    }
    if (rules_.append_eod && sequences > 0) {
      ids_.push_back(*tokenizer_->special().eod);
      ++column.lengths.back();
    }
    append_ids(ids_, rules_.type, column.ids);
    column.sequences.push_back(sequences);
  }
  if (rules_.hash_documents) out.hashes.push_back(hash);
}

}  // namespace piton
