#include "data/records/record_parser.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/records/csv_fields.h"
#include "data/records/json_records.h"
#include "data/records/wiki_records.h"

namespace piton {
namespace {

std::string not_utf8(std::string_view text, std::size_t at) {
  return fmt::format(
      "byte {} of the text (0x{:02x}) is not UTF-8; convert the file with iconv -t UTF-8", at,
      static_cast<unsigned char>(text[at]));
}

class TextParser final : public RecordParser {
 public:
  TextParser(std::vector<std::string> keys, SampleBy sample_by)
      : keys_(std::move(keys)), sample_by_(sample_by) {}

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    std::string_view text = block.record(index);
    for (const std::string& key : keys_) {
      if (key != "text") {
        reason = fmt::format("no key \"{}\"; a text file has text", key);
        return Parsed::kBad;
      }
    }
    if (sample_by_ == SampleBy::kParagraph) {
      while (text.starts_with('\n') || text.starts_with("\r\n"))
        text.remove_prefix(text[0] == '\r' ? 2 : 1);
      while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
      if (text.empty()) return Parsed::kNothing;
    } else if (sample_by_ == SampleBy::kLine) {
      if (text.ends_with('\n')) text.remove_suffix(1);
      if (text.ends_with('\r')) text.remove_suffix(1);
    }
    if (const auto at = first_bad_utf8(text); at != std::string_view::npos) {
      reason = not_utf8(text, at);
      return Parsed::kBad;
    }
    record.texts.assign(keys_.size(), {text});
    return Parsed::kRecord;
  }

 private:
  std::vector<std::string> keys_;
  SampleBy sample_by_;
};

class CsvParser final : public RecordParser {
 public:
  CsvParser(const FileFacts& file, const std::vector<std::string>& keys)
      : separator_(file.format == InputFormat::kTsv ? '\t' : ','), columns_(file.columns.size()) {
    for (const std::string& key : keys) {
      places_.push_back(static_cast<std::size_t>(
          std::find(file.columns.begin(), file.columns.end(), key) - file.columns.begin()));
    }
  }

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const std::string_view line = block.record(index);
    if (line.find_first_not_of("\r\n") == std::string_view::npos) return Parsed::kNothing;
    if (auto fault = split_csv_fields(line, separator_, fields_)) {
      reason = *std::move(fault);
      return Parsed::kBad;
    }
    if (fields_.size() != columns_) {
      reason =
          fmt::format("got {} fields, wanted {} as in the first line", fields_.size(), columns_);
      return Parsed::kBad;
    }
    record.texts.resize(places_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::string& text = fields_[places_[i]];
      if (const auto at = first_bad_utf8(text); at != std::string_view::npos) {
        reason = not_utf8(text, at);
        return Parsed::kBad;
      }
      record.texts[i].assign(1, text);
    }
    return Parsed::kRecord;
  }

 private:
  char separator_;
  std::size_t columns_;
  std::vector<std::size_t> places_;
  std::vector<std::string> fields_;
};

class ColumnParser final : public RecordParser {
 public:
  explicit ColumnParser(std::size_t keys) : keys_(keys) {}

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const auto bad =
        std::lower_bound(block.bad_rows.begin(), block.bad_rows.end(), index,
                         [](const auto& row, std::size_t wanted) { return row.first < wanted; });
    if (bad != block.bad_rows.end() && bad->first == index) {
      reason = bad->second;
      return Parsed::kBad;
    }
    record.texts.resize(keys_);
    for (std::size_t i = 0; i < keys_; ++i) {
      const std::string_view text = block.record(index * keys_ + i);
      if (const auto at = first_bad_utf8(text); at != std::string_view::npos) {
        reason = not_utf8(text, at);
        return Parsed::kBad;
      }
      record.texts[i].assign(1, text);
    }
    return Parsed::kRecord;
  }

 private:
  std::size_t keys_;
};

}  // namespace

std::unique_ptr<RecordParser> make_record_parser(const FileFacts& file,
                                                 std::vector<std::string> keys,
                                                 SampleBy sample_by) {
  switch (file.format) {
    case InputFormat::kText:
      return std::make_unique<TextParser>(std::move(keys), sample_by);
    case InputFormat::kJsonLines:
    case InputFormat::kJson:
      return make_json_parser(std::move(keys));
    case InputFormat::kCsv:
    case InputFormat::kTsv:
      return std::make_unique<CsvParser>(file, keys);
    case InputFormat::kWikiExtractor:
      return make_wiki_extractor_parser(std::move(keys));
    case InputFormat::kWikiXml:
      return make_wiki_xml_parser(std::move(keys));
    case InputFormat::kParquet:
      return std::make_unique<ColumnParser>(keys.size());
  }
  PITON_ASSERT(false, "no parser");
  return nullptr;
}

std::size_t records_of(const RecordBlock& block, std::size_t keys) {
  return block.file->format == InputFormat::kParquet ? block.ends.size() / keys : block.ends.size();
}

BadRecord place_of(RecordBlock& block, std::size_t index, std::size_t keys) {
  if (block.file->format == InputFormat::kParquet) {
    return {block.file->path, block.first_line + static_cast<std::int64_t>(index), -1, ""};
  }
  (void)keys;
  std::size_t begin = index == 0 ? 0 : block.ends[index - 1];
  // Separators and blanks before a record belong to it; report the byte after them.
  const auto first = block.bytes.find_first_not_of(" \t\r\n,", begin);
  if (first != std::string::npos && first < block.ends[index] &&
      block.file->format != InputFormat::kText)
    begin = first;
  // Oversized records were removed; their bytes are not in `bytes`.
  if (begin < block.counted) {
    block.counted = 0;
    block.counted_lines = 0;
  }
  const auto bytes = block.bytes.begin();
  block.counted_lines += std::count(bytes + static_cast<std::ptrdiff_t>(block.counted),
                                    bytes + static_cast<std::ptrdiff_t>(begin), '\n');
  block.counted = begin;
  const std::int64_t line = block.first_line + block.counted_lines;
  return {block.file->path, line, block.first_byte + static_cast<std::int64_t>(begin), ""};
}

std::size_t first_bad_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::string_view::npos;
  // Slow, only to find the place.
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
    };
    const unsigned first = byte(i);
    std::size_t length = 0;
    unsigned low = 0x80, high = 0xBF;
    if (first < 0x80) {
      ++i;
      continue;
    }
    if (first >= 0xC2 && first <= 0xDF) length = 2;
    if (first >= 0xE0 && first <= 0xEF) {
      length = 3;
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
    }
    if (first >= 0xF0 && first <= 0xF4) {
      length = 4;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (length == 0 || byte(i + 1) < low || byte(i + 1) > high) return i;
    for (std::size_t k = 2; k < length; ++k) {
      if ((byte(i + k) & 0xC0U) != 0x80U) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace piton
