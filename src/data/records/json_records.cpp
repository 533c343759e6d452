#include "data/records/json_records.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

class JsonParser final : public RecordParser {
 public:
  explicit JsonParser(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const std::size_t begin = index == 0 ? 0 : block.ends[index - 1];
    std::size_t first = begin;
    const std::size_t end = block.ends[index];
    const bool array = block.file->format == InputFormat::kJson;
    const bool tail = block.open_end && index + 1 == block.ends.size();
    bool opened = false;
    while (first < end) {
      const char c = block.bytes[first];
      if (kBlank.find(c) == std::string_view::npos && !(array && c == ',')) {
        // The bracket of the outermost array is before the file's first record.
        if (!(array && c == '[' && !opened && index == 0 && block.first_byte <= 3 && begin == 0))
          break;
        opened = true;
      }
      ++first;
    }
    if (first == end) return Parsed::kNothing;
    std::string_view text(block.bytes.data() + first, end - first);
    if (tail && array && text[0] == ']') {
      if (text.find_first_not_of(kBlank, 1) == std::string_view::npos) return Parsed::kNothing;
      reason = "something follows the end of the array";
      return Parsed::kBad;
    }
    PITON_ASSERT(block.bytes.capacity() >= block.bytes.size() + simdjson::SIMDJSON_PADDING,
                 "no spare bytes");
    simdjson::dom::element root;
    const auto code = parser_.parse(text.data(), text.size(), false).get(root);
    if (code != simdjson::SUCCESS) {
      reason = explain(code, text);
      return Parsed::kBad;
    }
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS) {
      reason = "not an object; wanted {\"" + keys_[0] + "\": \"...\"}";
      return Parsed::kBad;
    }
    return read(object, record, reason);
  }

 private:
  Parsed read(simdjson::dom::object object, ParsedRecord& record, std::string& reason) {
    record.texts.resize(keys_.size());
    found_.assign(keys_.size(), false);
    for (const auto [name, value] : object) {
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        if (name != keys_[i]) continue;
        if (found_[i]) {
          reason = fmt::format("key \"{}\" stands twice", keys_[i]);
          return Parsed::kBad;
        }
        found_[i] = true;
        record.texts[i].clear();
        if (!take(value, record.texts[i])) {
          reason = fmt::format("key \"{}\" holds {}, wanted text or a list of texts", keys_[i],
                               kind(value));
          return Parsed::kBad;
        }
      }
    }
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (found_[i]) continue;
      std::string names;
      for (const auto [name, value] : object)
        names += (names.empty() ? "" : ", ") + std::string(name);
      reason = fmt::format("no key \"{}\"; it has {}", keys_[i], names.empty() ? "none" : names);
      return Parsed::kBad;
    }
    return Parsed::kRecord;
  }

  static bool take(simdjson::dom::element value, std::vector<std::string_view>& texts) {
    std::string_view text;
    if (value.get(text) == simdjson::SUCCESS) {
      texts.push_back(text);
      return true;
    }
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS) return false;
    for (const auto one : list) {
      if (one.get(text) != simdjson::SUCCESS) return false;
      texts.push_back(text);
    }
    return true;
  }

  static std::string_view kind(simdjson::dom::element value) {
    switch (value.type()) {
      case simdjson::dom::element_type::ARRAY:
        return "a list of other things than texts";
      case simdjson::dom::element_type::OBJECT:
        return "an object";
      case simdjson::dom::element_type::BOOL:
        return "true or false";
      case simdjson::dom::element_type::NULL_VALUE:
        return "null";
      case simdjson::dom::element_type::STRING:
        return "text";
      default:
        return "a number";
    }
  }

  static std::string explain(simdjson::error_code code, std::string_view text) {
    if (code == simdjson::UTF8_ERROR) {
      const auto at = first_bad_utf8(text);
      if (at != std::string_view::npos) {
        return fmt::format(
            "byte {} of the record (0x{:02x}) is not UTF-8; convert the file with iconv -t UTF-8",
            at, static_cast<unsigned char>(text[at]));
      }
    }
    if (code == simdjson::STRING_ERROR)
      return "not JSON: a text holds a wrong escape, or half of a surrogate pair";
    if (code == simdjson::UNCLOSED_STRING || code == simdjson::TAPE_ERROR ||
        code == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) {
      return "not JSON: the record is cut off or a comma, bracket or quote is wrong";
    }
    return fmt::format("not JSON: {}", simdjson::error_message(code));
  }

  std::vector<std::string> keys_;
  std::vector<bool> found_;
  simdjson::dom::parser parser_;
};

}  // namespace

std::unique_ptr<RecordParser> make_json_parser(std::vector<std::string> keys) {
  return std::make_unique<JsonParser>(std::move(keys));
}

}  // namespace piton
