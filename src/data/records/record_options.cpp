#include "data/records/record_options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {

void check_record_options(const RecordOptions& options) {
  if (options.input.empty() && options.datasets.empty() && options.hf_datasets_params.empty()) {
    throw Error(Fault::kUsage, "no --input; give files, globs, folders, or - for standard input");
  }
  if (!options.streaming) {
    throw Error(Fault::kUsage,
                "--no-streaming: records are always read as they come; leave it out");
  }
  if (options.json_keys.empty() || options.json_keys[0].empty()) {
    throw Error(Fault::kUsage,
                "--json-keys is empty; name the keys to read, as in --json-keys text");
  }
  const std::set<std::string> once(options.json_keys.begin(), options.json_keys.end());
  if (once.size() != options.json_keys.size()) {
    throw Error(Fault::kUsage, "--json-keys names a key twice");
  }
  if (options.max_record_bytes < 1 || options.max_record_bytes > (std::int64_t{1} << 31)) {
    throw Error(Fault::kUsage, "--max-record-bytes: got {}, wanted 1 to 2147483648",
                options.max_record_bytes);
  }
}

std::vector<std::string> names_in_files(const RecordOptions& options) {
  std::vector<std::string> names = options.json_keys;
  if (options.map_keys.empty()) return names;
  const auto wrong = [&] {
    return Error(Fault::kUsage,
                 "--map-keys: got {}, wanted a JSON object of keys and names, as in "
                 "{{\"text\": \"content\"}}",
                 options.map_keys);
  };
  check_json_depth(options.map_keys, "--map-keys");
  const auto map = read_json_or_discarded<nlohmann::json>(options.map_keys);
  if (!map.is_object()) throw wrong();
  for (const auto& [key, value] : map.items()) {
    if (!value.is_string()) throw wrong();
    const auto at = std::find(options.json_keys.begin(), options.json_keys.end(), key);
    if (at == options.json_keys.end()) {
      throw Error(Fault::kUsage, "--map-keys names \"{}\", which --json-keys does not hold", key);
    }
    names[static_cast<std::size_t>(at - options.json_keys.begin())] = value.get<std::string>();
  }
  return names;
}

namespace {

// What is given by --input, --hf-datasets-params and --datasets.
struct GivenInputs {
  std::vector<std::string> names;
  DataSetChoice data_set;
};

GivenInputs inputs_of(const RecordOptions& options) {
  GivenInputs given{options.input, options.data_set};
  if (!options.hf_datasets_params.empty()) {
    const HfInputs named = inputs_of_hf_params(options.hf_datasets_params);
    // Scripts name the data set twice.
    if (!given.names.empty() && given.names != std::vector<std::string>{named.path}) {
      throw Error(Fault::kUsage,
                  "--input and --hf-datasets-params name different data: got \"{}\", and "
                  "\"path\": \"{}\" in {}; use one of them",
                  given.names[0], named.path, options.hf_datasets_params);
    }
    given.names = named.files;
    const auto choose = [&](std::string& choice, const std::string& of_file, const char* flag) {
      if (!choice.empty() && !of_file.empty() && choice != of_file) {
        throw Error(Fault::kUsage, "--{}: got {}, and {} says {}; leave one of them out", flag,
                    choice, options.hf_datasets_params, of_file);
      }
      if (choice.empty()) choice = of_file;
    };
    choose(given.data_set.config, named.data_set.config, "dataset-config");
    choose(given.data_set.split, named.data_set.split, "dataset-split");
  }
  given.names.insert(given.names.end(), options.datasets.begin(), options.datasets.end());
  return given;
}

std::optional<InputFormat> format_of(const RecordOptions& options) {
  if (options.input_format == "auto") return {};
  return input_format(options.input_format);
}

}  // namespace

std::vector<std::size_t> sets_of_files(const RecordOptions& options) {
  std::vector<std::size_t> sets;
  std::size_t set = 0;
  const GivenInputs given = inputs_of(options);
  for (const std::string& input : given.names) {
    SilentLog silent;
    const auto files = find_input_files({input}, format_of(options), given.data_set, silent);
    sets.insert(sets.end(), files.size(), set++);
  }
  return sets;
}

std::vector<InputFile> files_of(const RecordOptions& options, Log& log) {
  const GivenInputs given = inputs_of(options);
  auto files = find_input_files(given.names, format_of(options), given.data_set, log);
  if (std::count_if(files.begin(), files.end(),
                    [](const InputFile& file) { return file.path == "-"; }) > 1) {
    throw Error(Fault::kUsage, "standard input (-) is named twice");
  }
  return files;
}

void refuse_bad_record(const BadRecord& bad, const RecordOptions& options) {
  const std::string& skip = options.skip_option;
  throw Error(Fault::kData, "{}; fix it{}", describe(bad),
              skip.empty() ? "" : ", or count and leave out such records with " + skip);
}

}  // namespace piton
