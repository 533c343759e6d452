// Memory that the ranks of one host share: one segment a member, mapped by all of them.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace piton {

// Made, freed and destroyed on the communication thread.
class SharedWindow {
 public:
  // Collective over `comm`, whose ranks are of one host; every member asks for the same size.
  // Segments start at page boundaries and are zero. Throws Error(kMemory) if the host's shared
  // memory does not suffice.
  SharedWindow(MPI_Comm comm, std::int64_t segment_bytes);
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  std::byte* segment(int member) const { return segments_[member]; }
  std::int64_t segment_bytes() const { return bytes_; }

  // Collective. Without it the mapping lasts until the process ends.
  void free();

  // Gives the pages of `member`'s segment back to the system; they read as zero afterwards.
  void drop_pages(int member);

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::int64_t bytes_ = 0;
  std::vector<std::byte*> segments_;
};

}  // namespace piton
