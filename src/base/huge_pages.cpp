#include "base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>

namespace piton {

std::byte* allocate_in_huge_pages(std::int64_t bytes) {
  constexpr std::int64_t kAddresses = std::int64_t{1} << 47;  // of a process
  if (bytes >= kAddresses) return nullptr;
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const std::int64_t size =
      std::max<std::int64_t>(bytes + alignment - 1, alignment) / alignment * alignment;
  void* data =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(size));
  // A system without huge pages refuses, and the memory serves all the same.
  if (data != nullptr && alignment == kHugePage) {
    madvise(data, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  }
  return static_cast<std::byte*>(data);
}

}  // namespace piton
