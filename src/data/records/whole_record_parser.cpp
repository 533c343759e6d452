#include "data/records/whole_record_parser.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/records/json_records.h"

namespace piton {
namespace {

// Columns as texts, or what their JSON says.
class ColumnsParser final : public WholeRecordParser {
 public:
  ColumnsParser(const FileFacts& file, std::vector<std::string> keys, SampleBy sample_by)
      : keys_(std::move(keys)),
        json_(file.json),
        parser_(make_record_parser(file, keys_, sample_by)) {
    json_.resize(keys_.size());
  }

  Parsed parse(RecordBlock& block, std::size_t index, nlohmann::ordered_json& record,
               std::string& reason) override {
    const Parsed parsed = parser_->parse(block, index, columns_, reason);
    if (parsed != Parsed::kRecord) return parsed;
    record = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const std::string_view text = columns_.texts[i].at(0);
      if (json_[i]) {
        record[keys_[i]] = text.empty() ? nlohmann::ordered_json()
                                        : read_json_or_discarded<nlohmann::ordered_json>(text);
      } else {
        record[keys_[i]] = std::string(text);
      }
    }
    return Parsed::kRecord;
  }

 private:
  std::vector<std::string> keys_;
  std::vector<bool> json_;  // of each
  std::unique_ptr<RecordParser> parser_;
  ParsedRecord columns_;
};

}  // namespace

std::unique_ptr<WholeRecordParser> make_whole_record_parser(const FileFacts& file,
                                                            SampleBy sample_by) {
  switch (file.format) {
    case InputFormat::kJsonLines:
    case InputFormat::kJson:
      return make_whole_json_parser();
    case InputFormat::kCsv:
    case InputFormat::kTsv:
      return std::make_unique<ColumnsParser>(file, file.columns, sample_by);
    case InputFormat::kParquet:
      return std::make_unique<ColumnsParser>(file, file.read, sample_by);
    default:
      return std::make_unique<ColumnsParser>(file, std::vector<std::string>{"text"}, sample_by);
  }
}

std::size_t entries_of_record(const FileFacts& file) {
  return std::max<std::size_t>(file.read.size(), 1);
}

void for_each_record(BlockReader& reader, SampleBy sample_by,
                     const std::function<void(nlohmann::ordered_json& record)>& use,
                     const std::function<void(const BadRecord& bad)>& refuse) {
  nlohmann::ordered_json record;
  while (auto block = reader.next()) {
    const auto parser = make_whole_record_parser(*block->file, sample_by);
    const std::size_t entries = entries_of_record(*block->file);
    for (std::size_t i = 0; i < records_of(*block, entries); ++i) {
      BadRecord bad = place_of(*block, i, entries);
      const Parsed parsed = parser->parse(*block, i, record, bad.reason);
      if (parsed == Parsed::kNothing) continue;
      if (parsed != Parsed::kRecord) {
        refuse(bad);
        continue;
      }
      try {
        use(record);
      } catch (const Error& error) {
        if (error.fault() != Fault::kData) throw;
        bad.reason = error.what();
        refuse(bad);
      }
    }
    for (const BadRecord& bad : block->unusable) refuse(bad);
  }
}

}  // namespace piton
