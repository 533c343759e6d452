#include "data/records/input_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/nesting.h"
#include "data/records/byte_order_mark.h"
#include "data/records/byte_stream.h"
#include "data/records/record_scanner.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<InputFormat, std::string_view>, 8> kNames = {
    {{InputFormat::kText, "text"},
     {InputFormat::kJsonLines, "jsonl"},
     {InputFormat::kJson, "json"},
     {InputFormat::kCsv, "csv"},
     {InputFormat::kTsv, "tsv"},
     {InputFormat::kWikiExtractor, "wikiextractor"},
     {InputFormat::kWikiXml, "wiki-xml"},
     {InputFormat::kParquet, "parquet"}}};

// ".json" of "x.json.gz".
std::string ending_of(const std::string& path) {
  std::string ending = fs::path(unpacked_name(path)).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return ending;
}

std::string_view format_by_ending(std::string_view ending) {
  if (ending == ".txt") return "text";
  if (ending == ".jsonl" || ending == ".ndjson") return "jsonl";
  if (ending == ".json") return "json";
  if (ending == ".csv") return "csv";
  if (ending == ".tsv") return "tsv";
  if (ending == ".xml") return "wiki-xml";
  if (ending == ".parquet") return "parquet";
  return "";
}

std::int64_t size_of(const fs::path& path) {
  std::error_code code;
  const auto size = fs::file_size(path, code);
  return code ? 0 : static_cast<std::int64_t>(size);
}

// What may be data below `folder`, relative to it.
std::vector<std::string> data_files(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code code;
  for (fs::recursive_directory_iterator it(folder, code), end; !code && it != end;
       it.increment(code)) {
    const std::string file_name = it->path().filename().string();
    if (file_name.starts_with('.')) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file()) continue;
    const std::string ending = ending_of(it->path().string());
    // Names without an extension are WikiExtractor's; files with an unknown one (README.md,
    // dataset_info.yaml) are not data.
    if (format_by_ending(ending).empty() && (!ending.empty() || file_name == "LICENSE" ||
                                             file_name == "README" || file_name == "_SUCCESS")) {
      continue;
    }
    files.push_back(it->path().lexically_relative(folder).generic_string());
  }
  if (code) throw Error(Fault::kData, "{}: cannot be listed: {}", folder.string(), code.message());
  return files;
}

void add_folder(const fs::path& folder, const DataSetChoice& choice, Log& log,
                std::vector<std::string>& found) {
  const ChosenFiles chosen = choose_files(folder, data_files(folder), choice);
  if (!chosen.note.empty()) log.info(chosen.note);
  std::map<std::string, int> kinds;
  for (const std::string& file : chosen.files) {
    const std::string_view kind = format_by_ending(ending_of(file));
    ++kinds[std::string(kind.empty() ? "without an ending" : kind)];
    found.push_back((folder / file).string());
  }
  if (kinds.size() > 1) {
    std::string counts;
    for (const auto& [kind, count] : kinds)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, kind);
    throw Error(Fault::kUsage,
                "{}: the folder mixes formats: {}; name the files themselves, as in '{}/*.jsonl'",
                folder.string(), counts, folder.string());
  }
  if (chosen.files.empty()) {
    throw Error(Fault::kUsage,
                "{}: no txt, jsonl, json, csv, tsv, xml or parquet files in the folder",
                folder.string());
  }
}

void add_glob(const std::string& pattern, std::vector<std::string>& found) {
  glob_t matches{};
  const int code = ::glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &matches);
  for (std::size_t i = 0; code == 0 && i < matches.gl_pathc; ++i) {
    if (!fs::is_directory(matches.gl_pathv[i])) found.emplace_back(matches.gl_pathv[i]);
  }
  ::globfree(&matches);
  if (code != 0) {
    throw Error(Fault::kUsage, "--input: \"{}\" does not exist{}", pattern,
                pattern.find_first_of("*?[{") == std::string::npos ? "" : " and matches no file");
  }
}

}  // namespace

std::string_view name(InputFormat format) {
  for (const auto& [value, text] : kNames) {
    if (value == format) return text;
  }
  return "";
}

std::optional<InputFormat> input_format(std::string_view text) {
  for (const auto& [value, known] : kNames) {
    if (known == text) return value;
  }
  return {};
}

std::vector<InputFile> find_input_files(const std::vector<std::string>& inputs,
                                        std::optional<InputFormat> format,
                                        const DataSetChoice& choice, Log& log) {
  std::vector<std::string> found;
  bool any_folder = false;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (input == "-") {
      found.push_back(input);
    } else if (fs::is_directory(input, ignored)) {
      add_folder(input, choice, log, found);
      any_folder = true;
    } else if (fs::exists(input, ignored)) {
      found.push_back(input);
    } else {
      add_glob(input, found);
    }
  }
  if (!any_folder && !(choice.config.empty() && choice.split.empty())) {
    throw Error(Fault::kUsage,
                "--{}: chooses among the files of a data set's folder; --input names no folder",
                choice.split.empty() ? "dataset-config" : "dataset-split");
  }
  std::vector<InputFile> files;
  for (std::string& path : found) {
    const std::int64_t bytes = path == "-" ? 0 : size_of(path);
    files.push_back({std::move(path), bytes, format});
  }
  return files;
}

std::vector<InputFile> find_input_files(const std::vector<std::string>& inputs,
                                        std::optional<InputFormat> format) {
  SilentLog log;
  return find_input_files(inputs, format, {}, log);
}

InputFormat detect_format(const std::string& path, std::string_view head) {
  const std::string ending = ending_of(path);
  if (head.starts_with("PAR1")) return InputFormat::kParquet;
  head.remove_prefix(byte_order_mark(head));
  const auto first = head.find_first_not_of(" \t\r\n");
  const std::string_view content =
      first == std::string_view::npos ? std::string_view{} : head.substr(first);
  if (ending == ".csv") return InputFormat::kCsv;
  if (ending == ".tsv") return InputFormat::kTsv;
  if (ending == ".jsonl" || ending == ".ndjson") return InputFormat::kJsonLines;
  if (content.starts_with("<doc id=")) return InputFormat::kWikiExtractor;
  if (content.starts_with("<mediawiki")) return InputFormat::kWikiXml;
  if (ending == ".txt") return InputFormat::kText;
  if (ending == ".json" || ending.empty() || path == "-" || ending != ".xml") {
    if (content.starts_with('[')) return InputFormat::kJson;
    if (content.starts_with('{')) {
      const auto line = content.find('\n');
      if (line == std::string_view::npos) return InputFormat::kJsonLines;
      auto scanner = make_record_scanner(InputFormat::kJson, SampleBy::kLine);
      const auto end = scanner->scan(content);
      return end <= line ? InputFormat::kJsonLines : InputFormat::kJson;
    }
    if (ending == ".json") return InputFormat::kJson;
    if (path == "-") return InputFormat::kText;
  }
  if (ending == ".parquet") {
    throw Error(Fault::kData,
                "{}: not a Parquet file: does not start with \"PAR1\"; fetch it again", path);
  }
  throw Error(Fault::kData,
              "{}: neither its name nor its content tells what it is; say it with --input-format",
              path);
}

namespace {

// The configuration `name` of a data set in `folder`, by its README.md, or the folder of this name
// there or in data. No files if there is neither.
HfInputs configured_inputs(const fs::path& folder, const std::string& name) {
  HfInputs named{.files = {folder.string()}};
  if (name.empty()) return named;
  if (has_configuration(folder, name)) {
    named.data_set.config = name;
    return named;
  }
  for (const fs::path& below : {folder / name, folder / "data" / name}) {
    if (!fs::is_directory(below)) continue;
    named.files = {below.string()};
    return named;
  }
  named.files.clear();
  return named;
}

}  // namespace

HfInputs inputs_of_hf_params(const std::string& file) {
  const std::string text = read_text_file(file, 1 << 24);
  check_json_depth(text, file);
  nlohmann::json params;
  try {
    params = read_json<nlohmann::json>(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto at = std::min<std::size_t>(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const auto start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    throw Error(Fault::kUsage,
                "{}:{}:{}: not JSON (true and false are lower-case, every text has both quotes); "
                "wanted {{\"path\": \"json\", \"data_files\": [...], \"split\": \"train\"}}",
                file, line, start == std::string::npos ? at + 1 : at - start);
  }
  const auto refuse = [&](std::string_view what) {
    return Error(
        Fault::kUsage,
        "{}: {}; data sets are read from local files: give \"path\" a folder, or json, csv, "
        "text or parquet with \"data_files\"",
        file, what);
  };
  if (!params.is_object()) throw refuse("not an object");
  std::vector<std::string> inputs;
  std::string path, subfolder, configuration, split;
  const fs::path base = fs::path(file).parent_path();
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_string()) throw refuse("\"data_files\" holds something that is not text");
    inputs.push_back(value.get<std::string>());
  };
  for (const auto& [key, value] : params.items()) {
    if (key == "path" && value.is_string()) {
      path = value;
    } else if (key == "name" && (value.is_string() || value.is_null())) {
      if (value.is_string()) configuration = value;
    } else if (key == "data_dir" && value.is_string()) {
      subfolder = value;
    } else if (key == "split" && value.is_string()) {
      split = value;
      if (split.find_first_of("[+") != split.npos)
        throw refuse("\"split\" is a part of a split, or several; wanted the name of one");
    } else if (key == "data_files") {
      const nlohmann::json& files =
          value.is_object() && value.contains("train") ? value["train"] : value;
      if (files.is_array()) {
        for (const auto& one : files) add(one);
      } else {
        add(files);
      }
    } else if (key != "streaming" && key != "num_proc" && key != "cache_dir") {
      throw refuse(fmt::format("\"{}\" is not understood", key));
    }
  }
  // A data set is "train" where there is one split alone, whatever it is called.
  if (split == "train") split.clear();
  if (inputs.empty()) {
    const fs::path folder = subfolder.empty() ? fs::path(path) : fs::path(path) / subfolder;
    if (path.empty() || !fs::exists(folder))
      throw refuse(fmt::format("\"{}\" is not here", folder.string()));
    HfInputs named = configured_inputs(folder, configuration);
    if (named.files.empty())
      throw refuse(
          fmt::format("\"name\": {}/README.md has no configuration \"{}\", and there is "
                      "no folder of this name there or in data",
                      folder.string(), configuration));
    named.path = path;
    named.data_set.split = split;
    return named;
  }
  if (!split.empty()) throw refuse("\"split\" is not \"train\", with \"data_files\"");
  if (fs::is_directory(path)) {
    for (std::string& input : inputs) input = (fs::path(path) / input).string();
  } else if (!path.empty() && !input_format(path)) {
    throw refuse(fmt::format("\"path\": \"{}\" is neither a folder nor a kind of file", path));
  }
  return {path, inputs, {}};
}

}  // namespace piton
