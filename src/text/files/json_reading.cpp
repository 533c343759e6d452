#include "text/files/json_reading.h"

#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

[[noreturn]] void wrong_type(const char* key, const std::string& where, const Json& value,
                             const char* wanted) {
  throw Error(Fault::kData, "{}: field \"{}\": got {}, wanted {}; fix the file", where, key,
              value.is_null() ? "nothing" : value.type_name(), wanted);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  check_json_depth(text, where);
  try {
    return read_json<Json>(text);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view message = error.what();
    if (const std::size_t end = message.find("] "); end != std::string_view::npos) {
      message.remove_prefix(end + 2);
    }
    throw Error(Fault::kData, "{}: not JSON: {}; is the file whole?", where,
                message.substr(0, 200));
  }
}

const Json& field(const Json& object, const char* key, const std::string& where) {
  static const Json kNull;
  if (!object.is_object()) wrong_type(key, where, object, "an object around it");
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string text_field(const Json& object, const char* key, const std::string& where,
                       const std::string& fallback) {
  const Json& value = field(object, key, where);
  if (value.is_null()) return fallback;
  if (!value.is_string()) wrong_type(key, where, value, "a string");
  return value.get<std::string>();
}

bool bool_field(const Json& object, const char* key, const std::string& where, bool fallback) {
  const Json& value = field(object, key, where);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) wrong_type(key, where, value, "true or false");
  return value.get<bool>();
}

std::int64_t integer_field(const Json& object, const char* key, const std::string& where,
                           std::int64_t fallback) {
  const Json& value = field(object, key, where);
  if (value.is_null()) return fallback;
  // No configuration needs numbers above 2^62; above 2^63 they do not fit std::int64_t.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62) {
    wrong_type(key, where, value, "a smaller number");
  }
  if (!value.is_number_integer()) wrong_type(key, where, value, "an integer");
  return value.get<std::int64_t>();
}

std::string need_text(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_string()) wrong_type(key, where, value, "a string");
  return value.get<std::string>();
}

std::int64_t need_integer(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (value.is_null()) wrong_type(key, where, value, "an integer");
  return integer_field(object, key, where, 0);
}

const Json& need_array(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_array()) wrong_type(key, where, value, "an array");
  return value;
}

const Json& need_object(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_object()) wrong_type(key, where, value, "an object");
  return value;
}

}  // namespace piton
