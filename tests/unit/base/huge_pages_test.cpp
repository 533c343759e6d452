#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace piton {
namespace {

TEST(HugePages, BlocksAreAlignedAndLargeEnough) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{65},
                                   kHugePage - 1, kHugePage, kHugePage + 1}) {
    const std::unique_ptr<std::byte, decltype(&std::free)> data(allocate_in_huge_pages(bytes),
                                                                &std::free);
    ASSERT_NE(data, nullptr) << bytes;
    const std::int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.get()) % static_cast<std::uintptr_t>(alignment),
              0U)
        << bytes;
    std::memset(data.get(), 1, static_cast<std::size_t>(bytes));  // the sanitizer looks
  }
}

TEST(HugePages, VectorKeepsItsElementsAsItGrows) {
  std::vector<std::int32_t, HugePageAllocator<std::int32_t>> numbers;
  constexpr std::int32_t kCount = 3 << 18;  // 3 MiB
  for (std::int32_t i = 0; i < kCount; ++i) numbers.push_back(i);
  for (std::int32_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
}

TEST(HugePages, VectorWithoutMemoryThrowsBadAlloc) {
  std::vector<std::int32_t, HugePageAllocator<std::int32_t>> numbers;
  EXPECT_THROW(numbers.reserve(std::size_t{1} << 59), std::bad_alloc);
}

}  // namespace
}  // namespace piton
