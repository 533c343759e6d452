// Filters of lists, dictionaries and other sequences, and `default`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "text/jinja/filters.h"
#include "text/jinja/value_tests.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {
namespace {

// "a.b.0" looks up a, then b, then 0.
class AttributePath {
 public:
  AttributePath(Runtime& runtime, const JinjaValue& attribute, const JinjaValue* fallback = nullptr)
      : runtime_(runtime), fallback_(fallback) {
    if (attribute.is_none()) return;
    if (!attribute.is_text()) {
      parts_.push_back(attribute);
      return;
    }
    for (const std::string_view part : split(attribute.str(), ".", -1, false)) {
      std::int64_t index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool digits = !part.empty() && part[0] != '-' && error == std::errc{} &&
                          end == part.data() + part.size();
      parts_.push_back(digits ? JinjaValue::integer(index) : JinjaValue::text(std::string(part)));
    }
  }

  JinjaValue operator()(JinjaValue item) const {
    for (const JinjaValue& part : parts_) {
      item = item_of(runtime_, item, part);
      if (item.is_undefined() && fallback_ != nullptr && !fallback_->is_none()) item = *fallback_;
    }
    return item;
  }

 private:
  Runtime& runtime_;
  const JinjaValue* fallback_;
  Values parts_;
};

JinjaValue without_case(const JinjaValue& value) {
  return value.is_text() ? JinjaValue::text(lower(value.str())) : value;
}

Values items_of(const FilterCall& call) { return iterate(call.value, call.budget()); }

JinjaValue default_filter(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"default_value", "boolean"});
  const bool replaced =
      call.value.is_undefined() || (parameters.truth_or(1, false) && !truth(call.value));
  if (!replaced) return call.value;
  return parameters.has(0) ? parameters.get(0) : JinjaValue::text("");
}

JinjaValue join(const FilterCall& call) {
  const Parameters parameters("join", call.arguments, {"d", "attribute"});
  const std::string separator = parameters.has(0) ? to_text(parameters.get(0), call.budget()) : "";
  const AttributePath attribute(call.runtime, parameters.get(1));
  std::string out;
  bool first = true;
  for (const JinjaValue& item : items_of(call)) {
    if (!first) out += separator;
    first = false;
    const std::string text = to_text(attribute(item), call.budget());
    call.budget().use_bytes(text.size() + separator.size());
    out += text;
  }
  return JinjaValue::text(std::move(out));
}

JinjaValue first(const FilterCall& call) {
  const Parameters parameters("first", call.arguments, {});
  if (call.value.is(Kind::kIterator)) {
    auto& iterator = call.value.as<Iterator>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return JinjaValue::undefined("No first item, sequence was empty.");
  }
  const Values items = items_of(call);
  return items.empty() ? JinjaValue::undefined("No first item, sequence was empty.")
                       : items.front();
}

JinjaValue last(const FilterCall& call) {
  const Parameters parameters("last", call.arguments, {});
  if (call.value.is(Kind::kIterator)) {
    throw TemplateFailure(fmt::format("'{}' object is not reversible", type_name(call.value)));
  }
  const Values items = items_of(call);
  return items.empty() ? JinjaValue::undefined("No last item, sequence was empty.") : items.back();
}

JinjaValue to_list(const FilterCall& call) {
  const Parameters parameters("list", call.arguments, {});
  return JinjaValue::list(items_of(call));
}

JinjaValue reverse(const FilterCall& call) {
  const Parameters parameters("reverse", call.arguments, {});
  Values items = items_of(call);
  std::reverse(items.begin(), items.end());
  if (call.value.is_text()) {
    std::string text;
    for (const JinjaValue& item : items) text += item.str();
    return JinjaValue::text(std::move(text));
  }
  if (call.value.is(Kind::kIterator) || call.value.is_undefined()) {
    return JinjaValue::list(std::move(items));
  }
  return make_iterator(std::move(items), type_name(call.value) + "_reverseiterator");
}

JinjaValue map(const FilterCall& call) {
  Arguments arguments = call.arguments;
  Values mapped;
  if (arguments.positional.empty()) {
    const auto attribute = arguments.take("attribute");
    const auto fallback = arguments.take("default");
    if (!attribute) throw TemplateFailure("map requires a filter argument");
    if (!arguments.named.empty()) {
      throw TemplateFailure(fmt::format("map: unexpected argument '{}'", arguments.named[0].first));
    }
    const AttributePath path(call.runtime, *attribute, fallback ? &*fallback : nullptr);
    for (const JinjaValue& item : items_of(call)) mapped.push_back(path(item));
    return make_iterator(std::move(mapped));
  }
  const JinjaValue name = arguments.positional.front();
  if (!name.is_text()) throw TemplateFailure("map: the name of a filter must be a text");
  arguments.positional.erase(arguments.positional.begin());
  for (const JinjaValue& item : items_of(call)) {
    mapped.push_back(apply_filter(call.runtime, name.str(), item, arguments));
  }
  return make_iterator(std::move(mapped));
}

// select, reject, selectattr, rejectattr
JinjaValue select(const FilterCall& call) {
  Arguments arguments = call.arguments;
  const auto take_first = [&]() -> std::optional<JinjaValue> {
    if (arguments.positional.empty()) return std::nullopt;
    const JinjaValue value = arguments.positional.front();
    arguments.positional.erase(arguments.positional.begin());
    return value;
  };
  const bool by_attribute = call.name.ends_with("attr");
  const auto attribute = by_attribute ? take_first() : std::optional<JinjaValue>(JinjaValue());
  Values kept;
  if (truth(call.value)) {
    if (!attribute) throw TemplateFailure("missing parameter for attribute name");
    const AttributePath path(call.runtime, *attribute);
    const auto test = take_first();
    if (test && !test->is_text()) throw TemplateFailure("the name of a test must be a text");
    const bool wanted = call.name.starts_with("select");
    for (const JinjaValue& item : items_of(call)) {
      const JinjaValue tested = path(item);
      const bool passes =
          test ? apply_test(call.runtime, test->str(), tested, arguments) : truth(tested);
      if (passes == wanted) kept.push_back(item);
    }
  }
  return make_iterator(std::move(kept));
}

JinjaValue items_filter(const FilterCall& call) {
  const Parameters parameters("items", call.arguments, {});
  if (call.value.is_undefined()) return make_iterator({});
  if (!call.value.is(Kind::kDict)) throw TemplateFailure("can only get item pairs from a mapping");
  return make_iterator(iterate(JinjaValue::view(Kind::kItems, call.value), call.budget()));
}

// Sorted stably by keys; Python keeps the order of equal items when it sorts in reverse.
Values sorted(const Values& items, const Values& keys, bool reverse, Budget& budget) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    budget.step();
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  Values result;
  for (const std::size_t i : order) result.push_back(items[i]);
  return result;
}

JinjaValue dict_sort(const FilterCall& call) {
  const Parameters parameters("dictsort", call.arguments, {"case_sensitive", "by", "reverse"});
  if (!call.value.is(Kind::kDict)) {
    throw TemplateFailure(call.value.is_undefined() ? call.value.str()
                                                    : "dictsort: wanted a dictionary");
  }
  const std::string by = parameters.has(1) ? parameters.need_text(1) : "key";
  if (by != "key" && by != "value") {
    throw TemplateFailure("dictsort: you can only sort by either \"key\" or \"value\"");
  }
  const Values items = iterate(JinjaValue::view(Kind::kItems, call.value), call.budget());
  Values keys;
  for (const JinjaValue& item : items) {
    const JinjaValue& key = item.items()[by == "key" ? 0 : 1];
    keys.push_back(parameters.truth_or(0, false) ? key : without_case(key));
  }
  return JinjaValue::list(sorted(items, keys, parameters.truth_or(2, false), call.budget()));
}

JinjaValue sort(const FilterCall& call) {
  const Parameters parameters("sort", call.arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = parameters.truth_or(1, false);
  const Values items = items_of(call);
  std::vector<AttributePath> paths;
  if (parameters.get(2).is_text()) {
    for (const std::string_view path : split(parameters.get(2).str(), ",", -1, false)) {
      paths.emplace_back(call.runtime, JinjaValue::text(std::string(path)));
    }
  } else {
    paths.emplace_back(call.runtime, parameters.get(2));
  }
  Values keys;
  for (const JinjaValue& item : items) {
    Values key;
    for (const AttributePath& path : paths) {
      const JinjaValue part = path(item);
      key.push_back(case_sensitive ? part : without_case(part));
    }
    keys.push_back(JinjaValue::list(std::move(key)));
  }
  return JinjaValue::list(sorted(items, keys, parameters.truth_or(0, false), call.budget()));
}

JinjaValue unique(const FilterCall& call) {
  const Parameters parameters("unique", call.arguments, {"case_sensitive", "attribute"});
  const AttributePath path(call.runtime, parameters.get(1));
  std::unordered_set<std::string> texts;
  Values others;
  Values kept;
  for (const JinjaValue& item : items_of(call)) {
    const JinjaValue key = parameters.truth_or(0, false) ? path(item) : without_case(path(item));
    check_key(key);
    if (key.is_text()) {
      if (!texts.insert(key.str()).second) continue;
    } else {
      if (std::any_of(others.begin(), others.end(), [&](const JinjaValue& other) {
            call.budget().step();
            return equal(other, key);
          })) {
        continue;
      }
      others.push_back(key);
    }
    kept.push_back(item);
  }
  return make_iterator(std::move(kept));
}

JinjaValue extreme(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments,
                              {"case_sensitive", "attribute"});
  const AttributePath path(call.runtime, parameters.get(1));
  std::optional<JinjaValue> best;
  JinjaValue best_key;
  for (const JinjaValue& item : items_of(call)) {
    const JinjaValue key = parameters.truth_or(0, false) ? path(item) : without_case(path(item));
    if (best && !(call.name == "min" ? less(key, best_key) : less(best_key, key))) continue;
    best = item;
    best_key = key;
  }
  return best ? *best : JinjaValue::undefined("No aggregated item, sequence was empty.");
}

JinjaValue sum(const FilterCall& call) {
  const Parameters parameters("sum", call.arguments, {"attribute", "start"});
  const AttributePath path(call.runtime, parameters.get(0));
  JinjaValue total = parameters.has(1) ? parameters.get(1) : JinjaValue::integer(0);
  if (total.is_text()) throw TemplateFailure("sum() cannot sum texts; use join");
  for (const JinjaValue& item : items_of(call)) {
    total = arithmetic("+", total, path(item), call.budget());
  }
  return total;
}

JinjaValue batch(const FilterCall& call) {
  const Parameters parameters("batch", call.arguments, {"linecount", "fill_with"});
  const std::int64_t size = parameters.need_integer(0);
  if (size < 1) throw TemplateFailure("batch: wanted at least one item in a batch");
  Values batches;
  Values batch;
  for (const JinjaValue& item : items_of(call)) {
    if (static_cast<std::int64_t>(batch.size()) == size) {
      batches.push_back(JinjaValue::list(std::move(batch)));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (!parameters.get(1).is_none()) {
      call.budget().use_bytes(static_cast<std::size_t>(size));
      batch.resize(static_cast<std::size_t>(size), parameters.get(1));
    }
    batches.push_back(JinjaValue::list(std::move(batch)));
  }
  return make_iterator(std::move(batches));
}

JinjaValue slice(const FilterCall& call) {
  const Parameters parameters("slice", call.arguments, {"slices", "fill_with"});
  const Values items = items_of(call);
  const std::int64_t slices = parameters.need_integer(0);
  if (slices < 1) throw TemplateFailure("slice: wanted at least one slice");
  call.budget().use_bytes(static_cast<std::size_t>(slices));
  const std::int64_t size = static_cast<std::int64_t>(items.size()) / slices;
  const std::int64_t larger = static_cast<std::int64_t>(items.size()) % slices;
  Values all;
  auto next = items.begin();
  for (std::int64_t i = 0; i < slices; ++i) {
    const auto end = next + size + (i < larger ? 1 : 0);
    Values part(next, end);
    next = end;
    if (i >= larger && !parameters.get(1).is_none()) part.push_back(parameters.get(1));
    all.push_back(JinjaValue::list(std::move(part)));
  }
  return make_iterator(std::move(all));
}

JinjaValue group_by(const FilterCall& call) {
  const Parameters parameters("groupby", call.arguments,
                              {"attribute", "default", "case_sensitive"});
  parameters.need(0);
  const AttributePath path(call.runtime, parameters.get(0), &parameters.get(1));
  const Values items = items_of(call);
  Values keys;
  const auto key_of = [&](const JinjaValue& item) {
    return parameters.truth_or(2, false) ? path(item) : without_case(path(item));
  };
  for (const JinjaValue& item : items) keys.push_back(key_of(item));
  Values groups;
  Values group;
  const auto close = [&] {
    if (group.empty()) return;
    const JinjaValue grouper = path(group.front());
    groups.push_back(JinjaValue::tuple({grouper, JinjaValue::list(std::move(group))}));
    group.clear();
  };
  for (const JinjaValue& item : sorted(items, keys, false, call.budget())) {
    if (!group.empty() && !equal(key_of(group.front()), key_of(item))) close();
    group.push_back(item);
  }
  close();
  return JinjaValue::list(std::move(groups));
}

JinjaValue attribute(const FilterCall& call) {
  const Parameters parameters("attr", call.arguments, {"name"});
  const std::string& name = parameters.need_text(0);
  if (call.value.is(Kind::kDict) && call.value.dict().find(name) != nullptr) {
    const JinjaValue plain = attribute_of(call.runtime, JinjaValue::dict({}), name);
    if (plain.is_undefined()) return plain;
  }
  return attribute_of(call.runtime, call.value, name);
}

constexpr auto kSequenceFilters = std::to_array<std::pair<std::string_view, Filter>>({
    {"default", default_filter},
    {"d", default_filter},
    {"join", join},
    {"first", first},
    {"last", last},
    {"list", to_list},
    {"reverse", reverse},
    {"map", map},
    {"select", select},
    {"reject", select},
    {"selectattr", select},
    {"rejectattr", select},
    {"items", items_filter},
    {"dictsort", dict_sort},
    {"sort", sort},
    {"unique", unique},
    {"min", extreme},
    {"max", extreme},
    {"sum", sum},
    {"batch", batch},
    {"slice", slice},
    {"groupby", group_by},
    {"attr", attribute},
});

}  // namespace

Filter sequence_filter(std::string_view name) {
  const auto* const found = std::find_if(kSequenceFilters.begin(), kSequenceFilters.end(),
                                         [&](const auto& one) { return one.first == name; });
  return found == kSequenceFilters.end() ? nullptr : found->second;
}

}  // namespace piton::jinja
