// Reading configurations: JSON values with errors that name the file and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace piton {

using Json = nlohmann::json;

// Throws Error(kData) with `where`, the position of the error and its reason.
Json parse_json(std::string_view text, const std::string& where);

// Returns a field of `object`, or null if it is absent. Throws Error(kData) if `object` is not an
// object.
const Json& field(const Json& object, const char* key, const std::string& where);

// Returns the value of a field, or `fallback` if it is absent or null. Throws Error(kData) with the
// field, its type and the wanted type.
std::string text_field(const Json& object, const char* key, const std::string& where,
                       const std::string& fallback = "");
bool bool_field(const Json& object, const char* key, const std::string& where, bool fallback);
std::int64_t integer_field(const Json& object, const char* key, const std::string& where,
                           std::int64_t fallback);

// The same for required fields: throws Error(kData) if the field is absent.
std::string need_text(const Json& object, const char* key, const std::string& where);
std::int64_t need_integer(const Json& object, const char* key, const std::string& where);
const Json& need_array(const Json& object, const char* key, const std::string& where);
const Json& need_object(const Json& object, const char* key, const std::string& where);

}  // namespace piton
