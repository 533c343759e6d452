// A list of numbers in memory, or in a part of a file. The file is read by calls, not
// memory-mapped: if it is truncated while in use, the error names it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/regular_file.h"

namespace piton {

template <typename T>
class StoredList {
 public:
  StoredList() = default;
  // `memory` must outlive the list.
  explicit StoredList(std::span<const T> memory) : memory_(memory), size_(memory.size()) {}
  // `size` entries from byte `offset` on.
  StoredList(std::shared_ptr<const RegularFile> file, std::int64_t offset, std::size_t size)
      : file_(std::move(file)), offset_(offset), size_(size) {}

  std::size_t size() const { return size_; }
  // All entries of a list in memory.
  std::span<const T> memory() const {
    PITON_ASSERT(file_ == nullptr, "the list is in {}", file_->path().string());
    return memory_;
  }

  // Copies entries [first, first + out.size()), which must exist. Throws Error(kData) if the file
  // no longer has them.
  void read(std::size_t first, std::span<T> out) const {
    PITON_ASSERT(first <= size_ && out.size() <= size_ - first, "entries {}+{} of {}", first,
                 out.size(), size_);
    if (file_ != nullptr) {
      file_->read_at(offset_ + static_cast<std::int64_t>(first * sizeof(T)),
                     std::as_writable_bytes(out));
    } else {
      std::copy_n(memory_.data() + first, out.size(), out.data());
    }
  }
  T operator[](std::size_t index) const {
    T value;
    read(index, std::span(&value, 1));
    return value;
  }

 private:
  std::span<const T> memory_;
  std::shared_ptr<const RegularFile> file_;  // null: in memory
  std::int64_t offset_ = 0;
  std::size_t size_ = 0;
};

}  // namespace piton
