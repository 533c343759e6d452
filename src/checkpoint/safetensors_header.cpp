#include "checkpoint/safetensors_header.h"

#include <limits>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"

namespace piton {
namespace {

using Json = nlohmann::json;

// The reader's position.
enum class At {
  kStart,     // before the object
  kTop,       // in it: names of tensors
  kMetadata,  // in "__metadata__": keys and texts
  kEntry,     // in a tensor: its three fields
  kShape,
  kOffsets,
  kEnd,
};

class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& where)
      : header_(header), where_(where) {}

  bool null() override { return refuse_value("null"); }
  bool boolean(bool) override { return refuse_value("a truth value"); }
  bool number_integer(number_integer_t value) override {
    return refuse_value(fmt::format("the number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse_value(fmt::format("the number {}", text));
  }
  bool binary(binary_t&) override { return refuse_value("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse_value(fmt::format("the number {}", value));
    }
    const auto number = static_cast<std::int64_t>(value);
    if (at_ == At::kShape) {
      entry_.shape.push_back(number);
      return true;
    }
    if (at_ == At::kOffsets && offsets_ < 2) {
      (offsets_ == 0 ? entry_.begin : entry_.end) = number;
      ++offsets_;
      return true;
    }
    return refuse_value(fmt::format("the number {}", value));
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      header_.metadata[key_] = text;
      return true;
    }
    if (at_ == At::kEntry && key_ == "dtype") {
      entry_.dtype = text;
      return true;
    }
    return refuse_value("text");
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kTop;
      return true;
    }
    if (at_ != At::kTop) return refuse_value("an object");
    fields_.clear();
    if (key_ == "__metadata__") {
      at_ = At::kMetadata;
      return true;
    }
    at_ = At::kEntry;
    entry_ = {};
    entry_.name = key_;
    offsets_ = 0;
    return true;
  }

  bool key(string_t& text) override {
    if (at_ == At::kTop) {
      if (!names_.insert(text).second) refuse(fmt::format("the name \"{}\" appears twice", text));
    } else {
      if (!fields_.insert(text).second) {
        refuse(fmt::format("the key \"{}\" appears twice in \"{}\"", text, place()));
      }
      if (at_ == At::kEntry && text != "dtype" && text != "shape" && text != "data_offsets") {
        refuse(fmt::format("tensor \"{}\" has the unknown field \"{}\"", entry_.name, text));
      }
    }
    key_ = text;
    return true;
  }

  bool end_object() override {
    if (at_ == At::kTop) {
      at_ = At::kEnd;
      return true;
    }
    if (at_ == At::kEntry) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) {
          refuse(fmt::format("tensor \"{}\" has no \"{}\"", entry_.name, field));
        }
      }
      header_.entries.push_back(std::move(entry_));
    }
    at_ = At::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kEntry && key_ == "shape") {
      at_ = At::kShape;
      return true;
    }
    if (at_ == At::kEntry && key_ == "data_offsets") {
      at_ = At::kOffsets;
      return true;
    }
    return refuse_value("a list");
  }

  bool end_array() override {
    if (at_ == At::kOffsets && offsets_ != 2) {
      refuse(fmt::format("tensor \"{}\" has {} data_offsets, wanted 2", entry_.name, offsets_));
    }
    at_ = At::kEntry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse(fmt::format("its header is not JSON at byte {}", position + 7));
    return false;
  }

  bool complete() const { return at_ == At::kEnd; }

 private:
  std::string place() const { return at_ == At::kMetadata ? "__metadata__" : entry_.name; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Fault::kData, "{}: not a valid safetensors file: {}", where_, what);
  }

  bool refuse_value(const std::string& got) const {
    switch (at_) {
      case At::kStart:
        refuse(fmt::format("its header is {}, wanted an object", got));
      case At::kTop:
        refuse(fmt::format("\"{}\" is {}, wanted an object", key_, got));
      case At::kMetadata:
        refuse(fmt::format("__metadata__ \"{}\" is {}, wanted text", key_, got));
      case At::kEntry:
        refuse(fmt::format("tensor \"{}\": \"{}\" is {}", entry_.name, key_, got));
      case At::kShape:
        refuse(fmt::format("tensor \"{}\": its shape holds {}", entry_.name, got));
      case At::kOffsets:
        refuse(fmt::format("tensor \"{}\": its data_offsets hold {}", entry_.name, got));
      case At::kEnd:
        break;
    }
    refuse(fmt::format("{} follows the header's object", got));
  }

  SafetensorsHeader& header_;
  const std::string& where_;
  At at_ = At::kStart;
  std::string key_;
  SafetensorsEntry entry_;
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
  std::set<std::string> fields_;
};

}  // namespace

SafetensorsHeader read_header_json(std::string_view text, const std::string& where) {
  SafetensorsHeader header;
  HeaderReader reader(header, where);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &reader);
  PITON_ASSERT(whole && reader.complete(), "a reader that stopped without saying why");
  return header;
}

}  // namespace piton
