// One writer at a time, among processes.
//
// The lock is the kernel's (flock) on a small file that names its owner; it goes with the process,
// however that ends. The file is removed at release; one that was left by a killed process is in
// nobody's way, and tells whose drafts may be removed.
//
// Some network file systems have no such locks. There the file itself is the lock: created only if
// absent, touched by a thread of its owner, and taken over when it was not touched for a while or
// its owner, a process of this host, is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace piton {

struct LockOwner {
  std::string host;
  std::int64_t process = 0;
  std::string since;  // UTC

  bool operator==(const LockOwner&) const = default;
};

// Who has written its name into the lock file at `path`, if anybody, and is not known to be dead: a
// process of another host counts as alive. Takes nothing, so it is in nobody's way.
std::optional<LockOwner> living_owner(const std::filesystem::path& path);

struct LockRules {
  bool kernel_locks = true;  // false: as if the file system had none
  std::chrono::milliseconds touched_every{15'000};
  std::chrono::milliseconds stale_after{120'000};
};

class LockFile {
 public:
  // What is done about a process that was killed while it held the lock, before this one is named
  // in its place: so a second kill loses nothing of the first.
  using AfterKill = std::function<void(const LockOwner&)>;

  // Takes the lock at once, or throws Error(kUsage) that says who holds it; `what` names the thing
  // that is locked ("--save: runs/a"). Throws Error(kData) where the file cannot be created.
  LockFile(std::filesystem::path path, const std::string& what, const LockRules& rules = {},
           const AfterKill& after_kill = {});
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // Who held it last and did not release it: that process was killed.
  const std::optional<LockOwner>& predecessor() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
