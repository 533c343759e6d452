// Passes of decoding as recorded work (device/device.h): a pass over one token of each of a few
// texts enqueues the same calls on the same memory each time, and only the integers that it reads
// change. So its second run is recorded, and later ones replay it: a GPU then starts its kernels
// without the host.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "nn/kv_cache.h"
#include "ops/context.h"

namespace piton {

class RecordedPasses {
 public:
  // Enqueues a pass by the context that it is given, and returns its logits.
  using Pass = std::function<Tensor(const Context&)>;

  // More rows are seldom, and there would be many graphs.
  static constexpr std::int64_t kMostRows = 16;

  // Passes by `context`, but with memory that nothing else uses later.
  explicit RecordedPasses(const Context& context);

  // Where a pass over `rows` texts, the longest with `pages` pages, has its integers.
  PassPlace place(const KvCache& cache, std::int64_t rows, std::int64_t pages);

  // Runs the pass whose integers are at `place`. The logits are valid until the next pass.
  Tensor run(const PassPlace& place, const Pass& pass);

 private:
  struct Recorded {
    Tensor integers;
    bool seen = false;
    Tensor logits;
    std::unique_ptr<RecordedWork> work;
  };

  Arena arena_;
  Context context_;
  std::shared_ptr<const void> cache_;  // KvCache::memory() of what is recorded
  std::map<std::pair<std::int64_t, std::int64_t>, Recorded> passes_;  // by rows and pages
  std::map<const std::byte*, Recorded*> by_place_;                    // by address of integers
};

}  // namespace piton
