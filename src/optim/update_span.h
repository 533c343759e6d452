// The elements that this rank updates.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/parameter.h"
#include "optim/muon.h"
#include "optim/optimizer_options.h"

namespace piton {

// Consecutive elements of one parameter that this rank updates. The same as OwnedSpan of parallel/,
// a higher layer, which this folder cannot include.
struct UpdateSpan {
  Parameter* parameter = nullptr;
  std::int64_t offset = 0;  // first element, counted in the parameter's local tensor
  Tensor gradient;          // fp32 [n]
  Tensor value;             // [n] in the weights' dtype
  // The update rule of this span. Empty: that of OptimizerOptions::kind; with kMuon, AdamW for
  // parameters that are not matrices. Spans of one step may have different rules.
  std::optional<OptimizerKind> rule = {};
  MatrixCut cut = {};  // of a matrix that Muon updates; its ranks hold the other elements
};

// Converts a list of OwnedSpan (parallel/data_parallel.h).
template <typename Owned>
std::vector<UpdateSpan> update_spans(const std::vector<Owned>& owned) {
  std::vector<UpdateSpan> spans;
  spans.reserve(owned.size());
  for (const Owned& one : owned) {
    spans.push_back({.parameter = one.span.parameter,
                     .offset = one.span.parameter_offset,
                     .gradient = one.gradient,
                     .value = one.value,
                     .cut = {.ranks = one.ranks, .part = one.part}});
  }
  return spans;
}

}  // namespace piton
