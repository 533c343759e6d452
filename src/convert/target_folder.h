// The folder that a conversion makes: there whole, or not at all.
#pragma once

#include <filesystem>
#include <memory>

#include "base/lock_file.h"

namespace piton {

class TargetFolder {
 public:
  // Makes TARGET.unfinished beside the target, which must be absent or an empty folder. What a
  // killed conversion left of it is removed. Throws Error(kUsage) where the target holds something,
  // is a link, or another process converts to it.
  explicit TargetFolder(const std::filesystem::path& target);
  // Removes what was not published.
  ~TargetFolder();
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;

  // Where to write.
  const std::filesystem::path& draft() const { return draft_; }
  // The draft takes the target's name; all files in it have to be on the disk.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path draft_;
  std::unique_ptr<LockFile> lock_;
};

}  // namespace piton
