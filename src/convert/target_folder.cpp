#include "convert/target_folder.h"

#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/disk.h"

namespace piton {

namespace fs = std::filesystem;

namespace {

// "runs/a/" and "runs/a" are the same folder.
fs::path without_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path with_end(fs::path path, const char* end) {
  path += end;
  return path;
}

void check_target(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  const auto refuse = [&](const char* what) {
    throw Error(Fault::kUsage, "--save: {}: {}; wanted a folder that is not there yet, or empty",
                target.string(), what);
  };
  if (target.filename().empty() || target.filename() == "." || target.filename() == "..")
    refuse("names no folder of its own");
  if (!fs::exists(status)) return;
  if (fs::is_symlink(status)) refuse("is a link");
  if (!fs::is_directory(status)) refuse("is a file");
  if (!fs::is_empty(target, error)) refuse("is not empty");
}

}  // namespace

TargetFolder::TargetFolder(const fs::path& target)
    : target_(without_slash(target)), draft_(with_end(target_, ".unfinished")) {
  check_target(target_);
  create_folders(target_.parent_path());
  lock_ = std::make_unique<LockFile>(with_end(target_, ".lock"),
                                     fmt::format("--save: {}", target_.string()));
  const Disk disk;
  disk.remove_tree(draft_);
  create_folders(draft_);
}

TargetFolder::~TargetFolder() {
  std::error_code ignored;
  fs::remove_all(draft_, ignored);
}

void TargetFolder::publish() {
  check_target(target_);
  sync_folder(draft_);
  Disk().rename(draft_, target_);
  sync_folder(target_.has_parent_path() ? target_.parent_path() : fs::path("."));
}

}  // namespace piton
