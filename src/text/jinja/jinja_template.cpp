#include "text/jinja/jinja_template.h"

#include <limits>

#include "base/error.h"
#include "base/printable.h"
#include "text/jinja/parser.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {

JinjaTemplate::JinjaTemplate(std::string source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {
  if (valid_utf8_prefix(source_) != source_.size()) {
    throw Error(Fault::kData, "{}: the template is not UTF-8 from byte {} on; save it as UTF-8",
                name_, valid_utf8_prefix(source_));
  }
  try {
    syntax_ = parse(source_);
  } catch (const SyntaxFailure& failure) {
    throw Error(Fault::kData, "{}: line {}: {}", name_, failure.line, printable(failure.message));
  } catch (const TemplateFailure& failure) {
    throw Error(Fault::kData, "{}: {}", name_, printable(failure.what()));
  }
}

Rendering JinjaTemplate::render(const Surroundings& surroundings) const {
  Evaluator evaluator(syntax_, surroundings);
  try {
    return evaluator.run();
  } catch (const TemplateFailure& failure) {
    throw Error(Fault::kData, "{}: line {}: {}", name_, evaluator.line(),
                printable(failure.what()));
  }
}

namespace {

std::string checked_text(const std::string& text, const std::string& where) {
  if (valid_utf8_prefix(text) != text.size()) {
    throw Error(Fault::kData, "{}: got text that is not UTF-8, wanted UTF-8", where);
  }
  return text;
}

JinjaValue nested_value(const nlohmann::ordered_json& json, const std::string& where, int levels) {
  if (levels > kMostNested) {
    throw Error(Fault::kData, "{}: got more than {} levels of lists and objects; flatten them",
                where, kMostNested);
  }
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return JinjaValue::boolean(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return JinjaValue::integer(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
        throw Error(Fault::kData, "{}: got the integer {}, wanted at most 64 bits; write a text",
                    where, json.get<std::uint64_t>());
      }
      return JinjaValue::integer(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return JinjaValue::real(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return JinjaValue::text(checked_text(json.get_ref<const std::string&>(), where));
    case nlohmann::ordered_json::value_t::array: {
      Values items;
      for (const auto& item : json) items.push_back(nested_value(item, where, levels + 1));
      return JinjaValue::list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<Entry> entries;
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(JinjaValue::text(checked_text(key, where)),
                             nested_value(item, where, levels + 1));
      }
      return JinjaValue::dict(std::move(entries));
    }
    default:
      return JinjaValue();
  }
}

}  // namespace

JinjaValue value_of(const nlohmann::ordered_json& json, const std::string& where) {
  return nested_value(json, where, 1);
}

}  // namespace piton::jinja
