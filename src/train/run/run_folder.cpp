#include "train/run/run_folder.h"

#include <array>
#include <system_error>
#include <utility>

#include "base/files/drafts.h"
#include "base/files/files.h"
#include "checkpoint/manifest.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = "run.lock";
constexpr const char* kMetricsName = "metrics.jsonl";
constexpr const char* kCompletionsName = "completions.jsonl";
constexpr double kSecondsOfWarning = 3600;

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code absent;
  if (fs::equivalent(a, b, absent)) return true;
  // Neither may exist yet: "runs/a" and "runs/a/" are the same.
  std::error_code error;
  const fs::path one = fs::weakly_canonical(a / "", error);
  return !error && one == fs::weakly_canonical(b / "", error) && !error;
}

}  // namespace

MadeFolder::MadeFolder(const fs::path& dir) {
  if (!fs::exists(dir)) made_ = dir;
  create_folders(dir);
}

MadeFolder::~MadeFolder() {
  std::error_code not_empty;
  if (!made_.empty()) fs::remove(made_, not_empty);
}

RunFolder::RunFolder(fs::path dir)
    : dir_(std::move(dir)),
      made_(dir_),
      lock_(dir_ / kLockName, "--save: " + dir_.string(), {}, [this](const LockOwner& killed) {
        const std::array<fs::path, 4> written = {dir_ / kConfigName, dir_ / kMetricsName,
                                                 dir_ / kCompletionsName, dir_ / "failure.json"};
        remove_drafts(written, killed.process);
      }) {}

void RunFolder::start(const std::string& config, std::int64_t iteration) {
  write_text_file(dir_ / kConfigName, config);
  metrics_ =
      std::make_unique<MetricsFile>(dir_ / kMetricsName, iteration, [this] { return is_ours(); });
}

void RunFolder::start_completions(std::int64_t iteration) {
  completions_ = std::make_unique<MetricsFile>(dir_ / kCompletionsName, iteration,
                                               [this] { return is_ours(); });
}

void RunFolder::check_free(const fs::path& dir) {
  if (dir.empty()) return;
  const std::optional<LockOwner> owner = living_owner(dir / kLockName);
  if (!owner) return;
  throw Error(Fault::kUsage,
              "--save: {}: in use by process {} on {}, since {}; wait until it has "
              "ended, or write elsewhere",
              dir.string(), owner->process, owner->host, owner->since);
}

void RunFolder::check_ours() const {
  const std::string loss = lock_.loss();
  if (loss.empty()) return;
  throw Error(
      Fault::kData,
      "--save: {}: the folder does not belong to this run any more; nothing more is saved. "
      "It was removed, renamed or replaced during the run; continue from the last checkpoint "
      "where it is now (--load), or start again",
      loss);
}

bool continues(const fs::path& load, const fs::path& save) {
  if (load.empty() || save.empty()) return false;
  if (same_folder(load, save)) return true;
  const fs::path parent = (load / "").parent_path().parent_path();
  return same_folder(parent.empty() ? fs::path(".") : parent, save);
}

std::string warning_of_rare_saves(double seconds_left, const std::string& save,
                                  std::int64_t save_interval) {
  if (save_interval > 0 || seconds_left < kSecondsOfWarning) return "";
  return fmt::format(
      "this run takes about {:.1f} hours more and saves {}: a crash would lose all "
      "of it; give {}--save-interval N",
      seconds_left / 3600, save.empty() ? "nothing" : "at its end only",
      save.empty() ? "--save DIR and " : "");
}

}  // namespace piton
