// Filters whose value is used as a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/html.h"
#include "text/jinja/filters.h"
#include "text/jinja/values/printf.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

std::string text_of(const FilterCall& call) { return to_text(call.value, call.budget()); }

JinjaValue trim(const FilterCall& call) {
  const Parameters parameters("trim", call.arguments, {"chars"});
  const std::string text = text_of(call);
  if (parameters.get(0).is_none()) return call.make_text(std::string(strip(text, Side::kBoth)));
  return call.make_text(std::string(strip(text, Side::kBoth, parameters.need_text(0))));
}

// "hello-world (now)" -> "Hello-World (Now)".
std::string titled_words(std::string_view text) {
  std::string out;
  bool begins = true;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool separates = is_space(c.value) ||
                           std::u32string_view(U"-({[<").find(c.value) != std::u32string_view::npos;
    if (separates) {
      out += text.substr(at, c.length);
      at += c.length;
      begins = true;
      continue;
    }
    if (begins) {
      out += upper(text.substr(at, c.length));
      at += c.length;
      begins = false;
      continue;
    }
    std::size_t end = at;
    while (end < text.size()) {
      const Utf8Char next = decode_utf8(text, end);
      if (is_space(next.value) ||
          std::u32string_view(U"-({[<").find(next.value) != std::u32string_view::npos) {
        break;
      }
      end += next.length;
    }
    out += lower(text.substr(at, end - at));
    at = end;
  }
  return out;
}

JinjaValue change_case(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {});
  const std::string text = text_of(call);
  if (call.name == "upper") return call.make_text(upper(text));
  if (call.name == "lower") return call.make_text(lower(text));
  if (call.name == "capitalize") return call.make_text(capitalize(text));
  return call.make_text(titled_words(text));
}

JinjaValue as_text(const FilterCall& call) {
  const Parameters parameters("string", call.arguments, {});
  return call.value.is_text() ? call.value : call.make_text(text_of(call));
}

JinjaValue replace_filter(const FilterCall& call) {
  const Parameters parameters("replace", call.arguments, {"old", "new", "count"});
  const std::string text = text_of(call);
  const std::string from = to_text(parameters.need(0), call.budget());
  const std::string to = to_text(parameters.need(1), call.budget());
  const std::int64_t most = parameters.get(2).is_none() ? -1 : parameters.need_integer(2);
  const std::size_t places = text.size() / std::max<std::size_t>(from.size(), 1) + 1;
  call.budget().use_bytes(std::min<std::size_t>(places * to.size(), std::size_t{1} << 29));
  return call.make_text(replace(text, from, to, most));
}

JinjaValue indent(const FilterCall& call) {
  const Parameters parameters("indent", call.arguments, {"width", "first", "blank"});
  if (!call.value.is_text()) {
    throw TemplateFailure(call.value.is_undefined() ? call.value.str()
                                                    : fmt::format("indent: got a {}, wanted a text",
                                                                  type_name(call.value)));
  }
  std::string blanks;
  if (parameters.get(0).is_text()) {
    blanks = parameters.get(0).str();
  } else {
    const std::int64_t width = parameters.integer_or(0, 4);
    call.budget().use_bytes(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)));
    blanks.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const std::string text = call.value.str() + "\n";
  const bool blank_lines = parameters.truth_or(2, false);
  std::string out = parameters.truth_or(1, false) ? blanks : "";
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    call.budget().use_bytes(line.size() + blanks.size());
    if (!first) {
      out.push_back('\n');
      if (blank_lines || !line.empty()) out += blanks;
    }
    first = false;
    out += line;
  }
  return call.make_text(std::move(out));
}

JinjaValue mark_safe(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {});
  return call.value.is_markup() ? call.value : JinjaValue::markup(text_of(call));
}

JinjaValue escape(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {});
  if (call.value.is_markup() && call.name != "forceescape") return call.value;
  std::string text = html_escaped(text_of(call));
  call.budget().use_bytes(text.size());
  return JinjaValue::markup(std::move(text));
}

JinjaValue center(const FilterCall& call) {
  const Parameters parameters("center", call.arguments, {"width"});
  const std::int64_t width = parameters.integer_or(0, 80);
  const std::string text = text_of(call);
  const std::int64_t missing = width - character_count(text);
  if (missing <= 0) return call.make_text(text);
  call.budget().use_bytes(static_cast<std::size_t>(missing));
  const std::int64_t left = missing / 2 + (missing & width & 1);
  return call.make_text(std::string(static_cast<std::size_t>(left), ' ') + text +
                        std::string(static_cast<std::size_t>(missing - left), ' '));
}

JinjaValue format(const FilterCall& call) {
  if (!call.arguments.positional.empty() && !call.arguments.named.empty()) {
    throw TemplateFailure(
        "format: cannot handle positional and keyword arguments at the same time");
  }
  if (call.arguments.named.empty()) {
    return call.make_text(
        formatted(text_of(call), JinjaValue::tuple(call.arguments.positional), call.budget()));
  }
  std::vector<Entry> entries;
  for (const auto& [name, value] : call.arguments.named) {
    entries.emplace_back(JinjaValue::text(name), value);
  }
  return call.make_text(
      formatted(text_of(call), JinjaValue::dict(std::move(entries)), call.budget()));
}

JinjaValue truncate(const FilterCall& call) {
  const Parameters parameters("truncate", call.arguments, {"length", "killwords", "end", "leeway"});
  if (!call.value.is_text()) {
    throw TemplateFailure(fmt::format("truncate: got a {}, wanted a text", type_name(call.value)));
  }
  const std::int64_t size = parameters.integer_or(0, 255);
  const std::string end = parameters.has(2) ? parameters.need_text(2) : "...";
  const std::int64_t leeway = parameters.get(3).is_none() ? 5 : parameters.need_integer(3);
  const std::int64_t kept = size - character_count(end);
  if (kept < 0 || leeway < 0)
    throw TemplateFailure("truncate: the length or the leeway is too small");
  const std::string& text = call.value.str();
  if (character_count(text) <= size + leeway) return call.value;
  std::string_view part = std::string_view(text).substr(0, byte_of(text, kept));
  if (!parameters.truth_or(1, false)) part = part.substr(0, std::min(part.rfind(' '), part.size()));
  return call.make_text(std::string(part) + end);
}

JinjaValue word_count(const FilterCall& call) {
  const Parameters parameters("wordcount", call.arguments, {});
  const std::string text = text_of(call);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool word = is_word_character(c.value);
    if (word && !inside) ++words;
    inside = word;
    at += c.length;
  }
  return JinjaValue::integer(words);
}

JinjaValue tojson(const FilterCall& call) {
  const Parameters parameters("tojson", call.arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = parameters.truth_or(0, false);
  style.sort_keys = parameters.truth_or(3, false);
  const JinjaValue& indent = parameters.get(1);
  if (indent.is_text()) {
    style.indent = indent.str();
  } else if (!indent.is_none()) {
    const std::int64_t width = std::max<std::int64_t>(parameters.need_integer(1), 0);
    call.budget().use_bytes(static_cast<std::size_t>(width));
    style.indent = std::string(static_cast<std::size_t>(width), ' ');
  }
  if (style.indent) style.item_separator = ",";
  const JinjaValue& separators = parameters.get(2);
  if (!separators.is_none()) {
    if (!separators.is_sequence() || separators.items().size() != 2 ||
        !separators.items()[0].is_text() || !separators.items()[1].is_text()) {
      throw TemplateFailure("tojson: separators must be two texts");
    }
    style.item_separator = separators.items()[0].str();
    style.key_separator = separators.items()[1].str();
  }
  return JinjaValue::text(to_json(call.value, style, call.budget()));
}

constexpr auto kTextFilters = std::to_array<std::pair<std::string_view, Filter>>({
    {"trim", trim},
    {"upper", change_case},
    {"lower", change_case},
    {"title", change_case},
    {"capitalize", change_case},
    {"string", as_text},
    {"replace", replace_filter},
    {"indent", indent},
    {"safe", mark_safe},
    {"escape", escape},
    {"e", escape},
    {"forceescape", escape},
    {"center", center},
    {"format", format},
    {"truncate", truncate},
    {"wordcount", word_count},
    {"tojson", tojson},
});

}  // namespace

Filter text_filter(std::string_view name) {
  const auto* const found = std::find_if(kTextFilters.begin(), kTextFilters.end(),
                                         [&](const auto& one) { return one.first == name; });
  return found == kTextFilters.end() ? nullptr : found->second;
}

}  // namespace piton::jinja
