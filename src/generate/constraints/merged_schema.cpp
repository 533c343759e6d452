#include "generate/constraints/merged_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostNested = 64;  // references and lists within each other

class SchemaMerger {
 public:
  SchemaMerger(const Json& root, bool (*is_annotation)(const std::string&))
      : root_(root), is_annotation_(is_annotation) {}

  MergedSchema merge(const Json& schema) {
    collect(schema, 0);
    if (!problem_.empty()) return {{}, problem_};
    if (members_.empty()) return {Json::object(), ""};
    if (members_.size() == 1) return {members_.front(), ""};
    Json merged = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (const Json& member : members_) {
      if (!problem_.empty()) break;
      add(member, merged);
    }
    return {std::move(merged), problem_};
  }

 private:
  // The members that say something: of `schema`, of its reference, and of its allOf.
  void collect(const Json& schema, int depth) {
    if (depth > kMostNested) {
      problem_ = "schemas refer to each other without end";
      return;
    }
    if (!schema.is_object()) {
      if (schema != Json(true)) members_.push_back(schema);
      return;
    }
    Json own = Json::object();
    for (const auto& [word, value] : schema.items()) {
      if (word == "allOf") {
        if (!value.is_array() || value.empty()) problem_ = "wanted a list of at least one schema";
        if (!problem_.empty()) return;
        for (const Json& one : value) collect(one, depth + 1);
      } else if (word == "$ref" && value.is_string() && value.get<std::string>().starts_with("#")) {
        collect(root_.at(Json::json_pointer(value.get<std::string>().substr(1))), depth + 1);
      } else if (!is_annotation_(word)) {
        own[word] = value;
      }
    }
    if (!own.empty() && std::ranges::find(members_, own) == members_.end())
      members_.push_back(std::move(own));
  }

  void add(const Json& member, Json& merged) {
    if (!member.is_object() || !member.contains("properties") || !member["properties"].is_object())
      problem_ = "several members are supported where each has \"properties\"";
    for (const auto& [word, value] : member.items()) {
      const bool is_type = word == "type" && value == "object";
      const bool is_open = word == "additionalProperties" && value == Json(true);
      const bool known = is_type || is_open || word == "properties" || word == "required";
      if (!known)
        problem_ =
            fmt::format("several members are supported without \"{}\": {}", word, value.dump());
    }
    if (!problem_.empty()) return;
    for (const auto& [name, property] : member["properties"].items()) {
      Json& place = merged["properties"][name];
      if (place.is_null())
        place = property;
      else if (place != property)
        place = {{"allOf", {place, property}}};
    }
    for (const Json& name : member.value("required", Json::array())) {
      Json& required = merged["required"];
      if (std::ranges::find(required, name) == required.end()) required.push_back(name);
    }
  }

  const Json& root_;
  bool (*is_annotation_)(const std::string&);
  std::vector<Json> members_;
  std::string problem_;
};

}  // namespace

MergedSchema merged_schema(const Json& schema, const Json& root,
                           bool (*is_annotation)(const std::string& word)) {
  return SchemaMerger(root, is_annotation).merge(schema);
}

}  // namespace piton
