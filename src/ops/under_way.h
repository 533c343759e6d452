// An op whose collective is started in one call and waited for in another, so that what is computed
// between the two runs while rows travel.
//
//   UnderWay rows = start_sent_rows(context, x, exchange);  // the collective starts
//   ...                                                     // other ops
//   Value there = rows.finish(context);                     // waits for it
//
// Backward mirrors this: the node of finish() starts the collective of the gradient, and the node
// of the start, which runs after those between, waits for it.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "ops/tape.h"

namespace piton {

// A tensor that a collective writes, complete at `ready`.
struct Traveling {
  Tensor tensor;
  Event ready;
};

// Records the node of an op's start: it passes on the gradient of x that the node of finish() has
// put here, on its way.
inline std::shared_ptr<Traveling> give_when_back(Context& context, std::int64_t x_id) {
  auto back = std::make_shared<Traveling>();
  if (context.tape == nullptr || x_id < 0) return back;
  context.tape->record([x_id, back](Backward& backward) {
    Traveling dx = std::exchange(*back, {});
    if (dx.tensor.defined()) backward.give(x_id, std::move(dx.tensor), std::move(dx.ready));
  });
  return back;
}

template <typename Result>
class UnderWayOf {
 public:
  using Rest = std::function<Result(Context&)>;

  UnderWayOf() = default;
  explicit UnderWayOf(Rest rest) : rest_(std::move(rest)) {}

  // Once: waits for the collective and gives the result of the op.
  Result finish(Context& context) {
    PITON_ASSERT(rest_, "nothing is under way");
    const Rest rest = std::exchange(rest_, nullptr);  // frees its tensors at the end
    return rest(context);
  }

 private:
  Rest rest_;
};

using UnderWay = UnderWayOf<Value>;

}  // namespace piton
