#include "generate/recorded_passes.h"

#include <algorithm>
#include <bit>

namespace piton {
namespace {

// Tables of pages have one of a few widths, so that growing texts are seldom recorded again.
constexpr std::int64_t kFewestPages = 8;

}  // namespace

RecordedPasses::RecordedPasses(const Context& context)
    : arena_(context.device), context_(context.with_arena(arena_)) {}

PassPlace RecordedPasses::place(const KvCache& cache, std::int64_t rows, std::int64_t pages) {
  if (cache_ != cache.memory()) {
    by_place_.clear();
    passes_.clear();
    cache_ = cache.memory();
  }
  const auto width = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(pages, kFewestPages))));
  Recorded& one = passes_[{rows, width}];
  if (!one.integers.defined()) {
    one.integers = context_.workspace(DType::kI32, {KvCache::integers_of(rows, rows, width)});
    by_place_[one.integers.raw()] = &one;
  }
  return {.integers = one.integers, .pages = width};
}

Tensor RecordedPasses::run(const PassPlace& place, const Pass& pass) {
  Recorded& one = *by_place_.at(place.integers.raw());
  const WorkspaceScope scope(context_.kernels, arena_);
  if (!one.work) {
    Tensor logits = pass(context_);
    if (!std::exchange(one.seen, true)) return logits;
    // What was just computed is computed again: recording gets the memory that this pass has shown
    // to be enough, since a device cannot be asked for memory then.
    logits = {};
    one.work = context_.stream.recorded([&] { one.logits = pass(context_); });
  }
  one.work->run();
  return one.logits;
}

}  // namespace piton
