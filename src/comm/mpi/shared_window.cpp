#include "comm/mpi/shared_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "comm/mpi/mpi_call.h"

namespace piton {

SharedWindow::SharedWindow(MPI_Comm comm, std::int64_t segment_bytes) {
  const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  bytes_ = (segment_bytes + page - 1) / page * page;
  if (bytes_ == 0) bytes_ = page;
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  // Separate segments, so that the pages of each are near the member that touches them first.
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  std::byte* mine = nullptr;
  const int code =
      MPI_Win_allocate_shared(bytes_ + page, 1, info, comm, static_cast<void*>(&mine), &window_);
  MPI_Info_free(&info);
  if (code != MPI_SUCCESS) {
    throw Error(
        Fault::kMemory,
        "comm: no shared memory of {} bytes for each rank of this host; make /dev/shm larger "
        "(in a container: --shm-size), or start fewer ranks on a host",
        bytes_);
  }
  int size = 0;
  int rank = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  for (int member = 0; member < size; ++member) {
    MPI_Aint bytes = 0;
    int unit = 0;
    std::byte* base = nullptr;
    check_mpi(MPI_Win_shared_query(window_, member, &bytes, &unit, static_cast<void*>(&base)),
              "MPI_Win_shared_query");
    // MPI may put its data before a segment. Mappings start at a page boundary in every
    // process, so rounding up gives the same bytes in each.
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    const auto aligned = (address + page - 1) / page * page;
    PITON_ASSERT(static_cast<std::int64_t>(aligned - address) + bytes_ <= bytes,
                 "a shared segment of {} bytes, wanted {}", bytes, bytes_);
    segments_.push_back(reinterpret_cast<std::byte*>(aligned));
  }
}

void SharedWindow::free() {
  if (window_ != MPI_WIN_NULL) check_mpi(MPI_Win_free(&window_), "MPI_Win_free");
  segments_.clear();
}

void SharedWindow::drop_pages(int member) {
  // Fails on file systems that cannot punch holes; then the memory stays until the process ends.
  madvise(segments_[member], static_cast<std::size_t>(bytes_), MADV_REMOVE);
}

}  // namespace piton
