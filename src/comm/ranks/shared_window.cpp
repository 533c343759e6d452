#include "comm/ranks/shared_window.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace piton {

SharedWindow::SharedWindow(std::int64_t segment_bytes)
    : bytes_(std::max<std::int64_t>(1, (segment_bytes + page_bytes() - 1) / page_bytes()) *
             page_bytes()) {}

std::int64_t SharedWindow::page_bytes() { return sysconf(_SC_PAGESIZE); }

void SharedWindow::drop_pages(int member) {
  // Fails on file systems that cannot punch holes; then the memory stays until the process ends.
  madvise(segment(member), static_cast<std::size_t>(bytes_), MADV_REMOVE);
}

}  // namespace piton
