// allOf of JSON Schema: several schemas as one that accepts what all of them accept.
//
// Members are schemas of objects: their properties, those of the same name merged likewise, and
// their required names together. Annotations mean nothing, and a member of annotations alone
// accepts everything. References are followed.
#pragma once

#include <string>

#include "base/json.h"

namespace piton {

struct MergedSchema {
  nlohmann::ordered_json schema;
  std::string problem;  // not empty: why they cannot be merged
};

// `schema` has allOf, and may have other keywords, which are another member. `is_annotation`: of
// keywords. Throws nlohmann::ordered_json::exception for a reference to nothing.
MergedSchema merged_schema(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root,
                           bool (*is_annotation)(const std::string& word));

}  // namespace piton
