// Encodes records of instruction data: each document is a conversation, each sequence a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/instruct/conversation_encoder.h"
#include "data/instruct/handlers.h"
#include "data/instruct/labeled_texts.h"
#include "data/preprocess/block_encoder.h"
#include "data/records/record_scanner.h"
#include "data/records/whole_record_parser.h"

namespace piton {

struct SampleRules {
  const Handler* handler = nullptr;
  RecordFields fields;
  std::shared_ptr<const ConversationEncoder> prompt;
  SampleBy sample_by = SampleBy::kDocument;
  std::optional<std::int64_t> seq_length;  // samples of as many tokens are left out
  bool hash_documents = false;             // by the conversation
  KnownLabels labels;                      // of texts with labels
};

class SampleEncoder final : public BlockEncoder {
 public:
  explicit SampleEncoder(SampleRules rules) : rules_(std::move(rules)) {}

  // Columns are those of sample_columns(). A record that cannot be used is bad; a sample that is
  // too long or teaches no token is left out and listed. A conversation of which all samples are
  // left out is no document.
  void encode(RecordBlock& block, EncodedBlock& out) override;

 private:
  void add(const Conversation& conversation, RecordBlock& block, std::size_t index,
           EncodedBlock& out);
  void add_labeled(const Conversation& conversation, EncodedBlock& out);
  // Why samples, one or the two of a pair, are left out, and the list for it.
  struct Refusal {
    std::vector<BadRecord> EncodedBlock::*list;
    std::string reason;
  };
  std::optional<Refusal> refusal(std::span<const TaughtText> samples) const;

  SampleRules rules_;
  std::shared_ptr<const FileFacts> file_;  // the file of parser_
  std::unique_ptr<WholeRecordParser> parser_;
  nlohmann::ordered_json record_;
  std::vector<std::int32_t> mask_;
};

}  // namespace piton
