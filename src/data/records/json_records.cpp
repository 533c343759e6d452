#include "data/records/json_records.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string explain(simdjson::error_code code, std::string_view text) {
  if (code == simdjson::UTF8_ERROR) {
    const auto at = first_bad_utf8(text);
    if (at != std::string_view::npos) {
      return fmt::format(
          "byte {} of the record (0x{:02x}) is not UTF-8; convert the file with iconv -t UTF-8", at,
          static_cast<unsigned char>(text[at]));
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

constexpr const char* kListInLines =
    "not an object but a list; each line is read as one record, and a list of records from a file "
    "named .json";

// Finds the object of a record among separators and brackets, and validates it.
class ObjectReader {
 public:
  // `wanted`: an example of an object, for messages.
  explicit ObjectReader(std::string wanted) : wanted_(std::move(wanted)) {}

  Parsed read(const RecordBlock& block, std::size_t index, std::string& reason) {
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
    text_ = std::string_view(block.bytes.data() + first, end - first);
    if (tail && array && text_[0] == ']') {
      if (text_.find_first_not_of(kBlank, 1) == std::string_view::npos) return Parsed::kNothing;
      reason = "something follows the end of the array";
      return Parsed::kBad;
    }
    PITON_ASSERT(block.bytes.capacity() >= block.bytes.size() + simdjson::SIMDJSON_PADDING,
                 "no spare bytes");
    const auto code = parser_.parse(text_.data(), text_.size(), false).get(root_);
    if (code != simdjson::SUCCESS) {
      reason = !array && text_[0] == '[' ? kListInLines : explain(code, text_);
      return Parsed::kBad;
    }
    if (root_.get(object_) != simdjson::SUCCESS) {
      reason = !array && text_[0] == '[' ? kListInLines : "not an object; wanted " + wanted_;
      return Parsed::kBad;
    }
    return Parsed::kRecord;
  }

  // Valid until the next call.
  simdjson::dom::object object() const { return object_; }
  simdjson::dom::element value() const { return root_; }

 private:
  std::string wanted_;
  std::string_view text_;
  simdjson::dom::element root_;
  simdjson::dom::object object_;
  simdjson::dom::parser parser_;
};

class JsonParser final : public RecordParser {
 public:
  explicit JsonParser(std::vector<std::string> keys)
      : keys_(std::move(keys)), objects_("{\"" + keys_[0] + "\": \"...\"}") {}

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const Parsed parsed = objects_.read(block, index, reason);
    return parsed == Parsed::kRecord ? read(objects_.object(), record, reason) : parsed;
  }

 private:
  Parsed read(simdjson::dom::object object, ParsedRecord& record, std::string& reason) {
    record.texts.resize(keys_.size());
    found_.assign(keys_.size(), false);
    for (const auto [name, value] : object) {
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        if (name != keys_[i]) continue;
        if (found_[i]) {
          reason = fmt::format("key \"{}\" appears twice", keys_[i]);
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
        return "a list of values that are not text";
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

  std::vector<std::string> keys_;
  ObjectReader objects_;
  std::vector<bool> found_;
};

// A value with at most `levels` levels; none if it has more.
std::optional<nlohmann::ordered_json> json_of(simdjson::dom::element value, int levels) {
  using simdjson::dom::element_type;
  using Json = nlohmann::ordered_json;
  // simdjson has checked what it says the type is.
  switch (value.type()) {
    case element_type::ARRAY: {
      if (levels == 0) return {};
      Json list = Json::array();
      for (const auto one : simdjson::dom::array(value)) {
        auto json = json_of(one, levels - 1);
        if (!json) return {};
        list.push_back(std::move(*json));
      }
      return list;
    }
    case element_type::OBJECT: {
      if (levels == 0) return {};
      Json object = Json::object();
      for (const auto [name, one] : simdjson::dom::object(value)) {
        auto json = json_of(one, levels - 1);
        if (!json) return {};
        object[std::string(name)] = std::move(*json);
      }
      return object;
    }
    case element_type::STRING:
      return std::string(std::string_view(value));
    case element_type::INT64:
      // Not negative: unsigned, as nlohmann's parser has it.
      return std::int64_t(value) < 0 ? Json(std::int64_t(value))
                                     : Json(static_cast<std::uint64_t>(std::int64_t(value)));
    case element_type::UINT64:
      return std::uint64_t(value);
    case element_type::DOUBLE:
      return double(value);
    case element_type::BOOL:
      return bool(value);
    default:
      return Json();
  }
}

class WholeJsonParser final : public WholeRecordParser {
 public:
  Parsed parse(RecordBlock& block, std::size_t index, nlohmann::ordered_json& record,
               std::string& reason) override {
    const Parsed parsed = objects_.read(block, index, reason);
    if (parsed != Parsed::kRecord) return parsed;
    names_.clear();
    for (const auto [name, value] : objects_.object()) {
      if (names_.insert(name).second) continue;
      reason = fmt::format("key \"{}\" appears twice", name);
      return Parsed::kBad;
    }
    auto json = json_of(objects_.value(), kMostLevels);
    if (!json) {
      reason = fmt::format("nested too deeply: got more than {} levels", kMostLevels);
      return Parsed::kBad;
    }
    record = std::move(*json);
    return Parsed::kRecord;
  }

 private:
  ObjectReader objects_{"{\"KEY\": ...}"};
  std::set<std::string_view> names_;  // of the record, where the parser has them
};

}  // namespace

std::unique_ptr<RecordParser> make_json_parser(std::vector<std::string> keys) {
  return std::make_unique<JsonParser>(std::move(keys));
}

std::unique_ptr<WholeRecordParser> make_whole_json_parser() {
  return std::make_unique<WholeJsonParser>();
}

}  // namespace piton
