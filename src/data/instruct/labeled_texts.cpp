#include "data/instruct/labeled_texts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "base/options/problem_types.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, const char*>, 7> kTexts{{
    {"text", "text_pair"},
    {"sentence1", "sentence2"},
    {"question1", "question2"},
    {"premise", "hypothesis"},
    {"question", "sentence"},
    {"question", "passage"},
    {"sentence", ""},
}};

// A label as text.
std::string label_text(const Json& value, const std::string& key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number_integer()) return fmt::to_string(value.get<std::int64_t>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const auto whole = static_cast<std::int64_t>(std::clamp(number, -1e9, 1e9));
    return static_cast<double>(whole) == number ? fmt::to_string(whole) : fmt::to_string(number);
  }
  throw Error(Fault::kData, "\"{}\" is {}, wanted the number or the name of a label", key,
              value.dump());
}

constexpr std::int64_t kMostNumbers = 1LL << 31;

std::string known_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  return listed(names, kMost);
}

// The label of a record, or its list of labels, if there is one.
void read_label(const RecordFields& fields, const Json& record, Conversation& to) {
  for (const char* field : {"label", "labels", "score"}) {
    const std::string& key = fields.key(field);
    if (!holds(record, key)) continue;
    const Json& value = record.at(key);
    if (!value.is_array()) {
      to.label = label_text(value, key);
      return;
    }
    to.label_list.emplace();
    for (const Json& one : value) to.label_list->push_back(label_text(one, key));
    return;
  }
}

}  // namespace

std::optional<std::int64_t> whole_number(const std::string& label) {
  std::int64_t number = 0;
  const char* const end = label.data() + label.size();
  const auto read = std::from_chars(label.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::int32_t KnownLabels::number_of(const std::string& label) const {
  const auto found = std::ranges::find(names, label);
  if (found != names.end()) return static_cast<std::int32_t>(found - names.begin());
  const std::optional<std::int64_t> number = whole_number(label);
  const auto is_whole = [](const std::string& one) { return whole_number(one).has_value(); };
  const bool is_number = number && (names.empty() || !std::ranges::all_of(names, is_whole));
  if (is_number && *number >= 0 && *number < (count == 0 ? kMostNumbers : count))
    return static_cast<std::int32_t>(*number);
  if (!names.empty())
    throw Error(Fault::kData, "the label is \"{}\", wanted one of {}", label, known_names(names));
  if (count > 0) {
    throw Error(Fault::kData, "the label is \"{}\", wanted a number from 0 to {}{}", label,
                count - 1, is_number ? "" : "; --label-names gives names");
  }
  throw Error(Fault::kData,
              "the label is \"{}\", wanted a number from 0 on; name the labels, in their order, by "
              "--label-names",
              label);
}

float KnownLabels::value_of(const std::string& label) {
  double value = 0;
  const char* const end = label.data() + label.size();
  const auto read = std::from_chars(label.data(), end, value);
  const auto narrow = static_cast<float>(value);
  if (read.ec != std::errc() || read.ptr != end || !std::isfinite(narrow))
    throw Error(Fault::kData, "the label is \"{}\", wanted a number", label);
  return std::isnormal(narrow) ? narrow : 0.0F;
}

std::vector<std::int32_t> KnownLabels::stored(const Conversation& text) const {
  if (!text.label_list) {
    const std::string& label = text.label.value();
    return {are_values() ? std::bit_cast<std::int32_t>(value_of(label)) : number_of(label)};
  }
  if (!several) {
    throw Error(Fault::kData,
                "the label is a list, wanted {}; a text has several labels with --problem-type {}",
                are_values() ? "a number" : "one label", kSeveralLabels);
  }
  std::vector<std::int32_t> numbers;
  for (const std::string& label : *text.label_list) {
    numbers.push_back(number_of(label));
    if (std::ranges::count(numbers, numbers.back()) == 1) continue;
    throw Error(Fault::kData,
                "the labels have \"{}\" twice; wanted a list of the labels that the text has, each "
                "once (not a 0 or 1 for each that there is)",
                label);
  }
  std::ranges::sort(numbers);
  return numbers;
}

Conversation read_labeled(const RecordFields& fields, const Json& record, bool needs_label) {
  Conversation conversation;
  for (const auto& [text, pair] : kTexts) {
    const std::string& first = fields.key(text);
    const std::string second = *pair == '\0' ? "" : fields.key(pair);
    const bool alone = second.empty() || std::string_view(text) == "text";
    if (!holds(record, first) || (!alone && !holds(record, second))) continue;
    conversation.messages.push_back({MessageRole::kUser, text_at(record, first)});
    if (!second.empty() && holds(record, second))
      conversation.messages.push_back({MessageRole::kUser, text_at(record, second)});
    break;
  }
  if (conversation.messages.empty()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : record.items()) keys.push_back(key);
    throw Error(Fault::kData,
                "no text: the record has {}; wanted text, sentence, or both of sentence1 and "
                "sentence2, premise and hypothesis, question and sentence; --map-keys names others",
                keys.empty() ? "no keys" : listed(keys, 12));
  }
  read_label(fields, record, conversation);
  if (needs_label && !conversation.label && !conversation.label_list) {
    throw Error(Fault::kData,
                "no label: wanted \"{}\", \"{}\" or \"{}\"; --map-keys names another key",
                fields.key("label"), fields.key("labels"), fields.key("score"));
  }
  return conversation;
}

TaughtText LabelPrompt::encode_one(const std::string& text, bool is_pair) const {
  const std::vector<std::int32_t> plain = tokenizer_.encode(text);
  TaughtText one{.ids = tokenizer_.encode(text, {.add_special_tokens = true}), .labels = {}};
  const SpecialIds& special = tokenizer_.special();
  const bool has_ends = special.cls && special.sep;
  // Files of a vocabulary alone do not say where these ids go.
  if (has_ends && (one.ids.empty() || one.ids.front() != *special.cls)) {
    one.ids.insert(one.ids.begin(), *special.cls);
    one.ids.push_back(*special.sep);
  }
  const std::int32_t pair = is_pair ? kPartOfPair : 0;
  one.labels.assign(one.ids.size(), kPartSpecial + pair);
  const auto begin =
      std::search(one.ids.begin(), one.ids.end(), plain.begin(), plain.end()) - one.ids.begin();
  for (std::size_t i = 0; i < plain.size() && begin + i < one.ids.size(); ++i)
    one.labels[static_cast<std::size_t>(begin) + i] = kPartText + pair;
  if (!is_pair || !has_ends) return one;
  if (tokenizer_.piece(*special.cls) == "<s>") {  // RoBERTa
    one.ids.front() = *special.sep;
    return one;
  }
  one.ids.erase(one.ids.begin());
  one.labels.erase(one.labels.begin());
  return one;
}

std::vector<TaughtText> LabelPrompt::encode(const Conversation& conversation) const {
  TaughtText all;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const TaughtText one = encode_one(conversation.messages[i].content, i > 0);
    all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
    all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
  }
  if (all.ids.empty()) throw Error(Fault::kData, "the text is empty");
  return {std::move(all)};
}

std::vector<std::int32_t> types_of_pair(const std::vector<std::int32_t>& parts) {
  std::vector<std::int32_t> types;
  for (const std::int32_t part : parts) types.push_back(part >= kPartOfPair ? 1 : 0);
  return types;
}

bool cut_labeled(TaughtText& text, std::int64_t most) {
  const auto surplus = std::ssize(text.ids) - most;
  if (surplus <= 0) return true;
  const std::int64_t first = std::ranges::count(text.labels, kPartText);
  const std::int64_t second = std::ranges::count(text.labels, kPartText + kPartOfPair);
  const std::int64_t room = first + second - surplus;
  if (room < 0) return false;
  // As the tokenizers of Transformers: the shorter one stays whole where the rest has room for the
  // longer one to be as long.
  std::int64_t shorter = std::min(first, second);
  std::int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  std::array<std::int64_t, 2> keep{shorter, longer};
  if (first > second) std::swap(keep[0], keep[1]);
  TaughtText cut;
  for (std::size_t i = 0; i < text.ids.size(); ++i) {
    const std::int32_t part = text.labels[i];
    if (part % kPartOfPair == kPartText && keep[part > kPartText ? 1 : 0]-- <= 0) continue;
    cut.ids.push_back(text.ids[i]);
    cut.labels.push_back(part);
  }
  text = std::move(cut);
  return true;
}

}  // namespace piton
