// Memory shared by the ranks of one host: one segment per member, mapped by all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace piton {

// Segments start at page boundaries and are zero. Made by RankChannel::share(), which is
// collective. Construct, free and destroy it on the communication thread.
class SharedWindow {
 public:
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  virtual ~SharedWindow() = default;

  std::byte* segment(int member) const { return segments_[static_cast<std::size_t>(member)]; }
  std::int64_t segment_bytes() const { return bytes_; }  // as asked for, in whole pages

  // Collective. Without it the mapping lasts until the process ends.
  virtual void free() = 0;

  // Returns the pages of `member`'s segment to the system; they read as zero afterwards.
  void drop_pages(int member);

 protected:
  explicit SharedWindow(std::int64_t segment_bytes);
  static std::int64_t page_bytes();

  std::int64_t bytes_ = 0;
  std::vector<std::byte*> segments_;
};

}  // namespace piton
