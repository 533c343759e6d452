#include "base/files/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/drafts.h"
#include "base/files/file_failure.h"
#include "base/files/interrupted.h"

namespace piton {
namespace {

constexpr mode_t kFileMode = 0640;
constexpr mode_t kFolderMode = 0750;
// Smaller writes are collected in a buffer: a system call takes about 1 us, as long as copying 16
// KB. Larger ones (tensors) are written directly.
constexpr std::size_t kBufferBytes = 256 * 1024;
// The disk begins to write a large file while it is made, so that the flush at its end is short.
constexpr std::int64_t kStartedBytes = std::int64_t{32} << 20;
// How many names are tried for a draft file before this is an error.
constexpr int kMostDrafts = 1000;

// An open file. The destructor closes it.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int value = -1) {
    if (value_ >= 0) ::close(value_);
    value_ = value;
  }
  int release() { return std::exchange(value_, -1); }
  int get() const { return value_; }

 private:
  int value_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  return until_uninterrupted([&] { return ::open(path, flags | O_CLOEXEC, mode); });
}

// Opens for reading; folders are refused (open() takes them). With O_NONBLOCK among `more_flags`
// the open of a pipe does not wait for its writer.
int open_for_reading(const std::filesystem::path& path, struct stat* about, int more_flags = 0) {
  Descriptor file(open_retrying(path.c_str(), O_RDONLY | more_flags));
  if (file.get() < 0) throw_file_failure(path, "open", errno);
  if (::fstat(file.get(), about) != 0) throw_file_failure(path, "look at", errno);
  if (S_ISDIR(about->st_mode)) throw_file_failure(path, "read", EISDIR);
  return file.release();
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

}  // namespace

void create_folders(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  struct stat about;
  if (::stat(folder.c_str(), &about) == 0) {
    if (!S_ISDIR(about.st_mode)) throw_file_failure(folder, "create folder", ENOTDIR);
    return;
  }
  if (errno != ENOENT) throw_file_failure(folder, "create folder", errno);
  create_folders(folder.has_filename() ? folder.parent_path() : folder.parent_path().parent_path());
  if (::mkdir(folder.c_str(), kFolderMode) != 0) {
    // Not an error if another rank has created it in the meantime.
    if (errno == EEXIST) return create_folders(folder);
    throw_file_failure(folder, "create folder", errno);
  }
  if (::chmod(folder.c_str(), kFolderMode) != 0)
    throw_file_failure(folder, "set the mode of", errno);
  // Without this sync, a power failure could lose the folder and the synced files in it.
  sync_folder(folder_of(folder.has_filename() ? folder : folder.parent_path()));
}

std::string read_text_file(const std::filesystem::path& path, std::int64_t limit_bytes) {
  struct stat about;
  const Descriptor file(open_for_reading(path, &about));
  const auto too_long = [&](std::int64_t bytes) {
    throw Error(Fault::kData, "{}: too long: got {}{} bytes, wanted at most {}", path.string(),
                S_ISREG(about.st_mode) ? "" : "more than ", bytes, limit_bytes);
  };
  if (S_ISREG(about.st_mode) && about.st_size > limit_bytes) too_long(about.st_size);
  // The size is a hint only: pipes and /proc have none, and a file may grow.
  std::string text;
  std::size_t length = 0;
  text.resize(static_cast<std::size_t>(std::max<std::int64_t>(about.st_size, 0)) + 1);
  for (;;) {
    if (length == text.size()) text.resize(std::max<std::size_t>(2 * length, 64 * 1024));
    const ssize_t got =
        ::read(file.get(), text.data() + length, std::min(text.size() - length, kPieceBytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_failure(path, "read", errno);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
    if (static_cast<std::int64_t>(length) > limit_bytes) too_long(limit_bytes);
  }
  text.resize(length);
  return text;
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor handle(open_retrying(folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (handle.get() < 0) throw_file_failure(folder, "open folder", errno);
  // EINVAL: a file system that cannot (and need not) sync folders.
  if (until_uninterrupted([&] { return ::fsync(handle.get()); }) != 0 && errno != EINVAL) {
    throw_file_failure(folder, "flush folder", errno);
  }
}

struct AtomicFile::State {
  std::filesystem::path path;
  std::filesystem::path temporary;
  Descriptor file;
  std::vector<std::byte> buffer;  // bytes of the file from flushed_bytes on, not yet written
  std::int64_t flushed_bytes = 0;
  std::int64_t started_bytes = 0;  // that the disk was asked to write

  ~State() {
    if (file.get() >= 0) ::unlink(temporary.c_str());
  }

  void put(std::span<const std::byte> bytes, std::int64_t offset) {
    while (!bytes.empty()) {
      const ssize_t wrote =
          ::pwrite(file.get(), bytes.data(), std::min(bytes.size(), kPieceBytes), offset);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) throw_file_failure(path, "write", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
      offset += wrote;
    }
  }

  void append(std::span<const std::byte> bytes) {
    put(bytes, flushed_bytes);
    flushed_bytes += std::ssize(bytes);
    if (flushed_bytes - started_bytes < kStartedBytes) return;
    // Advice: errors of the disk are those of fsync.
    ::sync_file_range(file.get(), started_bytes, flushed_bytes - started_bytes,
                      SYNC_FILE_RANGE_WRITE);
    started_bytes = flushed_bytes;
  }

  void flush() {
    append(buffer);
    buffer.clear();
  }
};

AtomicFile::AtomicFile(std::filesystem::path path) : state_(std::make_unique<State>()) {
  create_folders(path.parent_path());
  if (std::filesystem::is_directory(path)) throw_file_failure(path, "write", EISDIR);
  state_->temporary = draft_path(path, ::getpid());
  state_->path = std::move(path);
  // An existing file of this name was not made by this process, but by a killed one with the same
  // process id, or by the user.
  for (int other = 1; state_->file.get() < 0; ++other) {
    state_->file.reset(open_retrying(state_->temporary.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, kFileMode));
    if (state_->file.get() >= 0) break;
    if (errno != EEXIST || other == kMostDrafts) throw_file_failure(state_->path, "create", errno);
    state_->temporary = draft_path(state_->path, ::getpid());
    state_->temporary += fmt::format("-{}", other);
  }
  if (::fchmod(state_->file.get(), kFileMode) != 0)
    throw_file_failure(state_->path, "set the mode of", errno);
  state_->buffer.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() = default;
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;

void AtomicFile::write(std::span<const std::byte> bytes) {
  State& state = *state_;
  PITON_ASSERT(state.file.get() >= 0, "write to {} after commit", state.path.string());
  if (state.buffer.size() + bytes.size() > kBufferBytes) state.flush();
  if (bytes.size() >= kBufferBytes) {
    state.append(bytes);
  } else {
    state.buffer.insert(state.buffer.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  PITON_ASSERT(state_->file.get() >= 0, "write to {} after commit", state_->path.string());
  PITON_ASSERT(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= size_bytes(),
               "{} bytes at {} of {}", bytes.size(), offset, size_bytes());
  state_->flush();
  state_->put(bytes, offset);
}

std::int64_t AtomicFile::size_bytes() const {
  return state_->flushed_bytes + static_cast<std::int64_t>(state_->buffer.size());
}

void AtomicFile::commit() {
  State& state = *state_;
  PITON_ASSERT(state.file.get() >= 0, "second commit of {}", state.path.string());
  state.flush();
  if (until_uninterrupted([&] { return ::fsync(state.file.get()); }) != 0) {
    throw_file_failure(state.path, "flush", errno);
  }
  if (::rename(state.temporary.c_str(), state.path.c_str()) != 0) {
    throw_file_failure(state.path, "rename into place", errno);
  }
  state.file.reset();
  sync_folder(folder_of(state.path));
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  struct stat about;
  const Descriptor file(open_for_reading(path, &about, O_NONBLOCK));
  if (!S_ISREG(about.st_mode)) {
    throw Error(Fault::kData, "{}: cannot map: got a pipe or device, wanted a file", path.string());
  }
  size_ = static_cast<std::size_t>(about.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) throw_file_failure(path, "map", errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace piton
