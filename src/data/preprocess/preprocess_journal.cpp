#include "data/preprocess/preprocess_journal.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace piton {

void PreprocessJournal::store(const std::string& output_prefix) const {
  nlohmann::json json = {{"work", work},
                         {"file", place.file},
                         {"byte", place.byte},
                         {"duplicates_logged", duplicates_logged},
                         {"documents", documents},
                         {"duplicates", duplicates},
                         {"text_bytes", text_bytes},
                         {"bad_records", bad_records}};
  for (const auto& position : positions) {
    json["positions"].push_back({position.ids_bytes, position.sequences, position.documents});
  }
  json["first_bad"] = nlohmann::json::array();
  for (const BadRecord& bad : first_bad)
    json["first_bad"].push_back({bad.file, bad.line, bad.byte, bad.reason});
  // File names and what records hold need not be UTF-8; the journal stays JSON all the same.
  write_text_file(path(output_prefix),
                  json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::optional<PreprocessJournal> PreprocessJournal::load(const std::string& output_prefix) {
  std::error_code ignored;
  if (!std::filesystem::exists(path(output_prefix), ignored)) return {};
  try {
    const auto json = nlohmann::json::parse(read_text_file(path(output_prefix)));
    PreprocessJournal journal;
    journal.work = json.at("work");
    journal.place = {json.at("file"), json.at("byte")};
    for (const auto& position : json.at("positions")) {
      journal.positions.push_back({position.at(0), position.at(1), position.at(2)});
    }
    journal.duplicates_logged = json.at("duplicates_logged");
    journal.documents = json.at("documents");
    journal.duplicates = json.at("duplicates");
    journal.text_bytes = json.at("text_bytes");
    journal.bad_records = json.at("bad_records");
    for (const auto& bad : json.at("first_bad")) {
      journal.first_bad.push_back({bad.at(0), bad.at(1), bad.at(2), bad.at(3)});
    }
    return journal;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

}  // namespace piton
