#include "comm/mpi/job_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/interrupted.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

std::string prefix() { return fmt::format("piton-job.{}.", ::geteuid()); }

bool is_number(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}
constexpr std::string_view kDecimal = "0123456789";
constexpr std::string_view kHexadecimal = "0123456789abcdef";

// The parts of the name between dots, from the end: "osc_sm.my.host.1940001.0.3" gives "3", "0",
// "1940001", ...
std::vector<std::string_view> words_from_end(std::string_view name) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t point = name.rfind('.');
    words.push_back(point == std::string_view::npos ? name : name.substr(point + 1));
    if (point == std::string_view::npos) return words;
    name = name.substr(0, point);
  }
}

// Whether this is the name of a shared-memory file that Open MPI makes for `job` of this user.
bool is_of_job(const std::string& name, const std::string& job) {
  const auto words = words_from_end(name);
  if (name.starts_with("vader_segment.")) {
    return words.size() >= 5 && is_number(words[0], kDecimal) && words[1] == job &&
           words[2] == std::to_string(::geteuid());
  }
  return name.starts_with("osc_sm.") && words.size() >= 5 && is_number(words[0], kDecimal) &&
         is_number(words[1], kDecimal) && words[2] == job;
}

// Whether `path` is a regular file or folder (`kind`) of this user, and not a link.
bool is_own(const fs::path& path, mode_t kind) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && (about.st_mode & S_IFMT) == kind &&
         about.st_uid == ::geteuid();
}

// Whether any other process of this user maps the file. Processes of other users cannot map a file
// of mode 0600.
bool is_mapped(const fs::path& path) {
  const std::string own = std::to_string(::getpid());
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string number = process.path().filename().string();
    if (number == own || !is_number(number, kDecimal)) continue;
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.ends_with(path.string())) return true;
    }
  }
  return false;
}

// The start time of a process, in clock ticks since boot; empty if there is no such process.
std::string start_of(std::string_view process) {
  std::ifstream stream(fmt::format("/proc/{}/stat", process));
  std::ostringstream text;
  text << stream.rdbuf();
  // The name in parentheses may contain any character; the start time is the 20th word after it.
  const std::string all = text.str();
  const std::size_t name = all.rfind(')');
  if (name == std::string::npos) return "";
  std::istringstream words(all.substr(name + 1));
  std::string word;
  for (int i = 0; i < 20; ++i) words >> word;
  return word;
}

std::string process_namespace() {
  std::error_code error;
  return fs::read_symlink("/proc/self/ns/pid", error).string();
}

// "/tmp/ompi.host.0/pid.4711": 4711; "" for any other form.
std::string launcher_of(const fs::path& session) {
  const std::string name = session.filename().string();
  const bool known = name.starts_with("pid.") && is_number(name.substr(4), kDecimal) &&
                     session.parent_path().filename().string().starts_with("ompi.");
  return known ? name.substr(4) : "";
}

std::string text_of(const LaunchedJob& job) {
  const std::string launcher = launcher_of(job.session);
  if (launcher.empty()) return "\n";
  return fmt::format("{}\n{} {} {}\n", job.session.string(), launcher, start_of(launcher),
                     process_namespace());
}

void remove_session(const std::string& record) {
  std::istringstream stream(record);
  std::string session;
  std::string launcher;
  std::string start;
  std::string space;
  if (!std::getline(stream, session) || !(stream >> launcher >> start >> space)) return;
  if (launcher != launcher_of(session) || space != process_namespace()) return;
  if (start_of(launcher) == start || !is_own(session, S_IFDIR)) return;
  std::error_code ignored;
  fs::remove_all(session, ignored);
}

// Removes the files of a job of which at most this rank is alive. True if none is left.
bool remove_files(const fs::path& memory, const std::string& job) {
  std::error_code error;
  std::vector<fs::path> found;
  bool all = true;
  for (const auto& entry : fs::directory_iterator(memory, error)) {
    if (is_of_job(entry.path().filename().string(), job)) found.push_back(entry.path());
  }
  for (const fs::path& path : found) {
    if (!is_own(path, S_IFREG)) continue;
    if (is_mapped(path)) {
      all = false;
    } else {
      fs::remove(path, error);
    }
  }
  return all;
}

bool lock(int descriptor, int how) {
  return until_uninterrupted([&] { return ::flock(descriptor, how); }) == 0;
}

bool names_file(int descriptor, const fs::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         S_ISREG(open.st_mode) && open.st_ino == named.st_ino && open.st_dev == named.st_dev &&
         open.st_uid == ::geteuid();
}

// Removes everything of the job, and then the record. The caller holds the record's lock
// exclusively. If a process that is about to end still maps a file, files and record stay for the
// next run.
void clear(const fs::path& memory, const fs::path& path, int descriptor) {
  std::string record(4096, '\0');
  const ssize_t got = ::pread(descriptor, record.data(), record.size(), 0);
  record.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (!remove_files(memory, path.filename().string().substr(prefix().size()))) return;
  remove_session(record);
  ::unlink(path.c_str());
}

void sweep_all(const fs::path& memory) {
  std::error_code error;
  std::vector<fs::path> records;
  for (const auto& entry : fs::directory_iterator(memory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix()) && is_number(name.substr(prefix().size()), kHexadecimal)) {
      records.push_back(entry.path());
    }
  }
  for (const fs::path& path : records) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) continue;
    if (lock(descriptor, LOCK_EX | LOCK_NB) && names_file(descriptor, path)) {
      clear(memory, path, descriptor);
    }
    ::close(descriptor);
  }
}

}  // namespace

void sweep_dead_jobs(const fs::path& memory) noexcept {
  try {
    sweep_all(memory);
  } catch (...) {
    // The next run removes what is left.
  }
}

JobRecord::JobRecord(const LaunchedJob& job, fs::path memory) noexcept
    : memory_(std::move(memory)) {
  try {
    if (!is_number(job.number, kHexadecimal)) return;
    // Removes also an old job of the same number: process numbers of mpirun repeat.
    sweep_all(memory_);
    path_ = memory_ / (prefix() + job.number);
    const std::string text = text_of(job);
    // Another rank of the job may remove the file between open and lock: then try again.
    while (descriptor_ < 0) {
      const int descriptor =
          ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
      if (descriptor < 0) return;
      if (!lock(descriptor, LOCK_SH)) {
        ::close(descriptor);
        return;
      }
      if (names_file(descriptor, path_)) {
        descriptor_ = descriptor;
      } else {
        ::close(descriptor);
        if (fs::exists(path_) && !is_own(path_, S_IFREG)) return;
      }
    }
    // All ranks write the same text. An empty record, left by a failed write, is valid too.
    static_cast<void>(
        until_uninterrupted([&] { return ::pwrite(descriptor_, text.data(), text.size(), 0); }));
  } catch (...) {
    // Only an allocation can fail here; a later one will report it.
  }
}

JobRecord::~JobRecord() {
  if (descriptor_ < 0) return;
  try {
    if (lock(descriptor_, LOCK_EX | LOCK_NB) && names_file(descriptor_, path_)) {
      clear(memory_, path_, descriptor_);
    }
  } catch (...) {
    // The next run removes the files.
  }
  ::close(descriptor_);
}

}  // namespace piton
