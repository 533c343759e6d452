#include "data/records/csv_fields.h"

namespace piton {

std::optional<std::string> split_csv_fields(std::string_view record, char separator,
                                            std::vector<std::string>& fields) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  std::size_t count = 0;
  std::size_t at = 0;
  while (true) {
    if (fields.size() <= count) fields.emplace_back();
    std::string& field = fields[count++];
    field.clear();
    if (at < record.size() && record[at] == '"') {
      ++at;
      while (true) {
        const auto quote = record.find('"', at);
        if (quote == std::string_view::npos)
          return "a quoted field is not closed; is the file cut off?";
        field.append(record.substr(at, quote - at));
        at = quote + 1;
        if (at >= record.size() || record[at] != '"') break;
        field += '"';
        ++at;
      }
      if (at < record.size() && record[at] != separator)
        return "there is text after a closing quote";
    } else {
      const auto end = record.find(separator, at);
      field.assign(record.substr(at, end == std::string_view::npos ? end : end - at));
      at = end == std::string_view::npos ? record.size() : end;
    }
    if (at >= record.size()) break;
    ++at;  // the separator; another field follows, maybe empty
    if (at == record.size()) {
      if (fields.size() <= count) fields.emplace_back();
      fields[count++].clear();
      break;
    }
  }
  fields.resize(count);
  return {};
}

}  // namespace piton
