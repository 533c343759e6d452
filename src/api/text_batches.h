// Texts that are computed together, with padding after the shorter ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace piton {

// Their numbers, and the tokens of each row.
struct TextBatch {
  std::span<const std::size_t> numbers;
  std::int64_t length = 0;
};

// Divides texts of these numbers of tokens into batches of about one length, the longest first.
void for_each_text_batch(std::span<const std::int64_t> lengths,
                         const std::function<void(const TextBatch&)>& compute);

}  // namespace piton
