#include "convert/target.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
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

void check_target(const fs::path& target, bool is_file) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  const auto refuse = [&](const char* what) {
    throw Error(
        Fault::kUsage, "--save: {}: {}; wanted {}", target.string(), what,
        is_file ? "a file that is not there yet" : "a folder that is not there yet, or empty");
  };
  if (target.filename().empty() || target.filename() == "." || target.filename() == "..")
    refuse("names no separate folder");
  if (!fs::exists(status)) return;
  if (fs::is_symlink(status)) refuse("is a link");
  if (is_file) refuse("is there already");
  if (!fs::is_directory(status)) refuse("is a file");
  if (!fs::is_empty(target, error)) refuse("is not empty");
}

}  // namespace

Target::Target(const fs::path& path, std::string file)
    : path_(without_slash(path)), file_(std::move(file)), draft_(with_end(path_, kDraftEnd)) {
  check_target(path_, !file_.empty());
  create_folders(path_.parent_path());
  lock_ = std::make_unique<LockFile>(with_end(path_, ".lock"),
                                     fmt::format("--save: {}", path_.string()));
  const Disk disk;
  disk.remove_tree(draft_);
  create_folders(draft_);
}

void Target::check(const fs::path& path, bool is_file) {
  check_target(without_slash(path), is_file);
}

Target::~Target() {
  std::error_code ignored;
  fs::remove_all(draft_, ignored);
}

void Target::publish() {
  check_target(path_, !file_.empty());
  sync_folder(draft_);
  Disk().rename(result(), path_);
  sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

}  // namespace piton
