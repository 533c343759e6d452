#include "train/record_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/lock_file.h"
#include "base/files/regular_file.h"
#include "base/hash.h"
#include "base/shell_word.h"
#include "checkpoint/collective.h"
#include "data/preprocess/preprocess.h"
#include "data/preprocess/preprocess_cards.h"
#include "data/records/byte_stream.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// All places of `data` that name corpora.
std::array<std::vector<std::string>*, 4> paths_of(DataOptions& data) {
  return {&data.data_path, &data.train_data_path, &data.valid_data_path, &data.test_data_path};
}

bool is_record_file(const std::string& path) {
  std::error_code ignored;
  const fs::path name(path);
  return fs::is_regular_file(name, ignored) && name.extension() != ".bin" &&
         name.extension() != ".idx";
}

// A folder, and the name of a file that is not there, are no prefix that a corpus is missing of.
void check_is_there(const std::string& path) {
  constexpr std::array<std::string_view, 5> kEnds = {".jsonl", ".ndjson", ".json", ".csv",
                                                     ".parquet"};
  std::error_code ignored;
  for (const char* column : {"input_ids", "chosen_input_ids"}) {
    if (fs::exists(fmt::format("{}_packed_{}_document.idx", path, column), ignored)) return;
  }
  const fs::path name(path);
  if (fs::is_directory(name, ignored)) {
    throw Error(Fault::kData,
                "--data-path: {} is a folder; name the files of conversations in it, or the prefix "
                "of what piton preprocess --input {} wrote",
                path, shell_word(path));
  }
  const std::string end = fs::path(unpacked_name(path)).extension().string();
  if (std::ranges::count(kEnds, end) == 0 || fs::exists(name, ignored)) return;
  throw Error(Fault::kData, "--data-path: there is no file {}; check the path", path);
}

SampleForm form_of(TrainingStage stage) {
  if (stage == TrainingStage::kSft) return SampleForm::kAnswers;
  if (stage == TrainingStage::kClassify) return SampleForm::kLabels;
  return stage == TrainingStage::kKto ? SampleForm::kJudged : SampleForm::kPairs;
}

fs::path make_temporary_folder() {
  std::string name = (fs::temp_directory_path() / "piton-data-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(Fault::kData,
                "--data-path: no temporary folder {} can be made: {}; give "
                "--data-cache-path DIR",
                name, std::generic_category().message(errno));
  }
  return name;
}

PreprocessOptions preprocess_options(const PretrainOptions& options, const std::string& file,
                                     const RecordReading& reading) {
  const RecordFileOptions& records = options.records;
  PreprocessOptions made;
  made.input = {file};
  made.skip_option = "piton preprocess --on-error skip";
  made.workers = reading.workers;
  made.map_keys = records.map_keys;
  made.instruct.handler_name = records.handler_name;
  made.instruct.prompt_type = records.prompt_type;
  made.instruct.prompt_type_path = records.prompt_type_path;
  made.instruct.thinking = records.thinking;
  made.chat_templates = reading.chat_templates;
  made.wanted_form = form_of(options.preferences.stage);
  if (!options.preferences.classifies()) return made;
  if (made.instruct.handler_name.empty() || made.instruct.handler_name == "auto")
    made.instruct.handler_name = "TextLabelHandler";
  made.instruct.label_names = options.model.labels.listed_names();
  made.instruct.num_labels = options.model.labels.number();
  made.instruct.problem_type = options.model.labels.problem;
  return made;
}

std::string hash_of_file(const std::string& file) {
  const RegularFile bytes(file);
  std::vector<std::byte> block(1 << 20);
  StreamHash hash;
  for (std::int64_t at = 0; at < bytes.size_bytes();) {
    const auto part = std::span(block).first(static_cast<std::size_t>(
        std::min<std::int64_t>(bytes.size_bytes() - at, std::ssize(block))));
    bytes.read_at(at, part);
    hash.add(part);
    at += std::ssize(part);
  }
  return hash.hex();
}

// Identifies the corpora by all that determines them.
std::string identity_of(const PretrainOptions& options, const std::string& file,
                        const RecordReading& reading) {
  const RecordFileOptions& records = options.records;
  StreamHash hash;
  const auto add = [&](const std::string& text) {
    const std::string part = fmt::format("{}:{}|", text.size(), text);
    hash.add(std::as_bytes(std::span(part)));
  };
  add(reading.tokenizer->content_hash());
  for (const ChatTemplateSource& source : reading.chat_templates.files.templates) {
    add(source.name);
    add(source.text);
  }
  add(reading.chat_templates.files.special_tokens.dump());
  add(records.handler_name);
  add(records.prompt_type);
  if (!records.prompt_type_path.empty()) add(read_text_file(records.prompt_type_path, 16 << 20));
  add(records.map_keys);
  add(std::string(name(records.thinking)));
  add(name(options.preferences.stage));
  if (options.preferences.classifies()) {
    add(fmt::to_string(options.model.labels.number()));
    if (options.model.labels.several()) add("several");
    for (const std::string& one : options.model.labels.listed_names()) add(one);
  }
  add(hash_of_file(file));
  return hash.hex();
}

// Without line ends and other control characters, which a file may have in its name.
std::string stem_of(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  std::string stem = name.substr(0, name.find('.', 1));
  std::ranges::replace_if(
      stem, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '_');
  return stem;
}

// Of the process that makes the samples at `place`. Waits for another one that does, with a line.
std::unique_ptr<LockFile> lock_of_samples(const std::string& place, const std::string& file,
                                          Log& log) {
  LockRules rules;
  rules.waits = [&, said = false](const std::optional<LockOwner>& owner) mutable {
    if (!std::exchange(said, true))
      log.info(fmt::format("{}: waiting for {}, which makes its samples in {}", file,
                           described_owner(owner), place));
    return true;
  };
  try {
    create_folders(fs::path(place).parent_path());
    return std::make_unique<LockFile>(place + ".lock", place, rules);
  } catch (const Error& error) {
    throw Error(error.fault(), "--data-cache-path: {}", error.what());
  }
}

// preprocess() of one file. What it writes is of no interest to the user, unless it cannot be
// written.
PreprocessReport converted(const PreprocessOptions& one, const std::string& file,
                           const Tokenizer& tokenizer, Log& log) {
  SilentProgress progress;
  try {
    const PreprocessReport done = preprocess(one, tokenizer, log, progress);
    write_cards(one, tokenizer, done, "a run");
    return done;
  } catch (const Error& error) {
    const std::string reason = error.what();
    if (reason.find(one.output_prefix) == reason.npos) throw;
    throw Error(error.fault(),
                "--data-path: {} cannot be made into samples: {}; --data-cache-path DIR names "
                "another place for them",
                file, reason);
  }
}

void report(const std::string& file, const PreprocessReport& done, Log& log) {
  for (const LeftOut* left_out : {&done.bad, &done.too_long, &done.unteaching}) {
    for (const BadRecord& record : left_out->first) log.warning(describe(record));
    if (left_out->count > std::ssize(left_out->first))
      log.warning(fmt::format("{}: {} such records are left out", file, left_out->count));
  }
  log.info(fmt::format("{}: {} ({} prompt): {} samples, {} tokens to learn of {}", file,
                       done.handler, done.prompt, done.samples, done.taught_tokens,
                       done.tokens.at(0)));
}

}  // namespace

RecordCorpora::RecordCorpora(RecordCorpora&& other) noexcept
    : prefixes(std::move(other.prefixes)), temporary(std::exchange(other.temporary, {})) {}

void RecordCorpora::swap(RecordCorpora& other) noexcept {
  prefixes.swap(other.prefixes);
  temporary.swap(other.temporary);
}

RecordCorpora::~RecordCorpora() {
  std::error_code ignored;
  if (!temporary.empty()) fs::remove_all(temporary, ignored);
}

std::vector<std::string> record_files_of(const PretrainOptions& options) {
  std::vector<std::string> files;
  if (!options.data.is_instruction_dataset) return files;
  DataOptions data = options.data;
  for (const std::vector<std::string>* paths : paths_of(data)) {
    for (const std::string& path : *paths) {
      check_is_there(path);
      if (is_record_file(path) && std::ranges::count(files, path) == 0) files.push_back(path);
    }
  }
  if (!files.empty() && data.neat_pack) {
    throw Error(Fault::kUsage,
                "--neat-pack: is of corpora that were packed so, got the file {}; its samples are "
                "packed by --pack",
                files.front());
  }
  return files;
}

RunTemplates used_templates(const PretrainOptions& options,
                            const std::optional<OpenedModel>& foreign) {
  const bool used = options.preferences.by_rewards() || !options.loop.lora_load.empty() ||
                    !options.sample_prompts.file.empty() || !record_files_of(options).empty();
  return used ? chat_templates_of_run(options, foreign) : RunTemplates{};
}

RecordCorpora convert_record_files(const PretrainOptions& options,
                                   const std::vector<std::string>& files, RecordReading reading,
                                   Log& log) {
  if (reading.tokenizer == nullptr) {
    throw Error(Fault::kUsage,
                "--data-path: {} is a file of conversations, and the run has no tokenizer; name it "
                "with --tokenizer-type or --tokenizer-name-or-path",
                files.front());
  }
  RecordCorpora made;
  const std::optional<std::string>& kept = options.data.data_cache_path;
  if (!kept) made.temporary = make_temporary_folder();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& file = files[i];
    PreprocessOptions one = preprocess_options(options, file, reading);
    const std::string place =
        kept ? (fs::path(*kept) /
                fmt::format("{}-{}", stem_of(file), identity_of(options, file, reading)))
                   .string()
             : (made.temporary / fmt::format("{}-{}", i, stem_of(file))).string();
    made.prefixes[file] = place;
    // The mark is written last.
    const fs::path mark = place + ".complete";
    std::unique_ptr<LockFile> lock;
    if (kept && !fs::exists(mark)) lock = lock_of_samples(place, file, log);
    if (kept && fs::exists(mark)) {
      log.info(fmt::format("{}: its samples are in {}", file, place));
      continue;
    }
    one.output_prefix = place;
    one.overwrite = true;
    const PreprocessReport done = converted(one, file, *reading.tokenizer, log);
    if (kept) write_text_file(mark, file + "\n");
    report(file, done, log);
  }
  return made;
}

std::map<std::string, std::string> convert_on_first_rank(
    const PretrainOptions& options, const std::function<RecordReading()>& reading,
    Communicator& everyone, Log& log, RecordCorpora& made) {
  std::vector<std::string> files;
  phase(everyone, std::nullopt, [&] { files = record_files_of(options); });
  if (files.empty()) {
    if (options.records.given()) {
      log.info(
          "--data-path: names corpora, which have their prompts; --handler-name, --prompt-type, "
          "--map-keys and --enable-thinking are of files of conversations");
    }
    return {};
  }
  const std::string places = found_by_first(everyone, [&] {
    RecordCorpora converted = convert_record_files(options, files, reading(), log);
    std::string lines;
    for (const std::string& file : files) lines += converted.prefixes.at(file) + '\0';
    made.swap(converted);
    return lines;
  });
  std::map<std::string, std::string> prefixes;
  std::istringstream lines(places);
  for (const std::string& file : files) std::getline(lines, prefixes[file], '\0');
  phase(everyone, std::nullopt, [&] {
    for (const auto& [file, prefix] : prefixes) {
      const fs::path folder = fs::path(prefix).parent_path();
      if (fs::is_directory(folder)) continue;
      throw Error(Fault::kUsage,
                  "--data-path: {} was converted by the first rank into {}, which does not exist "
                  "on this host; give --data-cache-path DIR, a folder that all hosts share",
                  file, folder.string());
    }
  });
  return prefixes;
}

CorpusFiles files_by_prefix(const std::map<std::string, std::string>& prefixes) {
  std::map<std::string, std::string> files;
  for (const auto& [file, prefix] : prefixes) files[prefix] = file;
  return CorpusFiles(std::move(files));
}

DataOptions with_prefixes(DataOptions data, const std::map<std::string, std::string>& prefixes) {
  for (std::vector<std::string>* paths : paths_of(data)) {
    for (std::string& path : *paths) {
      if (const auto found = prefixes.find(path); found != prefixes.end()) path = found->second;
    }
  }
  return data;
}

}  // namespace piton
