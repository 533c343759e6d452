// Memory in pages of 2 MiB where there is enough of it: fewer page faults and fewer misses of the
// address cache than with pages of 4 KiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace piton {

inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// Aligned to 64 bytes, from 2 MiB on to 2 MiB, and of at least `bytes` bytes; not cleared. Null if
// there is no memory. To be released by std::free.
std::byte* allocate_in_huge_pages(std::int64_t bytes);

// For large containers of the standard library.
template <typename T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <typename Other>
  explicit HugePageAllocator(const HugePageAllocator<Other>&) {}

  T* allocate(std::size_t count) {
    std::byte* data = allocate_in_huge_pages(static_cast<std::int64_t>(count * sizeof(T)));
    if (data == nullptr) throw std::bad_alloc();
    return reinterpret_cast<T*>(data);
  }
  void deallocate(T* data, std::size_t) { std::free(data); }

  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }
};

}  // namespace piton
