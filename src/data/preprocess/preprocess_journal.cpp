#include "data/preprocess/preprocess_journal.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/nesting.h"
#include "data/preprocess/duplicate_filter.h"

namespace piton {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostBytes = 64 << 20;

Json json_of(const LeftOut& left_out) {
  Json first = Json::array();
  for (const BadRecord& bad : left_out.first)
    first.push_back({bad.file, bad.line, bad.byte, bad.reason});
  return {{"count", left_out.count}, {"first", first}};
}

void read_left_out(const Json& json, LeftOut& left_out) {
  left_out.count = json.at("count");
  for (const auto& bad : json.at("first")) {
    left_out.first.push_back({bad.at(0), bad.at(1), bad.at(2), bad.at(3)});
  }
}

Json json_of(const PreprocessProgress& progress) {
  Json json = {{"file", progress.place.file},
               {"byte", progress.place.byte},
               {"duplicates_logged", progress.duplicates_logged},
               {"documents", progress.documents},
               {"duplicates", progress.duplicates},
               {"text_bytes", progress.text_bytes},
               {"bad", json_of(progress.bad)},
               {"too_long", json_of(progress.too_long)},
               {"unteaching", json_of(progress.unteaching)},
               {"taught_tokens", progress.taught_tokens},
               {"set_documents", progress.set_documents}};
  json["positions"] = Json::array();
  for (const auto& position : progress.positions) {
    json["positions"].push_back({position.ids_bytes, position.sequences, position.documents});
  }
  return json;
}

void read_progress(const Json& json, PreprocessProgress& progress) {
  progress.place = {json.at("file"), json.at("byte")};
  for (const auto& position : json.at("positions")) {
    progress.positions.push_back({position.at(0), position.at(1), position.at(2)});
  }
  progress.duplicates_logged = json.at("duplicates_logged");
  progress.documents = json.at("documents");
  progress.duplicates = json.at("duplicates");
  progress.text_bytes = json.at("text_bytes");
  read_left_out(json.at("bad"), progress.bad);
  read_left_out(json.at("too_long"), progress.too_long);
  read_left_out(json.at("unteaching"), progress.unteaching);
  progress.taught_tokens = json.at("taught_tokens");
  json.at("set_documents").get_to(progress.set_documents);
}

// Suffixes become part of file names: they must not lead into another folder.
bool is_plain(const std::string& suffix) {
  return suffix.find('/') == std::string::npos && suffix.find('\0') == std::string::npos;
}

}  // namespace

void PreprocessJournal::store(const std::string& output_prefix) const {
  Json json = json_of(*this);
  json["work"] = work;
  json["before"] = before;
  json["at"] = at;
  json["all"] = all;
  json["complete"] = complete;
  json["file_start"] = json_of(file_start);
  json["corpora"] = corpora;
  json["has_table"] = has_table;
  // File names and records need not be UTF-8; the journal must be valid JSON.
  write_text_file(path(output_prefix),
                  json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<PreprocessJournal> PreprocessJournal::load(const std::string& output_prefix) {
  std::error_code ignored;
  const std::string file = path(output_prefix);
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) return {};
  const std::string text = read_regular_file(file, kMostBytes);
  if (text.empty()) return {};  // power failed before the first one was written
  check_json_depth(text, file);
  PreprocessJournal journal;
  try {
    const Json json = read_json<Json>(text);
    journal.work = json.at("work");
    // Of an earlier version: start over.
    if (!json.contains("file_start") || !json.contains("taught_tokens")) return journal;
    read_progress(json, journal);
    journal.before = json.at("before");
    journal.at = json.at("at");
    journal.all = json.at("all");
    journal.complete = json.at("complete");
    read_progress(json.at("file_start"), journal.file_start);
    json.at("corpora").get_to(journal.corpora);
    journal.has_table = json.at("has_table");
  } catch (const Json::exception&) {
    throw Error(Fault::kData,
                "{}: not the journal of piton preprocess, or damaged; move it away, or choose "
                "another --output-prefix",
                file);
  }
  if (!std::all_of(journal.corpora.begin(), journal.corpora.end(), is_plain)) {
    throw Error(Fault::kData, "{}: names files outside of its folder; move it away", file);
  }
  return journal;
}

std::vector<std::string> PreprocessJournal::files(const std::string& output_prefix) const {
  std::vector<std::string> names;
  for (const std::string& suffix : corpora) {
    for (const std::string& name : partial_names(output_prefix + suffix)) names.push_back(name);
  }
  if (!has_table) return names;
  for (const std::string& name : DuplicateFilter::files(output_prefix + ".duplicates")) {
    names.push_back(name);
  }
  return names;
}

}  // namespace piton
