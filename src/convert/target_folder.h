// The folder made by a conversion: complete, or absent.
#pragma once

#include <filesystem>
#include <memory>

#include "base/lock_file.h"

namespace piton {

class TargetFolder {
 public:
  // Creates TARGET.unfinished next to the target, which must be absent or an empty folder. Removes
  // what a killed conversion left of it. Throws Error(kUsage) if the target has contents, is a
  // link, or another process converts to it.
  explicit TargetFolder(const std::filesystem::path& target);
  // Removes the draft unless it was published.
  ~TargetFolder();
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;

  // Where to write.
  const std::filesystem::path& draft() const { return draft_; }
  // Gives the draft the target's name; all its files must be on the disk.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path draft_;
  std::unique_ptr<LockFile> lock_;
};

}  // namespace piton
