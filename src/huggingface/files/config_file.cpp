#include "huggingface/files/config_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestFile = std::int64_t{16} << 20;
constexpr std::size_t kShown = 60;  // characters of a value in a message

// As Transformers 5 writes numbers that JSON has no words for.
constexpr const char* kNamedFloat = "__float__";
constexpr std::string_view kInfinity = "Infinity";

// The text with the word Infinity, which Python's json writes, in the form of Transformers 5.
std::string with_named_infinities(const std::string& text) {
  const std::string named = fmt::format("{{\"{}\": \"{}\"}}", kNamedFloat, kInfinity);
  std::string all;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_string && text.compare(i, kInfinity.size(), kInfinity) == 0) {
      all += named;
      i += kInfinity.size();
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) all += text[i++];
    all += text[i++];
  }
  return all;
}

}  // namespace

HfConfig::HfConfig(const std::string& text, std::string where)
    : where_(std::move(where)), text_(text) {
  check_json_depth(text, where_);
  Json document = read_json_or_discarded<Json>(text);
  if (document.is_discarded()) document = read_json_or_discarded<Json>(with_named_infinities(text));
  if (!document.is_object()) {
    throw Error(Fault::kData, "{}: got {}, wanted a JSON object; is the copy complete?", where_,
                document.is_discarded() ? "text that is not JSON" : document.type_name());
  }
  document_ = std::make_shared<const Json>(std::move(document));
}

HfConfig HfConfig::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  HfConfig config(read_regular_file(path, kLargestFile), path.string());
  config.take_language_part();
  return config;
}

void HfConfig::take_language_part() {
  if (!has("text_config") || !has("vision_config")) return;
  const HfConfig text = object("text_config");
  Json part = *text.document_;
  // What both parts have in common.
  for (const char* key :
       {"dtype", "torch_dtype", "tie_word_embeddings", "eos_token_id", "bos_token_id",
        "pad_token_id", "transformers_version", "quantization_config"}) {
    if (!text.has(key) && has(key)) part[key] = *find(key);
  }
  constexpr std::string_view kBoth = "ForConditionalGeneration";
  Json names = Json::array();
  for (std::string name : words("architectures")) {
    if (!name.ends_with(kBoth)) wrong("architectures", fmt::format("names that end in {}", kBoth));
    names.push_back(name.replace(name.size() - kBoth.size(), kBoth.size(), "ForCausalLM"));
  }
  part["architectures"] = std::move(names);
  text_ = part.dump(2) + "\n";
  document_ = std::make_shared<const Json>(std::move(part));
  is_language_part_ = true;
}

const Json* HfConfig::find(const std::string& key) const {
  const auto found = document_->find(key);
  return found == document_->end() || found->is_null() ? nullptr : &*found;
}

void HfConfig::wrong(const std::string& key, const std::string& wanted) const {
  const Json* value = find(key);
  std::string got = "nothing";
  if (value != nullptr) {
    // The parser accepts only UTF-8, so dump() cannot fail.
    got = value->dump();
    if (got.size() > kShown) got = got.substr(0, kShown) + "...";
  }
  throw Error(Fault::kData, "{}: {}{}: got {}, wanted {}", where_, prefix_, key, got, wanted);
}

void HfConfig::refuse(const std::string& key, const std::string& wanted) const {
  wrong(key, wanted + ": Piton has no other yet");
}

bool HfConfig::empty() const { return document_->empty(); }

bool HfConfig::lists(const std::string& key) const { return document_->contains(key); }

bool HfConfig::is_word(const std::string& key, std::string_view word) const {
  const Json* value = find(key);
  return value != nullptr && value->is_string() && value->get<std::string>() == word;
}

bool HfConfig::has(const std::string& key) const { return find(key) != nullptr; }

std::int64_t HfConfig::size(const std::string& key, std::optional<std::int64_t> otherwise) const {
  const Json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (value == nullptr || !value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > kMost) ||
      value->get<std::int64_t>() < 1) {
    wrong(key, "a positive integer below 2^31");
  }
  return value->get<std::int64_t>();
}

double HfConfig::number(const std::string& key, std::optional<double> otherwise) const {
  const Json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>()))
    wrong(key, "a number");
  return value->get<double>();
}

bool HfConfig::flag(const std::string& key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->get<bool>();
}

std::string HfConfig::word(const std::string& key, std::optional<std::string> otherwise) const {
  const Json* value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_string()) wrong(key, "a word");
  return value->get<std::string>();
}

bool HfConfig::is_list(const std::string& key) const {
  const Json* value = find(key);
  return value != nullptr && value->is_array();
}

std::vector<std::string> HfConfig::words(const std::string& key) const {
  std::vector<std::string> words;
  const Json* value = find(key);
  if (value == nullptr) return words;
  if (!value->is_array()) wrong(key, "a list of words");
  for (const Json& one : *value) {
    if (!one.is_string()) wrong(key, "a list of words");
    words.push_back(one.get<std::string>());
  }
  return words;
}

std::vector<double> HfConfig::numbers(const std::string& key) const {
  std::vector<double> numbers;
  const Json* value = find(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) wrong(key, "a list of numbers");
  for (const Json& one : *value) {
    if (!one.is_number()) wrong(key, "a list of numbers");
    numbers.push_back(one.get<double>());
  }
  return numbers;
}

std::pair<std::int64_t, std::int64_t> HfConfig::two_sizes(const std::string& key) const {
  const std::vector<double> sizes = numbers(key);
  const auto is_size = [](double size) {
    return size >= 1 && size < 2147483648.0 && size == std::floor(size);
  };
  if (sizes.size() != 2 || !std::ranges::all_of(sizes, is_size))
    refuse(key, "two positive integers");
  return {static_cast<std::int64_t>(sizes[0]), static_cast<std::int64_t>(sizes[1])};
}

std::optional<std::pair<double, double>> HfConfig::bounds(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& one : value->is_array() ? *value : Json::array()) {
    const bool infinite =
        one.is_object() && one.contains(kNamedFloat) && one[kNamedFloat] == kInfinity;
    if (!infinite && !one.is_number()) break;
    numbers.push_back(infinite ? std::numeric_limits<double>::infinity() : one.get<double>());
  }
  if (numbers.size() != 2 || value->size() != 2) wrong(key, "a list of two numbers");
  return std::pair{numbers[0], numbers[1]};
}

std::vector<std::string> HfConfig::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : document_->items()) names.push_back(name);
  return names;
}

HfConfig HfConfig::object(const std::string& key) const {
  HfConfig inner;
  inner.where_ = where_;
  inner.prefix_ = prefix_ + key + ".";
  const Json* value = find(key);
  if (value != nullptr && !value->is_object()) wrong(key, "an object");
  inner.document_ = std::make_shared<const Json>(value == nullptr ? Json::object() : *value);
  return inner;
}

}  // namespace piton
