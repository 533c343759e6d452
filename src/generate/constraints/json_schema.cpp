#include "generate/constraints/json_schema.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>

#include "base/error.h"
#include "generate/constraints/json_numbers.h"
#include "generate/constraints/json_syntax.h"
#include "generate/constraints/merged_schema.h"
#include "generate/constraints/regular_expression.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using Part = GrammarBuilder::Part;

constexpr std::int64_t kMostCount = 100'000;  // minItems, maxLength, ...

constexpr auto kAnnotations = std::to_array<std::string_view>(
    {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default",
     "example", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"});
constexpr std::size_t kMostMerged = 1000;  // schemas of allOf, which may contain themselves
constexpr auto kObjectWords =
    std::to_array<std::string_view>({"properties", "required", "additionalProperties"});
constexpr auto kArrayWords =
    std::to_array<std::string_view>({"items", "prefixItems", "minItems", "maxItems"});
constexpr auto kStringWords =
    std::to_array<std::string_view>({"minLength", "maxLength", "pattern", "format"});
constexpr auto kNumberWords =
    std::to_array<std::string_view>({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
constexpr auto kTypes = std::to_array<std::string_view>(
    {"object", "array", "string", "integer", "number", "boolean", "null"});

// Formats are expressions over whole texts. Days are 1 to 28, which every month has, and seconds
// at most 59.
constexpr std::string_view kDate = "[0-9]{3}[1-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::string format_expression(std::string_view name) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return fmt::format("{}T{}", kDate, kTime);
  if (name == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (name == "ipv4") return fmt::format("{0}\\.{0}\\.{0}\\.{0}", kByte);
  if (name == "email")
    return "[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?@([a-z0-9]{1,20}\\.){1,3}[a-z]{2,10}";
  return "";
}

template <typename List>
bool is_in(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

class SchemaReader {
 public:
  SchemaReader(const Json& root, std::string_view where) : root_(root), where_(where) {}

  ByteGrammar read() {
    const Part whole = schema(root_, "");
    return grammar_.finish(whole, where_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(const std::string& path, fmt::format_string<Args...> text,
                         Args&&... args) const {
    throw Error(Fault::kUsage, "{}: {}: {}", where_, path.empty() ? "/" : path,
                fmt::format(text, std::forward<Args>(args)...));
  }

  // A use of a schema. Each is one rule, so that repeated uses cost little, and a schema may
  // contain itself.
  Part schema(const Json& schema, const std::string& path) {
    const auto [found, is_new] = rules_.try_emplace(&schema, 0);
    if (is_new) {
      const GrammarBuilder::Rule rule = grammar_.new_rule();
      found->second = rule;
      grammar_.define(rule, texts_of(schema, path));
      return grammar_.call(rule);
    }
    return grammar_.call(found->second);
  }

  Part texts_of(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) return schema.get<bool>() ? json_.any_value() : grammar_.choice({});
    if (!schema.is_object()) fail(path, "got {}, wanted an object", schema.type_name());
    check_words(schema, path);
    if (schema.contains("allOf")) return all_of(schema, path + "/allOf");
    for (const char* word : {"$ref", "anyOf", "oneOf"}) {
      if (!schema.contains(word)) continue;
      for (const auto& [other, value] : schema.items()) {
        if (other != word && !is_in(kAnnotations, other))
          fail(path, "\"{}\" is not supported together with \"{}\"", other, word);
      }
    }
    if (schema.contains("$ref")) return reference(schema["$ref"], path + "/$ref");
    if (schema.contains("anyOf")) return any_of(schema["anyOf"], path + "/anyOf");
    if (schema.contains("oneOf")) return any_of(schema["oneOf"], path + "/oneOf");
    const std::vector<std::string> types = types_of(schema, path);
    if (schema.contains("enum") || schema.contains("const")) return values(schema, types, path);
    std::vector<Part> parts;
    for (const std::string& type : types) parts.push_back(of_type(type, schema, path));
    return grammar_.choice(std::move(parts));
  }

  void check_words(const Json& schema, const std::string& path) const {
    for (const auto& [word, value] : schema.items()) {
      const bool known = is_in(kAnnotations, word) || is_in(kObjectWords, word) ||
                         is_in(kArrayWords, word) || is_in(kStringWords, word) ||
                         is_in(kNumberWords, word) || word == "type" || word == "enum" ||
                         word == "const" || word == "anyOf" || word == "oneOf" || word == "allOf" ||
                         word == "$ref";
      if (!known) fail(path, "keyword \"{}\" is not supported", word);
    }
  }

  std::vector<std::string> types_of(const Json& schema, const std::string& path) const {
    std::vector<std::string> types;
    const auto add = [&](const Json& name) {
      if (!name.is_string() || !is_in(kTypes, name.get<std::string>()))
        fail(path + "/type", "got {}, wanted one of {}", name.dump(), fmt::join(kTypes, ", "));
      types.push_back(name.get<std::string>());
    };
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      if (type.is_array()) {
        for (const Json& one : type) add(one);
        if (types.empty()) fail(path + "/type", "the list is empty; nothing satisfies it");
      } else {
        add(type);
      }
      return types;
    }
    const auto has_one_of = [&](const auto& words) {
      return std::any_of(words.begin(), words.end(),
                         [&](std::string_view word) { return schema.contains(word); });
    };
    if (has_one_of(kObjectWords)) types.emplace_back("object");
    if (has_one_of(kArrayWords)) types.emplace_back("array");
    if (has_one_of(kStringWords)) types.emplace_back("string");
    if (has_one_of(kNumberWords)) types.emplace_back("number");
    if (types.empty()) {
      for (const std::string_view type : kTypes) {
        if (type != "integer") types.emplace_back(type);
      }
    }
    return types;
  }

  Part of_type(const std::string& type, const Json& schema, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "integer") return json_integer(grammar_, limits(schema, path));
    if (type == "number")
      return json_number(grammar_, limits(schema, path), fmt::format("{}: {}", where_, path));
    if (type == "null") return grammar_.literal("null");
    return grammar_.choice({grammar_.literal("true"), grammar_.literal("false")});
  }

  Part reference(const Json& target, const std::string& path) {
    if (!target.is_string() || !target.get<std::string>().starts_with("#"))
      fail(path, "got {}, wanted a reference within the schema (#/$defs/NAME)", target.dump());
    const std::string pointer = target.get<std::string>().substr(1);
    try {
      return schema(root_.at(Json::json_pointer(pointer)), pointer);
    } catch (const Json::exception&) {
      fail(path, "{} is not in the schema", target.dump());
    }
  }

  Part any_of(const Json& list, const std::string& path) {
    if (!list.is_array() || list.empty()) fail(path, "wanted a list of at least one schema");
    std::vector<Part> parts;
    for (std::size_t i = 0; i < list.size(); ++i) {
      parts.push_back(schema(list[i], fmt::format("{}/{}", path, i)));
    }
    return grammar_.choice(std::move(parts));
  }

  Part all_of(const Json& schema, const std::string& path) {
    const Json& all = schema["allOf"];
    const bool has_others = std::any_of(
        schema.items().begin(), schema.items().end(),
        [](auto& one) { return one.key() != "allOf" && !is_in(kAnnotations, one.key()); });
    if (all.is_array() && all.size() == 1 && !has_others) return this->schema(all[0], path + "/0");
    MergedSchema merged;
    try {
      merged = merged_schema(schema, root_,
                             [](const std::string& word) { return is_in(kAnnotations, word); });
    } catch (const Json::exception&) {
      fail(path, "has a reference to nothing");
    }
    if (merged_.size() == kMostMerged) merged.problem = "lists are nested without end";
    if (!merged.problem.empty()) fail(path, "{}", merged.problem);
    merged_.push_back(std::move(merged.schema));
    return this->schema(merged_.back(), path);
  }

  static bool has_type(const Json& value, std::string_view type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return value.is_null();
  }

  Part values(const Json& schema, const std::vector<std::string>& types, const std::string& path) {
    std::vector<Json> all;
    if (schema.contains("enum")) {
      if (!schema["enum"].is_array()) fail(path + "/enum", "wanted a list of values");
      all.assign(schema["enum"].begin(), schema["enum"].end());
    } else {
      all.push_back(schema["const"]);
    }
    for (const auto& [word, value] : schema.items()) {
      if (word != "enum" && word != "const" && word != "type" && !is_in(kAnnotations, word))
        fail(path, "\"{}\" is not supported together with values", word);
    }
    std::vector<Part> parts;
    for (const Json& value : all) {
      if (schema.contains("const") && value != schema["const"]) continue;
      const auto fits = [&](const std::string& type) { return has_type(value, type); };
      if (schema.contains("type") && std::none_of(types.begin(), types.end(), fits)) continue;
      parts.push_back(grammar_.literal(value.dump()));
    }
    if (parts.empty()) fail(path, "none of the values is allowed; nothing satisfies it");
    return grammar_.choice(std::move(parts));
  }

  Part object(const Json& schema, const std::string& path) {
    const Json none = Json::object();
    const Json& properties = schema.contains("properties") ? schema["properties"] : none;
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object()) fail(path + "/properties", "wanted an object of schemas");
    const auto is_string = [](const Json& one) { return one.is_string(); };
    if (!required.is_array() || !std::all_of(required.begin(), required.end(), is_string))
      fail(path + "/required", "wanted a list of names");
    struct Member {
      Part part;
      bool required;
    };
    std::vector<Member> members;
    const auto add = [&](const std::string& name, Part value, bool is_required) {
      members.push_back({json_.member(grammar_.literal(Json(name).dump()), value), is_required});
    };
    for (const auto& [name, property] : properties.items()) {
      const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
      add(name, this->schema(property, path + "/properties/" + name), is_required);
    }
    const auto other = [&]() -> Part {
      if (!schema.contains("additionalProperties")) return json_.any_value();
      return this->schema(schema["additionalProperties"], path + "/additionalProperties");
    };
    for (std::size_t i = 0; i < required.size(); ++i) {
      const bool again =
          std::find(required.begin(), required.begin() + static_cast<std::ptrdiff_t>(i),
                    required[i]) != required.begin() + static_cast<std::ptrdiff_t>(i);
      if (!again && !properties.contains(required[i].get<std::string>()))
        add(required[i].get<std::string>(), other(), true);
    }
    if (members.empty()) {
      const bool closed =
          schema.contains("additionalProperties") && schema["additionalProperties"] == Json(false);
      if (closed) return json_.enclosed('{', grammar_.sequence({}), '}');
      const Part one = json_.member(json_.string(0, std::nullopt), other());
      const Part more = grammar_.repeat(grammar_.sequence({json_.comma(), one}), 0, std::nullopt);
      return json_.enclosed('{', grammar_.optional(grammar_.sequence({one, more, json_.space()})),
                            '}');
    }
    // From the last member: what may follow where something was written before, and where nothing.
    Part after = json_.space();
    Part begin = grammar_.sequence({});
    for (std::size_t i = members.size(); i-- > 0;) {
      const GrammarBuilder::Rule rest = grammar_.new_rule();
      grammar_.define(rest, after);
      const Part with = grammar_.sequence({members[i].part, grammar_.call(rest)});
      const Part with_comma =
          grammar_.sequence({json_.comma(), members[i].part, grammar_.call(rest)});
      after = members[i].required ? with_comma : grammar_.choice({with_comma, grammar_.call(rest)});
      begin = members[i].required ? with : grammar_.choice({with, begin});
    }
    return json_.enclosed('{', begin, '}');
  }

  Part array(const Json& schema, const std::string& path) {
    const std::int64_t least = count(schema, "minItems", path).value_or(0);
    const std::optional<std::int64_t> most = count(schema, "maxItems", path);
    if (most && *most < least)
      fail(path, "minItems {} is above maxItems {}; nothing satisfies it", least, *most);
    std::vector<Part> given;
    if (schema.contains("prefixItems")) {
      const Json& list = schema["prefixItems"];
      if (!list.is_array()) fail(path + "/prefixItems", "wanted a list of schemas");
      for (std::size_t i = 0; i < list.size(); ++i) {
        given.push_back(this->schema(list[i], fmt::format("{}/prefixItems/{}", path, i)));
      }
    }
    const Part item = schema.contains("items") ? this->schema(schema["items"], path + "/items")
                                               : json_.any_value();
    const auto count_given = std::ssize(given);
    const auto left = [&](std::int64_t from) {
      return most ? std::optional(std::max<std::int64_t>(*most - from, 0)) : std::nullopt;
    };
    const auto may_end_after = [&](std::int64_t count) { return count >= least; };
    // What follows i elements, at least one.
    const std::int64_t repeated_from = std::max<std::int64_t>(count_given, 1);
    Part after = grammar_.sequence(
        {grammar_.repeat(grammar_.sequence({json_.comma(), item}),
                         std::max<std::int64_t>(least - repeated_from, 0), left(repeated_from)),
         json_.space()});
    for (std::int64_t i = count_given; i-- > 1;) {
      const GrammarBuilder::Rule rest = grammar_.new_rule();
      grammar_.define(rest, after);
      const Part more = grammar_.sequence({json_.comma(), given[i], grammar_.call(rest)});
      std::vector<Part> parts;
      if (!most || *most > i) parts.push_back(more);
      if (may_end_after(i)) parts.push_back(json_.space());
      after = grammar_.choice(std::move(parts));
    }
    std::vector<Part> parts;
    if (may_end_after(0)) parts.push_back(grammar_.sequence({}));
    if (!most || *most > 0)
      parts.push_back(grammar_.sequence({given.empty() ? item : given.front(), after}));
    return json_.enclosed('[', grammar_.choice(std::move(parts)), ']');
  }

  Part string(const Json& schema, const std::string& path) {
    const std::int64_t least = count(schema, "minLength", path).value_or(0);
    const std::optional<std::int64_t> most = count(schema, "maxLength", path);
    const bool limited = schema.contains("minLength") || schema.contains("maxLength");
    std::string expression;
    const char* word = schema.contains("pattern") ? "pattern" : "format";
    if (schema.contains(word)) {
      if (limited || (schema.contains("pattern") && schema.contains("format")))
        fail(path, "\"{}\" is not supported together with another limit of the string", word);
      if (!schema[word].is_string()) fail(path + "/" + word, "wanted a string");
      expression = schema[word].get<std::string>();
    }
    if (schema.contains("pattern")) {
      return json_.quoted(regular_expression(grammar_, expression,
                                             {.anywhere = true, .form = TextForm::kJsonString},
                                             fmt::format("{}: {}/pattern", where_, path)));
    }
    if (schema.contains("format")) {
      const std::string known = format_expression(expression);
      if (known.empty()) {
        fail(path,
             "format \"{}\" is not supported; wanted date, time, date-time, uuid, ipv4 or email",
             expression);
      }
      return json_.quoted(
          regular_expression(grammar_, known, {.form = TextForm::kJsonString}, path));
    }
    if (most && *most < least)
      fail(path, "minLength {} is above maxLength {}; nothing satisfies it", least, *most);
    return json_.string(least, most);
  }

  std::optional<std::int64_t> count(const Json& schema, const char* word,
                                    const std::string& path) const {
    if (!schema.contains(word)) return std::nullopt;
    const Json& value = schema[word];
    const bool fits = value.is_number_integer() && value >= 0 && value <= kMostCount;
    if (!fits)
      fail(path + "/" + word, "got {}, wanted a whole number from 0 to {}", value.dump(),
           kMostCount);
    return value.get<std::int64_t>();
  }

  NumberLimits limits(const Json& schema, const std::string& path) const {
    NumberLimits limits;
    const auto number = [&](const char* word) -> std::optional<double> {
      if (!schema.contains(word)) return std::nullopt;
      if (!schema[word].is_number())
        fail(path + "/" + word, "got {}, wanted a number", schema[word].dump());
      return schema[word].get<double>();
    };
    if (const auto value = number("minimum")) limits.least = {*value, false};
    if (const auto value = number("maximum")) limits.most = {*value, false};
    const auto above = number("exclusiveMinimum");
    if (above && (!limits.least || *above >= limits.least->value)) limits.least = {*above, true};
    const auto below = number("exclusiveMaximum");
    if (below && (!limits.most || *below <= limits.most->value)) limits.most = {*below, true};
    if (limits.least && limits.most && limits.least->value > limits.most->value)
      fail(path, "the least number is {} and the largest {}; nothing satisfies it",
           limits.least->value, limits.most->value);
    return limits;
  }

  const Json& root_;
  std::string_view where_;
  GrammarBuilder grammar_;
  JsonSyntax json_{grammar_};
  std::map<const Json*, GrammarBuilder::Rule> rules_;
  std::deque<Json> merged_;  // schemas that all_of() made
};

}  // namespace

ByteGrammar json_schema_grammar(const Json& schema, std::string_view where) {
  return SchemaReader(schema, where).read();
}

ByteGrammar json_object_grammar() {
  GrammarBuilder grammar;
  JsonSyntax json(grammar);
  return grammar.finish(json.any_object(), "json_object");
}

}  // namespace piton
