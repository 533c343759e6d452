// Two blocks of data in turn: while one is used, the next one is made.
#pragma once

#include <array>
#include <cstddef>

#include "base/threads.h"

namespace piton {

// Calls make(block) until it returns false, and use(block) for each block before that, in order.
// The next block is made at the same time, if `threads` has more than one. Rethrows what either
// throws.
template <typename Block, typename Make, typename Use>
void make_ahead(ThreadPool& threads, Make&& make, Use&& use) {
  std::array<Block, 2> blocks;
  std::size_t now = 0;
  bool made = make(blocks[now]);
  while (made) {
    const auto part_of = [&](std::int64_t part) {
      if (part == 0) {
        use(blocks[now]);
      } else {
        made = make(blocks[1 - now]);
      }
    };
    threads.run(2, part_of);
    now = 1 - now;
  }
}

}  // namespace piton
