// Encodes a block of records as token ids: the parallel part of preprocessing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/duplicate_filter.h"
#include "data/records/block_reader.h"
#include "data/records/record_parser.h"
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
};

// Documents of one block, in order, for each key.
struct EncodedBlock {
  struct Column {
    std::vector<std::byte> ids;           // of all sequences, in the form of the corpus
    std::vector<std::int32_t> lengths;    // of each sequence
    std::vector<std::int32_t> sequences;  // of each document
  };
  std::vector<Column> columns;      // one for each key
  std::vector<ContentHash> hashes;  // of each document, if asked for
  std::vector<BadRecord> bad;       // in order
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;  // of the texts that were encoded

  // Where to resume after the block.
  std::size_t file = 0;
  std::int64_t end_byte = 0;
  std::int64_t consumed_bytes = 0;

  // Empties the lists but keeps their memory.
  void clear();
};

// One per thread. An empty text gives a document without sequences, as in Megatron. With
// append_eod, the last sequence of every document that has one ends with the end-of-document id.
class DocumentEncoder {
 public:
  // `tokenizer` and the splitter of `rules` must outlive the encoder. Asserts that there is an eod
  // id if append_eod is set.
  DocumentEncoder(const Tokenizer& tokenizer, EncodeRules rules);

  // Overwrites `out`, reusing its memory. Moves the block's unusable records into it.
  void encode(RecordBlock& block, EncodedBlock& out);

 private:
  void add_document(const ParsedRecord& record, EncodedBlock& out);

  const Tokenizer* tokenizer_;
  EncodeRules rules_;
  std::shared_ptr<const FileFacts> file_;  // the file of parser_
  std::unique_ptr<RecordParser> parser_;
  ParsedRecord record_;
  std::vector<std::string_view> sentences_;
  std::vector<std::int32_t> ids_;  // of one document
};

}  // namespace piton
