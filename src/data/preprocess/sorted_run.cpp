#include "data/preprocess/sorted_run.h"

#include <algorithm>
#include <span>

namespace piton {

SortedRun::SortedRun(const std::filesystem::path& path)
    : file_(path), size_(file_.size_bytes() / static_cast<std::int64_t>(sizeof(ContentHash))) {
  for (std::int64_t first = 0; first < size_; first += kBlock) {
    file_.read_at(first * static_cast<std::int64_t>(sizeof(ContentHash)),
                  std::as_writable_bytes(std::span(&leaders_.emplace_back(), 1)));
  }
}

void SortedRun::read_block(std::int64_t first, std::vector<ContentHash>& block) const {
  block.resize(static_cast<std::size_t>(std::min(kBlock, size_ - first)));
  file_.read_at(first * static_cast<std::int64_t>(sizeof(ContentHash)),
                std::as_writable_bytes(std::span(block)));
}

bool SortedRun::contains(const ContentHash& hash) const {
  const auto after = std::upper_bound(leaders_.begin(), leaders_.end(), hash);
  if (after == leaders_.begin()) return false;
  std::vector<ContentHash> block;
  read_block((after - leaders_.begin() - 1) * kBlock, block);
  return std::binary_search(block.begin(), block.end(), hash);
}

std::optional<ContentHash> SortedRun::Cursor::next() {
  if (used_ == block_.size()) {
    if (at_ == run_->size_) return {};
    run_->read_block(at_, block_);
    at_ += static_cast<std::int64_t>(block_.size());
    used_ = 0;
  }
  return block_[used_++];
}

}  // namespace piton
