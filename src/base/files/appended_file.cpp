#include "base/files/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/files/file_failure.h"
#include "base/files/files.h"
#include "base/files/interrupted.h"

namespace piton {

AppendedFile::AppendedFile(const std::filesystem::path& path, MayRestore may_restore)
    : path_(path), may_restore_(std::move(may_restore)) {
  open();
}

// On failure the file that was open stays open.
void AppendedFile::open() {
  const int opened =
      until_uninterrupted([&] { return ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW); });
  if (opened < 0) throw_file_failure(path_, "open", errno);
  struct stat about {};
  if (::fstat(opened, &about) != 0) {
    const int code = errno;
    ::close(opened);
    throw_file_failure(path_, "look at", code);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = opened;
  size_ = about.st_size;
}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

std::string AppendedFile::append(std::string_view record) {
  pending_ += record;
  try {
    look_after_it();
  } catch (const Error& error) {
    return error.what();
  }
  return write_pending();
}

void AppendedFile::look_after_it() {
  struct stat own {
  }, named{};
  if (::fstat(descriptor_, &own) != 0) throw_file_failure(path_, "look at", errno);
  const bool exists = ::lstat(path_.c_str(), &named) == 0;
  if (exists && own.st_ino == named.st_ino && own.st_dev == named.st_dev) {
    is_lost_ = false;
    if (own.st_size >= size_) return;
    size_ = own.st_size;
    note_ = fmt::format("{}: was cut while the run wrote to it; it continues at the end",
                        path_.string());
    return;
  }
  if (may_restore_ && !may_restore_()) {
    if (!std::exchange(is_lost_, true)) {
      note_ = fmt::format(
          "{}: its folder was removed, renamed or replaced during the run; what is written goes to "
          "the file that was opened",
          path_.string());
    }
    return;
  }
  if (exists) {
    open();
    note_ = fmt::format("{}: was replaced while the run wrote to it; it continues at its end",
                        path_.string());
    return;
  }
  restore();
  note_ = fmt::format(
      "{}: was removed while the run wrote to it; it is there again, with all that was in it",
      path_.string());
}

// The file has no name any more, but its bytes can still be read.
void AppendedFile::restore() {
  std::string bytes(static_cast<std::size_t>(size_), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = until_uninterrupted([&] {
      return ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                     static_cast<off_t>(done));
    });
    if (got < 0) throw_file_failure(path_, "read", errno);
    if (got == 0) bytes.resize(done);  // it was cut too
    done += static_cast<std::size_t>(got);
  }
  write_text_file(path_, bytes);
  open();
}

void AppendedFile::finish() {
  const std::string why = write_pending();
  if (!why.empty()) throw Error(Fault::kData, why);
}

std::string AppendedFile::write_pending() {
  std::size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t wrote = until_uninterrupted([&] {
      return ::pwrite(descriptor_, pending_.data() + done, pending_.size() - done,
                      size_ + static_cast<std::int64_t>(done));
    });
    if (wrote < 0) {
      const int code = errno;
      // Removes the part of a record that was written: the file holds whole records only.
      (void)until_uninterrupted([&] { return ::ftruncate(descriptor_, size_); });
      return fmt::format("{}: cannot write: {}", path_.string(), system_message(code));
    }
    done += static_cast<std::size_t>(wrote);
  }
  size_ += static_cast<std::int64_t>(done);
  pending_.clear();
  return "";
}

}  // namespace piton
