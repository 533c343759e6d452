// The folder or file that a conversion makes: there whole, or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/files/lock_file.h"

namespace piton {

// After the name of the target, of the folder that is written to.
inline constexpr const char* kDraftEnd = ".unfinished";

class Target {
 public:
  // Makes PATH.unfinished next to `path`, a folder to write into. What a killed conversion left of
  // it is removed. `file`: the target is not the folder but this file of it; else it is the folder.
  // Throws Error(kUsage) where the target is there already (a folder may be empty), is a link, or
  // another process converts to it.
  explicit Target(const std::filesystem::path& path, std::string file = "");
  // Throws Error(kUsage) where the target could not be made, except because of another process.
  static void check(const std::filesystem::path& path, bool is_file);
  // Removes what was not published.
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // Where to write.
  const std::filesystem::path& draft() const { return draft_; }
  // What was made, as long as it is not published.
  std::filesystem::path result() const { return file_.empty() ? draft_ : draft_ / file_; }
  // The result takes the target's name; all files in the draft have to be on the disk.
  void publish();

 private:
  std::filesystem::path path_;
  std::string file_;
  std::filesystem::path draft_;
  std::unique_ptr<LockFile> lock_;
};

}  // namespace piton
