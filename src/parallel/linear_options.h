// Options of split linears: sequence parallelism, and how their communication, and that of heads of
// attention, is overlapped with computation. The flags are also those of MindSpeed ("communication
// over computation").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "ops/linear/linear_strategy.h"

namespace piton {

struct LinearOptions {
  std::optional<std::int64_t> slices;  // linears are whole by default, heads by their size
  bool sequence_parallel = false;
  bool fused = false;
  int mode = -1;
  std::string slices_of_shapes;  // JSON: {"[m, k, n]": slices}; "": none
  bool gather_again = true;
  bool fused_column_backward = false;

  // What they mean. Throws Error(kUsage) that names the flag, also if they contradict each other.
  LinearStrategy strategy() const;

  // The same for micro-batches of these tokens over `tensor` ranks. Throws Error(kUsage) if tokens
  // cannot be split over the ranks (--sequence-parallel), or over the slices.
  LinearStrategy strategy(const std::vector<std::int64_t>& tokens, int tensor) const;

  // Of the heads that context ranks exchange or gather (ContextForms::slices).
  int slices_of_heads() const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"sequence-parallel",
             "also split the activations between tensor-parallel layers, along the sequence"},
      sequence_parallel);
    v(Option{"num-slices",
             "number of parts that a split linear layer, and the heads that context ranks exchange "
             "or gather (--cp-comm-type a2a, a2a+p2p, allgather), are cut into, to overlap their "
             "communication: 1, 2, 4 or 8, of which the tokens of a micro-batch on each tensor "
             "rank are a multiple (default: whole linears, and up to 4 slices of heads, of at "
             "least 1 MiB)",
             {.aliases = {"coc-parallel-num"}}},
      slices);
    v(Option{"fused-linears",
             "overlap the communication of split linears tile by tile, through memory that the "
             "ranks of a host share; --num-slices then has no effect",
             {.aliases = {"coc-fused-kernel"}}},
      fused);
    v(Option{"coc-mode",
             "MindSpeed's switch of --num-slices and --fused-linears: 0 and 1 turn them off, 2 and "
             "-1 do not"},
      mode);
    v(Option{"customized-coc",
             "MindSpeed's dictionary of slices (1, 2, 4, 8; -1: fused) for products of some shapes "
             "[m, k, n]: tokens of a micro-batch, columns of the left matrix and of the result on "
             "a rank; as JSON, {\"[16384, 5120, 1920]\": 8}",
             {.placeholder = "JSON"}},
      slices_of_shapes);
    v(Option{"recompute-all-gather",
             "under --sequence-parallel, gather the input of column linears again in backward; "
             "--no-recompute-all-gather keeps it, which is faster and takes memory"},
      gather_again);
    v(Option{"enable-coc-in-column-backward",
             "--fused-linears: also of the input gradient of column linears and its "
             "reduce-scatter, in place of overlapping it with the weight gradient"},
      fused_column_backward);
  }
};

}  // namespace piton
