// Shares the panels of a packed weight in memory among threads: each thread reads one contiguous
// run of panels, which the hardware prefetcher follows from panel to panel. A thread that is done
// takes panels of a thread that is late.
#pragma once

#include <atomic>
#include <new>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {

// Few rows, as in decoding: the time is that of reading the weight from memory once.
inline constexpr std::int64_t kSkinnyRows = 24;
// From this many rows on, products are slow enough to hold back the hardware prefetcher.
inline constexpr std::int64_t kSlowRows = 4;

class PanelRuns {
 public:
  // `memory` has bytes() bytes and is aligned to 64.
  static std::int64_t bytes(const CpuContext& context) {
    return context.threads.threads() * static_cast<std::int64_t>(sizeof(Run));
  }
  PanelRuns(const CpuContext& context, std::int64_t panels, std::byte* memory)
      : runs_(std::min<std::int64_t>(context.threads.threads(), panels)) {
    for (std::int64_t run = 0; run < runs_; ++run) {
      Run* made =
          new (memory + run * sizeof(Run)) Run{panels * run / runs_, panels * (run + 1) / runs_};
      if (run == 0) first_ = made;
    }
  }

  std::int64_t parts() const { return runs_; }

  // Does the work of one part, up to `together` panels at a time: visit(panel, panels, last).
  // `last`: this thread reads nothing that follows in memory.
  template <typename Visit>
  void take(std::int64_t part, std::int64_t together, Visit visit) const {
    for (std::int64_t turn = 0; turn < runs_; ++turn) {
      Run& run = first_[(part + turn) % runs_];
      const auto next = [&] { return run.next.fetch_add(together); };
      for (std::int64_t panel = next(); panel < run.end; panel = next()) {
        const std::int64_t panels = std::min(together, run.end - panel);
        visit(panel, panels, panel + panels == run.end);
      }
    }
  }
  // One panel at a time: visit(panel, last).
  template <typename Visit>
  void take(std::int64_t part, Visit visit) const {
    take(part, 1, [&](std::int64_t panel, std::int64_t, bool last) { visit(panel, last); });
  }

 private:
  // Each in its own cache line.
  struct alignas(64) Run {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };

  std::int64_t runs_;
  Run* first_ = nullptr;
};

}  // namespace piton::cpu
