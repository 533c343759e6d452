#include "base/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/file_failure.h"
#include "base/interrupted.h"

namespace piton {

AppendedFile::AppendedFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ =
      until_uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW); });
  if (descriptor_ < 0) throw_file_failure(path, "open", errno);
  struct stat about {};
  if (::fstat(descriptor_, &about) != 0) {
    const int code = errno;
    ::close(descriptor_);
    throw_file_failure(path, "look at", code);
  }
  size_ = about.st_size;
}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

std::string AppendedFile::append(std::string_view record) {
  pending_ += record;
  return write_pending();
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
