// A lock between processes: one writer at a time.
//
// The lock is a kernel lock (flock) on a small file that names its owner; the kernel releases it
// when the process ends, however it ends. The file is removed at release. A file left by a killed
// process does not block others; it tells whose draft files may be removed.
//
// Some network file systems have no such locks. There the file itself is the lock: it is created
// only if absent, and the thread of its owner touches it regularly. Another process takes it over
// if it was not touched for LockRules::stale_after, or if its owner is a process of this host that
// has ended.
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

// "process 12 on host, since 2026-01-31 12:00:00 UTC"; "another process" if it is not known.
std::string described_owner(const std::optional<LockOwner>& owner);

// The owner named in the lock file at `path`, unless it is known to have ended: a process of
// another host counts as alive. Does not take the lock, so it blocks nobody.
std::optional<LockOwner> living_owner(const std::filesystem::path& path);

struct LockRules {
  bool kernel_locks = true;  // false: treat the file system as one without locks
  std::chrono::milliseconds touched_every{15'000};
  std::chrono::milliseconds stale_after{120'000};
  // Called while another process holds the lock: true looks again after `looked_every`, so one that
  // ends, however it ends, is followed. Null: the lock is refused at once.
  std::function<bool(const std::optional<LockOwner>&)> waits;
  std::chrono::milliseconds looked_every{100};
};

class LockFile {
 public:
  // Called with the owner that was killed while it held the lock, before this process is written in
  // its place. If this process is killed too, the next one still finds the first owner.
  using AfterKill = std::function<void(const LockOwner&)>;

  // Takes the lock at once (or when LockRules::waits has waited for it), or throws Error(kUsage)
  // with its holder; `what` names the thing that is locked ("--save: runs/a"). Throws Error(kData)
  // if the file cannot be created.
  LockFile(std::filesystem::path path, const std::string& what, const LockRules& rules = {},
           const AfterKill& after_kill = {});
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // Why the lock is not held any more, although nothing released it: "/a/run.lock is gone", as when
  // its folder was removed or renamed, or "/a/run.lock is another run's". "": it is held.
  std::string loss() const;

  // The last owner, if it did not release the lock because it was killed.
  const std::optional<LockOwner>& predecessor() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
