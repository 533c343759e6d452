// Memory shared by the ranks of one host: one segment per member, mapped by all of them.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace piton {

// Construct, free and destroy it on the communication thread.
class SharedWindow {
 public:
  // Collective over `comm`, whose ranks are on one host; every member passes the same size.
  // Segments start at page boundaries and are zero. Throws Error(kMemory) if the host has too
  // little shared memory.
  SharedWindow(MPI_Comm comm, std::int64_t segment_bytes);
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  std::byte* segment(int member) const { return segments_[member]; }
  std::int64_t segment_bytes() const { return bytes_; }

  // Collective. Without it the mapping lasts until the process ends.
  void free();

  // Returns the pages of `member`'s segment to the system; they read as zero afterwards.
  void drop_pages(int member);

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::int64_t bytes_ = 0;
  std::vector<std::byte*> segments_;
};

}  // namespace piton
