#include "base/files/lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/drafts.h"
#include "base/files/file_failure.h"
#include "base/files/host_name.h"
#include "base/files/interrupted.h"

namespace piton {
namespace {

constexpr mode_t kMode = 0640;
// How often to try: a lock may be released, or removed as abandoned, between two system calls.
constexpr int kLooks = 100;

LockOwner this_process() {
  const std::time_t now = ::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return {.host = host_name(), .process = ::getpid(), .since = text.data()};
}

std::string text_of(const LockOwner& owner) {
  return fmt::format("{}\n{}\n{}\n", owner.host, owner.process, owner.since);
}

// The owner in the text of the file. Nullopt if the file is empty or not a lock of Piton.
std::optional<LockOwner> owner_in(int descriptor) {
  std::array<char, 1024> text{};
  const ssize_t got =
      until_uninterrupted([&] { return ::pread(descriptor, text.data(), text.size(), 0); });
  if (got <= 0) return std::nullopt;
  const std::string_view all(text.data(), static_cast<std::size_t>(got));
  const std::size_t first = all.find('\n');
  const std::size_t second = first == all.npos ? all.npos : all.find('\n', first + 1);
  const std::size_t third = second == all.npos ? all.npos : all.find('\n', second + 1);
  if (third == all.npos) return std::nullopt;
  LockOwner owner{.host = std::string(all.substr(0, first)),
                  .since = std::string(all.substr(second + 1, third - second - 1))};
  const auto [end, error] =
      std::from_chars(all.data() + first + 1, all.data() + second, owner.process);
  if (error != std::errc() || end != all.data() + second || owner.process <= 0) return std::nullopt;
  return owner;
}

int open_lock(const std::filesystem::path& path, int more_flags) {
  // O_NOFOLLOW: the owner's name must not be written through a symbolic link into another file.
  return until_uninterrupted([&] {
    return ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more_flags, kMode);
  });
}

// True if `path` still names the file that is open: another process may have removed it.
bool still_named(const std::filesystem::path& path, int descriptor) {
  struct stat open_one, named;
  return ::fstat(descriptor, &open_one) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

void write_owner(const std::filesystem::path& path, int descriptor) {
  const std::string text = text_of(this_process());
  if (::ftruncate(descriptor, 0) != 0 || until_uninterrupted([&] {
                                           return ::pwrite(descriptor, text.data(), text.size(), 0);
                                         }) != static_cast<ssize_t>(text.size())) {
    throw_file_failure(path, "write", errno);
  }
}

[[noreturn]] void refuse(const std::string& what, const std::filesystem::path& path,
                         const std::optional<LockOwner>& owner) {
  throw Error(Fault::kUsage,
              "{}: in use by {} (lock {}); wait until it has ended, or write elsewhere", what,
              described_owner(owner), path.string());
}

std::chrono::nanoseconds changed_at(const struct stat& about) {
  return std::chrono::seconds(about.st_mtim.tv_sec) +
         std::chrono::nanoseconds(about.st_mtim.tv_nsec);
}

}  // namespace

std::string described_owner(const std::optional<LockOwner>& owner) {
  if (!owner) return "another process";
  return fmt::format("process {} on {}, since {}", owner->process, owner->host, owner->since);
}

std::optional<LockOwner> living_owner(const std::filesystem::path& path) {
  const int descriptor = until_uninterrupted(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (descriptor < 0) return std::nullopt;
  const std::optional<LockOwner> owner = owner_in(descriptor);
  ::close(descriptor);
  if (!owner || owner->host != host_name()) return owner;
  const bool is_gone = ::kill(static_cast<pid_t>(owner->process), 0) != 0 && errno == ESRCH;
  return is_gone ? std::nullopt : owner;
}

struct LockFile::State {
  std::filesystem::path path;
  std::string what;
  LockRules rules;
  AfterKill after_kill;
  int descriptor = -1;
  std::optional<LockOwner> predecessor;
  // Used if the file itself is the lock.
  std::mutex mutex;
  std::condition_variable ends;
  bool released = false;
  std::thread toucher;

  ~State() {
    if (toucher.joinable()) {
      {
        const std::lock_guard guard(mutex);
        released = true;
      }
      ends.notify_all();
      toucher.join();
    }
    if (descriptor < 0) return;
    // Unlink before the lock is released: the next process checks that the name still refers to the
    // file it locked.
    if (still_named(path, descriptor)) ::unlink(path.c_str());
    ::close(descriptor);
  }

  // Tests flock() on a temporary file: a test on the lock file itself would leave it without an
  // owner.
  bool kernel_locks() const {
    // An unnamed file if the file system has them: a process that is killed here leaves nothing
    // behind.
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    int one = until_uninterrupted(
        [&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); });
    if (one < 0) {
      const std::filesystem::path probe = draft_path(path, ::getpid());
      one = open_lock(probe, O_CREAT | O_EXCL);
      if (one >= 0) ::unlink(probe.c_str());
    }
    if (one < 0) return true;  // opening the lock itself will report this failure
    const bool works = until_uninterrupted([&] { return ::flock(one, LOCK_EX | LOCK_NB); }) == 0;
    ::close(one);
    return works;
  }

  // Returns when the lock is worth another look.
  void wait_or_refuse(const std::optional<LockOwner>& owner) const {
    if (!rules.waits || !rules.waits(owner)) refuse(what, path, owner);
    std::this_thread::sleep_for(rules.looked_every);
  }

  void lock_by_kernel() {
    for (int look = 0; look < kLooks; ++look) {
      descriptor = open_lock(path, O_CREAT);
      if (descriptor < 0) throw_file_failure(path, "create", errno);
      if (until_uninterrupted([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) != 0) {
        const int code = errno;
        const std::optional<LockOwner> owner = owner_in(descriptor);
        ::close(std::exchange(descriptor, -1));
        if (code != EWOULDBLOCK) throw_file_failure(path, "lock", code);
        wait_or_refuse(owner);
        look = 0;
        continue;
      }
      if (still_named(path, descriptor)) {
        predecessor = owner_in(descriptor);
        if (!predecessor) refuse_foreign();
        if (predecessor && after_kill) after_kill(*predecessor);
        write_owner(path, descriptor);
        return;
      }
      ::close(std::exchange(descriptor, -1));
    }
    refuse(what, path, std::nullopt);
  }

  // Refuses a file of this name with other content, and leaves it unchanged.
  void refuse_foreign() {
    struct stat about;
    if (::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0) return;
    ::close(std::exchange(descriptor, -1));
    throw Error(Fault::kUsage, "{}: {} is not a lock file of this program; move it away", what,
                path.string());
  }

  // Compares two times of the file system, because the clocks of hosts may differ.
  bool is_abandoned(int held, const std::optional<LockOwner>& owner) const {
    if (owner && owner->host == host_name() && ::kill(static_cast<pid_t>(owner->process), 0) != 0 &&
        errno == ESRCH) {
      return true;
    }
    const std::filesystem::path probe = draft_path(path, ::getpid());
    const int descriptor_of_probe = open_lock(probe, O_CREAT | O_EXCL);
    if (descriptor_of_probe < 0) return false;
    struct stat now, then;
    const bool known = ::fstat(descriptor_of_probe, &now) == 0 && ::fstat(held, &then) == 0;
    ::close(descriptor_of_probe);
    ::unlink(probe.c_str());
    return known && changed_at(now) - changed_at(then) > rules.stale_after;
  }

  void lock_by_file() {
    for (int look = 0; look < kLooks; ++look) {
      descriptor = open_lock(path, O_CREAT | O_EXCL);
      if (descriptor >= 0) {
        if (predecessor && after_kill) after_kill(*predecessor);
        write_owner(path, descriptor);
        toucher = std::thread([this] { touch(); });
        return;
      }
      if (errno != EEXIST) throw_file_failure(path, "create", errno);
      const int held = open_lock(path, 0);
      if (held < 0) continue;  // released since
      const std::optional<LockOwner> owner = owner_in(held);
      const bool removed = is_abandoned(held, owner) && remove_abandoned(held);
      ::close(held);
      if (removed) {
        predecessor = owner;
      } else {
        wait_or_refuse(owner);
        look = 0;
      }
    }
    refuse(what, path, std::nullopt);
  }

  // Renames the file first and then checks it: another process may have replaced it with its own
  // lock.
  bool remove_abandoned(int held) const {
    const std::filesystem::path aside = draft_path(path, ::getpid());
    if (::rename(path.c_str(), aside.c_str()) != 0) return errno == ENOENT;
    const bool same = still_named(aside, held);
    if (!same && ::link(aside.c_str(), path.c_str()) != 0) return false;
    ::unlink(aside.c_str());
    return same;
  }

  void touch() {
    std::unique_lock guard(mutex);
    while (!ends.wait_for(guard, rules.touched_every, [&] { return released; })) {
      ::futimens(descriptor, nullptr);
    }
  }
};

LockFile::LockFile(std::filesystem::path path, const std::string& what, const LockRules& rules,
                   const AfterKill& after_kill)
    : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->what = what;
  state_->rules = rules;
  state_->after_kill = after_kill;
  if (rules.kernel_locks && state_->kernel_locks()) {
    state_->lock_by_kernel();
  } else {
    state_->lock_by_file();
  }
}

LockFile::~LockFile() = default;

std::string LockFile::loss() const {
  if (still_named(state_->path, state_->descriptor)) return "";
  struct stat about;
  const bool gone = ::lstat(state_->path.c_str(), &about) != 0;
  return fmt::format("{} is {}", state_->path.string(), gone ? "gone" : "another run's");
}

const std::optional<LockOwner>& LockFile::predecessor() const { return state_->predecessor; }

}  // namespace piton
