#include "text/jinja/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja/values/strings.h"

namespace piton::jinja {
namespace {

int checked_depth(int depth) {
  if (depth > kMostNested) {
    throw TemplateFailure(
        fmt::format("lists are nested too deeply: more than {} levels", kMostNested));
  }
  return depth;
}

int depth_of_items(const Values& items) {
  int depth = 0;
  for (const JinjaValue& item : items) depth = std::max(depth, item.depth());
  return checked_depth(depth + 1);
}

}  // namespace

DictData::DictData(std::vector<Entry> entries) {
  entries_.reserve(entries.size());
  // Keys in index_ point into texts that the entries share, which do not move.
  for (Entry& entry : entries) {
    const JinjaValue* known = find(entry.first);
    if (known != nullptr) {
      *const_cast<JinjaValue*>(known) = std::move(entry.second);
      continue;
    }
    if (entry.first.is_text()) index_.emplace(entry.first.str(), entries_.size());
    entries_.push_back(std::move(entry));
  }
  int depth = 0;
  for (const Entry& entry : entries_) {
    depth = std::max({depth, entry.first.depth(), entry.second.depth()});
  }
  depth_ = checked_depth(depth + 1);
}

const JinjaValue* DictData::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const JinjaValue* DictData::find(const JinjaValue& key) const {
  if (key.is_text()) return find(std::string_view(key.str()));
  if (index_.size() == entries_.size()) return nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.first.is_text() && equal(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

JinjaValue JinjaValue::undefined(std::string message) {
  JinjaValue value = text(std::move(message));
  value.kind_ = Kind::kUndefined;
  return value;
}

JinjaValue JinjaValue::boolean(bool value) {
  JinjaValue made;
  made.kind_ = Kind::kBool;
  made.data_ = value;
  return made;
}

JinjaValue JinjaValue::integer(std::int64_t value) {
  JinjaValue made;
  made.kind_ = Kind::kInt;
  made.data_ = value;
  return made;
}

JinjaValue JinjaValue::real(double value) {
  JinjaValue made;
  made.kind_ = Kind::kFloat;
  made.data_ = value;
  return made;
}

JinjaValue JinjaValue::text(std::string value) {
  JinjaValue made;
  made.kind_ = Kind::kText;
  made.data_ = std::make_shared<const std::string>(std::move(value));
  return made;
}

JinjaValue JinjaValue::markup(std::string value) {
  JinjaValue made = text(std::move(value));
  made.markup_ = true;
  return made;
}

JinjaValue JinjaValue::list(Values items) {
  JinjaValue made;
  made.kind_ = Kind::kList;
  const int depth = depth_of_items(items);
  made.data_ = std::make_shared<const ListData>(ListData{std::move(items), depth});
  return made;
}

JinjaValue JinjaValue::tuple(Values items) {
  JinjaValue made = list(std::move(items));
  made.kind_ = Kind::kTuple;
  return made;
}

JinjaValue JinjaValue::dict(std::vector<Entry> entries) {
  JinjaValue made;
  made.kind_ = Kind::kDict;
  made.data_ = std::make_shared<const DictData>(std::move(entries));
  return made;
}

JinjaValue JinjaValue::view(Kind kind, const JinjaValue& dict) {
  JinjaValue made = dict;
  made.kind_ = kind;
  return made;
}

JinjaValue JinjaValue::object(Kind kind, std::shared_ptr<Object> object) {
  checked_depth(object->depth);
  JinjaValue made;
  made.kind_ = kind;
  made.data_ = std::move(object);
  return made;
}

std::int64_t JinjaValue::as_integer() const {
  return kind_ == Kind::kBool ? std::int64_t{std::get<bool>(data_)} : std::get<std::int64_t>(data_);
}

double JinjaValue::as_real() const {
  return kind_ == Kind::kFloat ? std::get<double>(data_) : static_cast<double>(as_integer());
}

int JinjaValue::depth() const {
  if (is_sequence()) return std::get<ListPointer>(data_)->depth;
  if (kind_ == Kind::kDict || is_view()) return dict().depth();
  if (kind_ >= Kind::kRange) return object()->depth;
  return 0;
}

bool JinjaValue::same_as(const JinjaValue& other) const {
  if (kind_ != other.kind_) return false;
  if (kind_ == Kind::kFloat) return false;
  return data_ == other.data_;
}

std::int64_t Range::size() const {
  const auto distance = static_cast<__int128>(stop) - start;
  const __int128 count = step > 0 ? (distance + step - 1) / step : (distance + step + 1) / step;
  return count < 0 ? 0 : static_cast<std::int64_t>(count);
}

Iterator::Iterator(Values values, std::string type)
    : items(std::move(values)), type(std::move(type)) {
  depth = depth_of_items(items);
}

JinjaValue make_iterator(Values items, std::string type) {
  return JinjaValue::object(Kind::kIterator,
                            std::make_shared<Iterator>(std::move(items), std::move(type)));
}

JinjaValue* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, JinjaValue value) {
  if (JinjaValue* known = find(name)) {
    *known = std::move(value);
  } else {
    attributes.emplace_back(std::string(name), std::move(value));
  }
}

std::string type_name(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kKeys:
      return "dict_keys";
    case Kind::kValues:
      return "dict_values";
    case Kind::kItems:
      return "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.as<Iterator>().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
  }
  return "object";
}

std::string described_type(const JinjaValue& value) {
  return value.is_none() ? "None" : type_name(value) + " object";
}

bool truth(const JinjaValue& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kText:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return !value.dict().entries().empty();
    case Kind::kRange:
      return value.as<Range>().size() > 0;
    default:
      return true;
  }
}

bool equal(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
    return a.as_real() == b.as_real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        equal);
    case Kind::kDict:
    case Kind::kKeys:
    case Kind::kItems: {
      const auto& entries = a.dict().entries();
      if (entries.size() != b.dict().entries().size()) return false;
      return std::all_of(entries.begin(), entries.end(), [&](const Entry& entry) {
        const JinjaValue* other = b.dict().find(entry.first);
        return other != nullptr && (a.is(Kind::kKeys) || equal(entry.second, *other));
      });
    }
    case Kind::kRange: {
      const auto& left = a.as<Range>();
      const auto& right = b.as<Range>();
      if (left.size() != right.size() || left.size() == 0) return left.size() == right.size();
      return left.start == right.start && (left.size() == 1 || left.step == right.step);
    }
    default:
      return a.same_as(b);
  }
}

bool less(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integer() < b.as_integer();
    return a.as_real() < b.as_real();
  }
  if (a.is_undefined() || b.is_undefined()) throw TemplateFailure((a.is_undefined() ? a : b).str());
  // The order of UTF-8 bytes is that of characters.
  if (a.is_text() && b.is_text()) return a.str() < b.str();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const std::size_t common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(a.items()[i], b.items()[i])) return less(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  throw TemplateFailure(fmt::format("'<' not supported between instances of '{}' and '{}'",
                                    type_name(a), type_name(b)));
}

bool has_length(const JinjaValue& value) {
  return value.is_undefined() || (value.kind() >= Kind::kText && value.kind() <= Kind::kRange);
}

std::int64_t length(const JinjaValue& value) {
  if (value.is_undefined()) return 0;
  if (value.is_text()) return character_count(value.str());
  if (value.is_sequence()) return static_cast<std::int64_t>(value.items().size());
  if (value.is(Kind::kRange)) return value.as<Range>().size();
  if (has_length(value)) return static_cast<std::int64_t>(value.dict().entries().size());
  throw TemplateFailure(fmt::format("object of type '{}' has no len()", type_name(value)));
}

bool is_iterable(const JinjaValue& value) {
  return has_length(value) || value.is(Kind::kIterator) || value.is(Kind::kLoop);
}

Values iterate(const JinjaValue& value, Budget& budget) {
  if (value.is_sequence()) return value.items();
  Values items;
  // What a new value occupies, about.
  constexpr std::size_t kValueBytes = 96;
  if (has_length(value)) budget.use_bytes(kValueBytes * static_cast<std::size_t>(length(value)));
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kText:
      for (const std::string_view c : characters(value.str())) {
        items.push_back(JinjaValue::text(std::string(c)));
      }
      break;
    case Kind::kDict:
    case Kind::kKeys:
      for (const Entry& entry : value.dict().entries()) items.push_back(entry.first);
      break;
    case Kind::kValues:
      for (const Entry& entry : value.dict().entries()) items.push_back(entry.second);
      break;
    case Kind::kItems:
      for (const Entry& entry : value.dict().entries()) {
        items.push_back(JinjaValue::tuple({entry.first, entry.second}));
      }
      break;
    case Kind::kRange: {
      const auto& range = value.as<Range>();
      for (std::int64_t i = 0; i < range.size(); ++i) {
        items.push_back(JinjaValue::integer(range.start + i * range.step));
      }
      break;
    }
    case Kind::kIterator: {
      auto& iterator = value.as<Iterator>();
      items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                   iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      throw TemplateFailure(fmt::format("'{}' object is not iterable", type_name(value)));
  }
  return items;
}

}  // namespace piton::jinja
