// Methods of texts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/values/methods.h"
#include "text/jinja/values/printf.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

struct TextCall {
  Runtime& runtime;
  std::string_view name;
  const std::string& self;
  Arguments& arguments;

  JinjaValue make(std::string_view text) const {
    runtime.budget().use_bytes(text.size());
    return JinjaValue::text(std::string(text));
  }
  JinjaValue make_list(const std::vector<std::string_view>& parts) const {
    runtime.budget().use_bytes(self.size() + parts.size() * 2 * sizeof(JinjaValue));
    Values items;
    for (const std::string_view part : parts) items.push_back(JinjaValue::text(std::string(part)));
    return JinjaValue::list(std::move(items));
  }
};

JinjaValue strip_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"chars"});
  const Side side = call.name == "lstrip"   ? Side::kLeft
                    : call.name == "rstrip" ? Side::kRight
                                            : Side::kBoth;
  if (parameters.get(0).is_none()) return call.make(strip(call.self, side));
  return call.make(strip(call.self, side, parameters.need_text(0)));
}

JinjaValue split_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"sep", "maxsplit"});
  const bool from_right = call.name == "rsplit";
  const std::int64_t most = parameters.integer_or(1, -1);
  if (parameters.get(0).is_none()) return call.make_list(split_words(call.self, most, from_right));
  if (parameters.need_text(0).empty()) throw TemplateFailure("split(): empty separator");
  return call.make_list(split(call.self, parameters.need_text(0), most, from_right));
}

// [start, stop) of optional arguments, in bytes.
std::string_view part_of(std::string_view text, const Parameters& parameters, std::size_t& begin) {
  const std::int64_t size = character_count(text);
  const auto bound = [&](std::size_t index, std::int64_t fallback) {
    if (parameters.get(index).is_none()) return fallback;
    const std::int64_t at = parameters.need_integer(index);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  begin = byte_of(text, bound(1, 0));
  const std::size_t end = byte_of(text, bound(2, size));
  return text.substr(begin, end < begin ? 0 : end - begin);
}

JinjaValue affix_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"prefix", "start", "end"});
  std::size_t begin = 0;
  const std::string_view text = part_of(call.self, parameters, begin);
  const auto matches = [&](const JinjaValue& affix) {
    if (!affix.is_text()) {
      throw TemplateFailure(affix.is_undefined()
                                ? affix.str()
                                : fmt::format("{}() got a {}, wanted a text or a tuple of texts",
                                              call.name, type_name(affix)));
    }
    return call.name == "startswith" ? text.starts_with(affix.str()) : text.ends_with(affix.str());
  };
  const JinjaValue& affix = parameters.need(0);
  if (!affix.is(Kind::kTuple)) return JinjaValue::boolean(matches(affix));
  return JinjaValue::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

JinjaValue find_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"sub", "start", "end"});
  std::size_t begin = 0;
  const std::string_view text = part_of(call.self, parameters, begin);
  const std::string& wanted = parameters.need_text(0);
  if (call.name == "count") {
    if (wanted.empty()) return JinjaValue::integer(character_count(text) + 1);
    return JinjaValue::integer(static_cast<std::int64_t>(split(text, wanted, -1, false).size()) -
                               1);
  }
  const bool last = call.name.starts_with('r');
  const std::size_t at = last ? text.rfind(wanted) : text.find(wanted);
  if (at != text.npos) {
    return JinjaValue::integer(character_count(std::string_view(call.self).substr(0, begin + at)));
  }
  if (call.name.ends_with("index"))
    throw TemplateFailure(fmt::format("{}(): not found", call.name));
  return JinjaValue::integer(-1);
}

JinjaValue replace_method(const TextCall& call) {
  const Parameters parameters("replace", call.arguments, {"old", "new", "count"});
  const std::string& from = parameters.need_text(0);
  const std::string& to = parameters.need_text(1);
  const std::size_t most = call.self.size() / std::max<std::size_t>(from.size(), 1) + 1;
  call.runtime.budget().use_bytes(std::min<std::size_t>(most * to.size(), std::size_t{1} << 29));
  return call.make(replace(call.self, from, to, parameters.integer_or(2, -1)));
}

JinjaValue join_method(const TextCall& call) {
  const Parameters parameters("join", call.arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const JinjaValue& item : iterate(parameters.need(0), call.runtime.budget())) {
    if (!item.is_text()) {
      throw TemplateFailure(fmt::format("join(): got a {}, wanted texts", type_name(item)));
    }
    call.runtime.budget().use_bytes(item.str().size() + call.self.size());
    if (!first) out += call.self;
    first = false;
    out += item.str();
  }
  return JinjaValue::text(std::move(out));
}

JinjaValue pad_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"width", "fillchar"});
  const std::string fill = parameters.has(1) ? parameters.need_text(1) : " ";
  if (character_count(fill) != 1) throw TemplateFailure("the fill character must be one character");
  const std::int64_t width = parameters.need_integer(0);
  const std::int64_t size = character_count(call.self);
  if (width <= size) return call.make(call.self);
  const std::int64_t missing = width - size;
  call.runtime.budget().use_bytes(static_cast<std::size_t>(missing) * fill.size());
  // As Python: the larger half is on the left if the width is odd.
  const std::int64_t left = call.name == "ljust"   ? 0
                            : call.name == "rjust" ? missing
                                                   : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += call.self;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return JinjaValue::text(std::move(out));
}

JinjaValue zfill_method(const TextCall& call) {
  const Parameters parameters("zfill", call.arguments, {"width"});
  const std::int64_t missing = parameters.need_integer(0) - character_count(call.self);
  if (missing <= 0) return call.make(call.self);
  call.runtime.budget().use_bytes(static_cast<std::size_t>(missing));
  const bool sign = call.self.starts_with('-') || call.self.starts_with('+');
  std::string out = call.self;
  out.insert(sign ? 1 : 0, static_cast<std::size_t>(missing), '0');
  return call.make(out);
}

JinjaValue partition_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"sep"});
  const std::string& separator = parameters.need_text(0);
  if (separator.empty()) throw TemplateFailure("partition(): empty separator");
  const bool last = call.name == "rpartition";
  const std::string_view text = call.self;
  const std::size_t at = last ? text.rfind(separator) : text.find(separator);
  if (at == text.npos) {
    return last ? JinjaValue::tuple({call.make(""), call.make(""), call.make(text)})
                : JinjaValue::tuple({call.make(text), call.make(""), call.make("")});
  }
  return JinjaValue::tuple({call.make(text.substr(0, at)), call.make(separator),
                            call.make(text.substr(at + separator.size()))});
}

JinjaValue remove_affix_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {"affix"});
  const std::string& affix = parameters.need_text(0);
  std::string_view text = call.self;
  if (call.name == "removeprefix") {
    if (text.starts_with(affix)) text.remove_prefix(affix.size());
  } else if (text.ends_with(affix)) {
    text.remove_suffix(affix.size());
  }
  return call.make(text);
}

JinjaValue case_method(const TextCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {});
  if (call.name == "upper") return call.make(upper(call.self));
  if (call.name == "lower") return call.make(lower(call.self));
  if (call.name == "title") return call.make(title(call.self));
  if (call.name == "capitalize") return call.make(capitalize(call.self));
  return call.make(swap_case(call.self));
}

JinjaValue lines_method(const TextCall& call) {
  const Parameters parameters("splitlines", call.arguments, {"keepends"});
  return call.make_list(split_lines(call.self, parameters.truth_or(0, false)));
}

JinjaValue format_method(const TextCall& call) {
  return call.make(formatted_fields(call.self, call.arguments, call.runtime.budget()));
}

using Method = JinjaValue (*)(const TextCall&);

constexpr auto kMethods = std::to_array<std::pair<std::string_view, Method>>({
    {"strip", strip_method},
    {"lstrip", strip_method},
    {"rstrip", strip_method},
    {"split", split_method},
    {"rsplit", split_method},
    {"startswith", affix_method},
    {"endswith", affix_method},
    {"find", find_method},
    {"rfind", find_method},
    {"index", find_method},
    {"rindex", find_method},
    {"count", find_method},
    {"replace", replace_method},
    {"join", join_method},
    {"upper", case_method},
    {"lower", case_method},
    {"title", case_method},
    {"capitalize", case_method},
    {"swapcase", case_method},
    {"splitlines", lines_method},
    {"format", format_method},
    {"center", pad_method},
    {"ljust", pad_method},
    {"rjust", pad_method},
    {"zfill", zfill_method},
    {"partition", partition_method},
    {"rpartition", partition_method},
    {"removeprefix", remove_affix_method},
    {"removesuffix", remove_affix_method},
});

constexpr auto kUnsupportedMethods = std::to_array<std::string_view>(
    {"casefold", "encode", "expandtabs", "format_map", "isidentifier", "maketrans", "translate"});

}  // namespace

std::optional<JinjaValue> text_method(Runtime& runtime, const JinjaValue& value,
                                      std::string_view name) {
  const auto* const found = std::find_if(kMethods.begin(), kMethods.end(),
                                         [&](const auto& method) { return method.first == name; });
  if (found != kMethods.end()) {
    return make_function(
        std::string(name), 0,
        [&runtime, value, name = found->first, method = found->second](Arguments& arguments) {
          return method({runtime, name, value.str(), arguments});
        });
  }
  if (is_class(name, "")) {
    return make_function(std::string(name), 0, [value, name = std::string(name)](Arguments& a) {
      const Parameters parameters(name, a, {});
      return JinjaValue::boolean(*is_class(name, value.str()));
    });
  }
  if (std::find(kUnsupportedMethods.begin(), kUnsupportedMethods.end(), name) !=
      kUnsupportedMethods.end()) {
    throw TemplateFailure(fmt::format("the method '{}' of texts is not supported", name));
  }
  return std::nullopt;
}

}  // namespace piton::jinja
