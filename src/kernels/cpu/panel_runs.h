// Panels of a packed weight that come from memory, shared out: each thread reads one contiguous run
// of them, which the processor's own prefetching follows from panel to panel; a thread that is done
// takes panels of one that was held up.
#pragma once

#include <atomic>
#include <new>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {

// Rows that are few, as decoding has them: the weight comes from memory once, and that is the time
// it takes.
inline constexpr std::int64_t kSkinnyRows = 24;
// From so many rows on, products take long enough to hold the processor's prefetching back.
inline constexpr std::int64_t kSlowRows = 4;

class PanelRuns {
 public:
  // In `memory`, bytes() long and aligned to 64.
  static std::int64_t bytes(const Context& context) {
    return context.threads.threads() * static_cast<std::int64_t>(sizeof(Run));
  }
  PanelRuns(const Context& context, std::int64_t panels, std::byte* memory)
      : runs_(std::min<std::int64_t>(context.threads.threads(), panels)) {
    for (std::int64_t run = 0; run < runs_; ++run) {
      Run* made =
          new (memory + run * sizeof(Run)) Run{panels * run / runs_, panels * (run + 1) / runs_};
      if (run == 0) first_ = made;
    }
  }

  std::int64_t parts() const { return runs_; }

  // The work of one part: visit(panel, last). `last`: nothing that follows in memory is read by
  // this thread.
  template <typename Visit>
  void take(std::int64_t part, Visit visit) const {
    for (std::int64_t turn = 0; turn < runs_; ++turn) {
      Run& run = first_[(part + turn) % runs_];
      for (std::int64_t panel = run.next++; panel < run.end; panel = run.next++) {
        visit(panel, panel + 1 == run.end);
      }
    }
  }

 private:
  // Each on a cache line of its own.
  struct alignas(64) Run {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };

  std::int64_t runs_;
  Run* first_ = nullptr;
};

}  // namespace piton::cpu
