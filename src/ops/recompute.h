// Recomputation (Chen et al. 2016, arXiv:1604.06174): keeps only the inputs of a segment, frees its
// activations, and runs the segment again in backward. Dropout masks are drawn from coordinates, so
// the replay draws the same ones.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

enum class RecomputeGranularity : std::uint8_t {
  kNone,
  kFull,       // layers: only their input is kept
  kSelective,  // parts of each layer
};

struct RecomputeRules {
  RecomputeGranularity granularity = RecomputeGranularity::kNone;
  // Which layers of a chunk are computed again, under kFull. True: the first `layers` ones, each by
  // itself. False: all, in groups of `layers` that follow one another, of which the first input is
  // kept.
  bool block = false;
  std::int64_t layers = 1;
  // Of the layers that are not computed again as a whole. None under kSelective: attention.
  RecomputedParts parts = {};
  // In place of `layers`, under `block`: by stage.
  std::vector<std::int64_t> layers_of_stage = {};
  // Of how many layers of a stage the norms and the activation are computed again, from the first
  // one that is not computed again as a whole; empty: of all.
  std::optional<std::int64_t> norm_layers = {};
  std::optional<std::int64_t> activation_layers = {};
  // Under kFull: each tensor rank keeps its part of the input of a layer (without sequence
  // parallelism, under which it has no more).
  bool distributed = false;

  std::int64_t layers_on(int stage) const {
    return layers_of_stage.empty() ? layers : layers_of_stage[static_cast<std::size_t>(stage)];
  }
  RecomputedParts parts_again() const {
    if (granularity != RecomputeGranularity::kSelective || parts.any()) return parts;
    return {.attention = true};
  }
  // Of layer number `layer` of a stage.
  RecomputedParts parts_again(int stage, std::int64_t layer) const {
    const bool some_whole = granularity == RecomputeGranularity::kFull && block;
    const std::int64_t place = layer - (some_whole ? layers_on(stage) : 0);
    RecomputedParts of = parts_again();
    of.norms = of.norms && (!norm_layers || place < *norm_layers);
    of.activation = of.activation && (!activation_layers || place < *activation_layers);
    return of;
  }
};

// What the host has read from the device in a segment: the replay computes the same, so it does not
// wait for it again. Facts are asked for in the order in which they were added.
class SegmentFacts {
 public:
  bool replayed() const { return replayed_; }
  void begin_replay() { replayed_ = true; }
  void add(std::any fact) { facts_.push_back(std::move(fact)); }
  template <typename Fact>
  Fact next() {
    PITON_ASSERT(next_ < facts_.size(), "a replay asks for fact {} of {}", next_, facts_.size());
    return std::any_cast<Fact>(facts_[next_++]);
  }

 private:
  std::vector<std::any> facts_;
  std::size_t next_ = 0;
  bool replayed_ = false;
};

using Segment = std::function<std::vector<Value>(Context&, const std::vector<Value>& inputs)>;

// Runs `segment` without a tape, and records one node that replays it. Returns the outputs of
// `segment`, in their shapes. If `context` has no tape, only runs `segment`. `sharers`: ranks with
// the same first input, whose elements are a multiple of their number. Each keeps its part of it,
// and backward gathers them. Null: it is kept whole, as the other inputs are.
std::vector<Value> recomputed(Context& context, const std::vector<Value>& inputs, Segment segment,
                              Communicator* sharers = nullptr);

}  // namespace piton
