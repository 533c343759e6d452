// Reading configurations: JSON values with errors that name the file and the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace piton {

using Json = nlohmann::json;

// Throws Error(kData): `where`, the byte, and what is wrong there.
Json parse_json(std::string_view text, const std::string& where);

// A field of an object, or null where it is absent. Throws if `object` is none.
const Json& field(const Json& object, const char* key, const std::string& where);

// The typed value of a field; `fallback` where it is absent or null. Throws Error(kData) with the
// field, what it is and what was wanted.
std::string text_field(const Json& object, const char* key, const std::string& where,
                       const std::string& fallback = "");
bool bool_field(const Json& object, const char* key, const std::string& where, bool fallback);
std::int64_t integer_field(const Json& object, const char* key, const std::string& where,
                           std::int64_t fallback);

// The same where the field must be there.
std::string need_text(const Json& object, const char* key, const std::string& where);
std::int64_t need_integer(const Json& object, const char* key, const std::string& where);
const Json& need_array(const Json& object, const char* key, const std::string& where);
const Json& need_object(const Json& object, const char* key, const std::string& where);

}  // namespace piton
