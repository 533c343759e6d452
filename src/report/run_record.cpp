#include "report/run_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/files/lock_file.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/local_time.h"
#include "base/nesting.h"
#include "base/options/options_in_file.h"
#include "checkpoint/manifest.h"
#include "train/run/batch_sizes.h"
#include "train/run/run_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestText = 16 << 20;

// Of "20" or "[2, 2, 24]".
std::vector<std::int64_t> numbers_in(const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = std::max(stop, at + 1);
  }
  return numbers;
}

// A checkpoint that is removed while it is looked at is none.
std::vector<CheckpointRecord> checkpoints_in(const fs::path& folder) {
  std::vector<CheckpointRecord> found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(folder, gone)) {
    const std::optional<std::int64_t> iteration = iteration_of(entry.path().filename().string());
    struct stat about {};
    if (!iteration || ::stat((entry.path() / kManifestName).c_str(), &about) != 0) continue;
    CheckpointRecord record{.iteration = *iteration, .written = local_time(about.st_mtime)};
    for (const auto& file : fs::recursive_directory_iterator(entry.path(), gone)) {
      std::error_code error;
      const auto bytes = file.is_regular_file(error) ? file.file_size(error) : 0;
      if (!error) record.bytes += static_cast<std::int64_t>(bytes);
    }
    found.push_back(std::move(record));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.iteration < b.iteration; });
  return found;
}

// Of a text with a line "--- sample 0: 16 tokens, 16 in the loss" before each.
std::vector<std::pair<std::string, std::string>> samples_in(const fs::path& file) {
  std::vector<std::pair<std::string, std::string>> samples;
  if (!fs::exists(file)) return samples;
  std::istringstream lines(read_regular_file(file, kLargestText));
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kHead = "--- sample ";
    if (line.starts_with(kHead)) {
      samples.emplace_back(line.substr(4), "");
    } else if (!samples.empty()) {
      samples.back().second += line + "\n";
    }
  }
  return samples;
}

std::string failure_in(const fs::path& file) {
  if (!fs::exists(file)) return "";
  const std::string text = read_regular_file(file, kLargestText);
  check_json_depth(text, file.string());
  const nlohmann::json report = read_json_or_discarded<nlohmann::json>(text);
  const bool is_report =
      report.is_object() && report.contains("message") && report["message"].is_string();
  return is_report ? report["message"].get<std::string>() : "failure.json cannot be read";
}

}  // namespace

std::string RunRecord::option(const std::string& key) const {
  for (const auto& [name, value] : options) {
    if (name == key) return value;
  }
  return "";
}

std::int64_t RunRecord::planned_iterations() const {
  const std::vector<std::int64_t> iterations = numbers_in(option("train-iters"));
  if (!iterations.empty() && iterations[0] > 0) return iterations[0];
  const std::vector<std::int64_t> samples = numbers_in(option("train-samples"));
  const std::vector<std::int64_t> batch = numbers_in(option("global-batch-size"));
  const std::vector<std::int64_t> ramp = numbers_in(option("rampup-batch-size"));
  if (samples.empty() || batch.empty() || batch[0] <= 0) return 0;
  if (ramp.size() != 3) return samples[0] / batch[0];
  // A batch that grows.
  return BatchSizes(batch[0], ramp, 1).updates(samples[0]);
}

RunRecord read_run(const fs::path& folder) {
  const fs::path metrics = folder / "metrics.jsonl";
  if (!fs::exists(metrics)) {
    throw Error(Fault::kData,
                "{}: no metrics.jsonl is in it; wanted the folder of a run (--save of piton "
                "pretrain)",
                folder.string());
  }
  const fs::path whole = fs::absolute(folder / "").lexically_normal().parent_path();
  RunRecord record{.name = whole.filename().string(), .steps = read_metrics(metrics)};
  if (fs::exists(folder / kConfigName)) record.options = options_in_file(folder / kConfigName);
  record.checkpoints = checkpoints_in(folder);
  record.samples = samples_in(folder / kSamplesName);
  record.failure = failure_in(folder / "failure.json");
  record.running = living_owner(folder / "run.lock").has_value();
  return record;
}

}  // namespace piton
