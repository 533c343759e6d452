#include "comm/sockets/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/error.h"

namespace piton {

namespace {

// A file descriptor, closed at the end.
class MemoryFile {
 public:
  explicit MemoryFile(int descriptor) : descriptor_(descriptor) {}
  MemoryFile(MemoryFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

MemoryFile make_file(std::int64_t bytes) {
  MemoryFile file(::memfd_create("piton ranks", MFD_CLOEXEC));
  if (file.descriptor() < 0 || ::ftruncate(file.descriptor(), bytes) != 0) {
    throw Error(Fault::kMemory,
                "comm: no shared memory of {} bytes for this rank: {}; start fewer ranks on a "
                "host, or allow more open files (ulimit -n)",
                bytes, system_message(errno));
  }
  return file;
}

class FileWindow final : public SharedWindow {
 public:
  FileWindow(Rendezvous& rendezvous, const std::vector<int>& world_ranks,
             std::int64_t segment_bytes)
      : SharedWindow(segment_bytes) {
    const MemoryFile mine = make_file(bytes_);
    const std::string place = fmt::format("/proc/{}/fd/{}", ::getpid(), mine.descriptor());
    const auto places = rendezvous.gather("shared memory", world_ranks, place);
    for (std::size_t member = 0; member < places.size(); ++member) {
      map(places[member], world_ranks[member]);
    }
    // Nobody closes its file before all have opened it.
    rendezvous.gather("shared memory, opened", world_ranks, "");
  }

  void free() override {
    for (std::byte* segment : segments_) ::munmap(segment, static_cast<std::size_t>(bytes_));
    segments_.clear();
  }

 private:
  void map(const std::string& place, int world_rank) {
    const MemoryFile file(::open(place.c_str(), O_RDWR | O_CLOEXEC));
    struct stat found {};
    void* start = MAP_FAILED;
    if (file.descriptor() >= 0 && ::fstat(file.descriptor(), &found) == 0) {
      PITON_ASSERT(found.st_size == bytes_, "shared memory of {} bytes, wanted {}", found.st_size,
                   bytes_);
      start = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED,
                     file.descriptor(), 0);
    }
    if (start == MAP_FAILED) {
      throw Error(Fault::kMemory,
                  "comm: the memory of rank {} on this host ({} bytes at {}) cannot be mapped: {}; "
                  "start fewer ranks on a host, or use mpirun with a Piton that has MPI",
                  world_rank, bytes_, place, system_message(errno));
    }
    segments_.push_back(static_cast<std::byte*>(start));
  }
};

}  // namespace

std::unique_ptr<SharedWindow> share_memory(Rendezvous& rendezvous,
                                           const std::vector<int>& world_ranks,
                                           std::int64_t segment_bytes) {
  return std::make_unique<FileWindow>(rendezvous, world_ranks, segment_bytes);
}

}  // namespace piton
