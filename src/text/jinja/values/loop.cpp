#include "text/jinja/values/loop.h"

#include "text/jinja/values/arguments.h"

namespace piton::jinja {

bool Loop::advance() {
  JinjaValue item;
  if (!ahead.empty()) {
    item = std::move(ahead.front());
    ahead.erase(ahead.begin());
  } else if (!pull(item)) {
    return false;
  }
  ++index;
  previous = std::move(current);
  current = std::move(item);
  return true;
}

const JinjaValue* Loop::peek() {
  if (ahead.empty()) {
    JinjaValue item;
    if (!pull(item)) return nullptr;
    ahead.push_back(std::move(item));
  }
  return &ahead.front();
}

std::int64_t Loop::total() {
  if (!size) {
    for (JinjaValue item; pull(item);) ahead.push_back(item);
    size = index + 1 + static_cast<std::int64_t>(ahead.size());
    // From the end, so that a long list is not moved for each item.
    pull = [rest = std::move(ahead), next = std::size_t{0}](JinjaValue& item) mutable {
      if (next == rest.size()) return false;
      item = rest[next++];
      return true;
    };
    ahead.clear();
  }
  return *size;
}

std::optional<JinjaValue> loop_attribute(const JinjaValue& value, std::string_view name) {
  auto& loop = value.as<Loop>();
  if (name == "index") return JinjaValue::integer(loop.index + 1);
  if (name == "index0") return JinjaValue::integer(loop.index);
  if (name == "first") return JinjaValue::boolean(loop.index == 0);
  if (name == "last") return JinjaValue::boolean(loop.peek() == nullptr);
  if (name == "length") return JinjaValue::integer(loop.total());
  if (name == "revindex") return JinjaValue::integer(loop.total() - loop.index);
  if (name == "revindex0") return JinjaValue::integer(loop.total() - loop.index - 1);
  if (name == "depth") return JinjaValue::integer(1);
  if (name == "depth0") return JinjaValue::integer(0);
  if (name == "previtem") {
    return loop.index == 0 ? JinjaValue::undefined("there is no previous item") : loop.previous;
  }
  if (name == "nextitem") {
    const JinjaValue* next = loop.peek();
    return next == nullptr ? JinjaValue::undefined("there is no next item") : *next;
  }
  if (name == "cycle") {
    const std::int64_t index = loop.index;
    return make_function("cycle", 0, [index](Arguments& arguments) {
      if (arguments.positional.empty()) throw TemplateFailure("cycle() got no items");
      return arguments.positional[static_cast<std::size_t>(index) % arguments.positional.size()];
    });
  }
  if (name == "changed")
    throw TemplateFailure("loop.changed is not supported; compare with loop.previtem");
  return std::nullopt;
}

}  // namespace piton::jinja
