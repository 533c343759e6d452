#include "tasks/task_records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/listed.h"
#include "base/nesting.h"
#include "data/records/byte_stream.h"
#include "data/records/csv_fields.h"
#include "data/records/parquet_rows.h"
#include "data/records/record_scanner.h"
#include "data/records/whole_text.h"
#include "tasks/answers/python_text.h"

namespace piton {
namespace {

using Json = nlohmann::json;

constexpr std::array kExtensions = {".jsonl", ".ndjson", ".json", ".csv",
                                    ".tsv",   ".txt",    ".raw",  ".parquet"};

std::string extension_of(const std::filesystem::path& path) {
  return std::filesystem::path(unpacked_name(path.string())).extension().string();
}

Json object_of(std::string_view text, const std::string& where) {
  check_json_depth(text, where);
  Json json = read_json_or_discarded<Json>(text);
  if (!json.is_object()) {
    throw Error(Fault::kData, "{}: got {}, wanted a JSON object", where,
                json.is_discarded() ? "text that is not JSON" : json.type_name());
  }
  return json;
}

std::vector<Json> lines_of_json(const std::string& text, const std::string& file) {
  std::vector<Json> rows;
  std::istringstream stream(text);
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    rows.push_back(object_of(line, fmt::format("{}: line {}", file, number)));
  }
  return rows;
}

std::vector<Json> list_of_json(const std::string& text, const std::string& file) {
  check_json_depth(text, file);
  Json json = read_json_or_discarded<Json>(text);
  if (json.is_object() && json.contains("examples")) json = Json(json["examples"]);
  if (!json.is_array()) {
    throw Error(Fault::kData,
                "{}: got {}, wanted a JSON list of objects, or an object with \"examples\"", file,
                json.is_discarded() ? "text that is not JSON" : json.type_name());
  }
  for (const Json& row : json) {
    if (!row.is_object())
      throw Error(Fault::kData, "{}: got {} in the list, wanted an object", file, row.type_name());
  }
  return {json.begin(), json.end()};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

struct CsvRow {
  std::int64_t line = 0;
  std::vector<std::string> fields;
};

std::vector<CsvRow> rows_of_csv(std::string_view text, char separator, const std::string& file) {
  const auto scanner = make_record_scanner(separator == ',' ? InputFormat::kCsv : InputFormat::kTsv,
                                           SampleBy::kLine);
  std::vector<CsvRow> rows;
  std::int64_t line = 1;
  while (!text.empty()) {
    const std::size_t found = scanner->scan(text);
    const std::string_view record =
        text.substr(0, found == RecordScanner::kNone ? text.size() : found);
    text.remove_prefix(record.size());
    if (record.find_first_not_of("\r\n") != record.npos) {
      CsvRow& row = rows.emplace_back(CsvRow{.line = line});
      if (const auto bad = split_csv_fields(record, separator, row.fields))
        throw Error(Fault::kData, "{}: line {}: {}", file, line, *bad);
    }
    line += std::count(record.begin(), record.end(), '\n');
  }
  return rows;
}

std::vector<Json> records_of_csv(const std::string& text, char separator, const std::string& file,
                                 std::vector<std::string> columns) {
  std::vector<CsvRow> rows = rows_of_csv(text, separator, file);
  if (rows.empty()) return {};
  const auto is_header = [&](const std::vector<std::string>& fields) {
    return columns.empty() || std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
             return lower(field) == lower(columns.front());
           });
  };
  if (is_header(rows.front().fields)) {
    columns = rows.front().fields;
    rows.erase(rows.begin());
  }
  std::vector<Json> records;
  for (CsvRow& row : rows) {
    if (row.fields.size() != columns.size()) {
      throw Error(Fault::kData, "{}: line {}: got {} columns, wanted {}: {}", file, row.line,
                  row.fields.size(), columns.size(), listed(columns, 10));
    }
    Json& record = records.emplace_back(Json::object());
    for (std::size_t i = 0; i < columns.size(); ++i) record[columns[i]] = std::move(row.fields[i]);
  }
  return records;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  return value.dump();
}

// The value that `path` names: a field, then elements of lists and objects.
const Json* value_at(const Json& fields, std::string_view path) {
  const std::size_t dot = std::min(path.find('.'), path.size());
  const Json* value = find_field(fields, path.substr(0, dot));
  if (value == nullptr || dot == path.size()) return value;
  const std::string_view rest = path.substr(dot + 1);
  if (value->is_object()) return value_at(*value, rest);
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  const bool whole = error == std::errc() && end == rest.data() + rest.size();
  return value->is_array() && whole && index < value->size() ? &(*value)[index] : nullptr;
}

std::string rendered_field(std::string_view name, const Json& fields, const std::string& where) {
  const std::size_t bar = std::min(name.find('|'), name.size());
  const std::string_view change = bar < name.size() ? name.substr(bar + 1) : "";
  const Json* value = value_at(fields, name.substr(0, bar));
  if (value == nullptr) {
    std::vector<std::string> names;
    for (const auto& [key, _] : fields.items()) names.push_back(key);
    throw Error(Fault::kData, "{}: has no field \"{}\"; it has {}", where, name.substr(0, bar),
                listed(names, 12));
  }
  const std::string text = text_of(*value);
  if (change == "strip") return std::string(python_stripped(text));
  if (change == "lstrip") return std::string(python_left_stripped(text));
  if (!change.empty())
    throw Error(Fault::kUsage, "{{{}}}: \"{}\" is not known; wanted strip or lstrip", name, change);
  return text;
}

}  // namespace

bool is_task_file(const std::filesystem::path& path) {
  return std::find(kExtensions.begin(), kExtensions.end(), extension_of(path)) != kExtensions.end();
}

std::vector<Json> read_task_records(const std::filesystem::path& path,
                                    const std::vector<std::string>& columns) {
  const std::string extension = extension_of(path);
  const std::string file = path.string();
  if (extension == ".parquet") return read_parquet_rows(file);
  std::string text = read_unpacked(path.string());
  if (extension == ".jsonl" || extension == ".ndjson") return lines_of_json(text, file);
  if (extension == ".json") {
    // Several published .json files hold an object a line.
    const Json whole = read_json_or_discarded<Json>(text);
    if (whole.is_discarded() && text.starts_with('{')) return lines_of_json(text, file);
    return list_of_json(text, file);
  }
  if (extension == ".csv") return records_of_csv(text, ',', file, columns);
  if (extension == ".tsv") return records_of_csv(text, '\t', file, columns);
  if (extension == ".txt" || extension == ".raw") return {Json{{"text", std::move(text)}}};
  throw Error(Fault::kUsage,
              "{}: got a file \"{}\", wanted .jsonl, .json, .csv, .tsv, .txt or .parquet", file,
              extension);
}

const Json* find_field(const Json& fields, std::string_view name) {
  if (!fields.is_object()) return nullptr;
  if (const auto found = fields.find(std::string(name)); found != fields.end()) return &*found;
  const std::string wanted = lower(name);
  for (const auto& [key, value] : fields.items()) {
    if (lower(key) == wanted) return &value;
  }
  return nullptr;
}

const Json* named_value(std::string_view text, const Json& fields) {
  const bool one = text.starts_with('{') && text.find('}') + 1 == text.size();
  return one ? value_at(fields, text.substr(1, text.size() - 2)) : nullptr;
}

std::string rendered(std::string_view text, const Json& fields, const std::string& where) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '{') {
      const std::size_t end = text.find('}', at);
      if (end == text.npos)
        throw Error(Fault::kUsage, "\"{}\": a brace is not closed; write {{{{ for a brace", text);
      out += rendered_field(text.substr(at + 1, end - at - 1), fields, where);
      at = end + 1;
    } else {
      out += c;
      ++at;
    }
  }
  return out;
}

}  // namespace piton
