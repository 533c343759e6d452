// Encodes texts of records: each record is a document in every corpus.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/block_encoder.h"
#include "data/records/record_parser.h"
#include "data/records/whole_record_parser.h"
#include "data/sentences/sentence_splitter.h"
#include "text/tokenizer.h"

namespace piton {

struct EncodeRules {
  std::vector<std::string> keys;  // their names in the files
  SampleBy sample_by = SampleBy::kLine;
  EncodeOptions encode;
  bool append_eod = false;
  IdType type = IdType::kInt32;  // of the corpus
  bool hash_documents = false;
  const SentenceSplitter* splitter = nullptr;  // null: a document is one sequence
  // Makes the text of a whole record, for the one key; absent: texts are those of the keys. Throws
  // Error(kData) with the reason why a record cannot be used.
  std::function<std::string(const nlohmann::ordered_json&)> text_of = {};
};

// One per thread. An empty text gives a document without sequences, as in Megatron. With
// append_eod, the last sequence of every document that has one ends with the end-of-document id.
class DocumentEncoder final : public BlockEncoder {
 public:
  // `tokenizer` and the splitter of `rules` must outlive the encoder. Asserts that there is an eod
  // id if append_eod is set.
  DocumentEncoder(const Tokenizer& tokenizer, EncodeRules rules);

  void encode(RecordBlock& block, EncodedBlock& out) override;

 private:
  Parsed parse(RecordBlock& block, std::size_t index, std::string& reason);
  void add_document(const ParsedRecord& record, EncodedBlock& out);

  const Tokenizer* tokenizer_;
  EncodeRules rules_;
  std::shared_ptr<const FileFacts> file_;  // the file of parser_
  std::unique_ptr<RecordParser> parser_;
  std::unique_ptr<WholeRecordParser> whole_parser_;  // in its place, with text_of
  nlohmann::ordered_json whole_;
  std::string text_;
  ParsedRecord record_;
  std::vector<std::string_view> sentences_;
  std::vector<std::int32_t> ids_;  // of one document
};

}  // namespace piton
