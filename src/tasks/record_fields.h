// Fields of records that published files have in several layouts (prepare_records.h).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

// Throws Error(kData): `where`, the fields that the record has, and the `wanted` ones.
[[noreturn]] void refuse_columns(const nlohmann::json& record, const std::string& where,
                                 std::string_view wanted);

bool has_all(const nlohmann::json& record, std::initializer_list<std::string_view> names);

// A text, another value as JSON, or "" of none.
std::string text_field(const nlohmann::json& record, std::string_view name);

// A list of texts. Throws Error(kData) beginning with `where` if it has others.
std::vector<std::string> texts_of(const nlohmann::json& list, const std::string& where);

}  // namespace piton
