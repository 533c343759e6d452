#include "tasks/record_fields.h"

#include "base/error.h"
#include "base/listed.h"
#include "tasks/task_records.h"

namespace piton {

using Json = nlohmann::json;

void refuse_columns(const Json& record, const std::string& where, std::string_view wanted) {
  std::vector<std::string> names;
  for (const auto& [key, _] : record.items()) names.push_back(key);
  throw Error(Fault::kData, "{}: got the fields {}; wanted {}", where, listed(names, 12), wanted);
}

bool has_all(const Json& record, std::initializer_list<std::string_view> names) {
  for (const std::string_view one : names) {
    if (find_field(record, one) == nullptr) return false;
  }
  return true;
}

std::string text_field(const Json& record, std::string_view name) {
  const Json* value = find_field(record, name);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

std::vector<std::string> texts_of(const Json& list, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& one : list) {
    if (!one.is_string())
      throw Error(Fault::kData, "{}: got {} in a list of choices, wanted text", where,
                  one.type_name());
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

}  // namespace piton
