// The fields of a JSON request, read with their types and ranges.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

// Reads each field at most once; a field that is null is as one that is absent. All methods throw
// RequestError(400) that names the field, what it is and what it must be.
class RequestFields {
 public:
  using Json = nlohmann::ordered_json;

  // `where`: path of the object within the request, "" for the request itself. `object` outlives
  // this one.
  RequestFields(const Json& object, std::string where);

  // The value of any type; null if it is absent.
  const Json* value(const std::string& name);
  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t least,
                                      std::int64_t most);
  std::optional<bool> flag(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  // A text, or a list of at most `most` texts; none is empty.
  std::vector<std::string> texts(const std::string& name, std::size_t most);

  // Fields that are known and change nothing.
  void ignore(std::initializer_list<const char*> names);
  // After all others: a field that no method has read is an error, with the nearest name.
  void refuse_others() const;

  [[noreturn]] void fail(const std::string& name, const std::string& wanted) const;
  // As messages name the field: messages[2].content.
  std::string path_of(const std::string& name) const;

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

// The object of a body. Throws RequestError(400) if it is not JSON, not UTF-8, nested too deeply,
// or not an object.
nlohmann::ordered_json request_object(std::string_view body);

}  // namespace piton
