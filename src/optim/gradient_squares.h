// The sums of squares of the whole model's gradient, of which the norm is made.
//
// The norm is the L2 norm of the whole model's gradient, without parameters that have a sign_rate
// (ops/parameter.h). Each element is counted once: if several
// ranks hold it (data-parallel ranks, replication over tensor ranks, tied stages), the lowest of
// these ranks counts it. The square of an fp32 number is exact in fp64. Squares are summed in
// blocks, which are counted from the start of each parameter. One all-reduce exchanges the block
// sums of the whole model; then every rank adds them in the order of parameter names. If a block is
// cut between two ranks, its sum is the sum of two partial sums. For a given tensor and pipeline
// split, the norm is therefore the same for any number of data-parallel ranks and any ZeRO stage,
// up to the last bits of fp64.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "device/device.h"
#include "kernels/compute_context.h"
#include "optim/update_span.h"

namespace piton {

// Elements per block of the norm. One fp64 sum for 64 KiB of fp32 gradient: the all-reduce of the
// sums takes 1/8192 of the gradient's bytes.
inline constexpr std::int64_t kNormBlock = 16384;

class GradientSquares {
 public:
  // Elements that this rank counts: a part of one block, or several blocks.
  struct Part {
    Tensor gradient;         // fp32 [n]
    Tensor sums;             // fp64 [blocks], a slice of sums()
    std::size_t span = 0;    // index of the span
    std::int64_t begin = 0;  // first element, counted in the span
  };

  // Collective over all ranks of `mesh`. `block`: elements of a block. Keeps the gradients of
  // `spans`.
  GradientSquares(const std::vector<UpdateSpan>& spans, std::int64_t block, Mesh& mesh,
                  const ComputeContext& compute);

  // Enqueues the sums over the gradients as they are then, and their exchange. Collective.
  void sum(Stream& stream);

  // fp64 [blocks of the whole model], the same on all ranks after sum(); empty if nothing is
  // trainable.
  const Tensor& sums() const { return sums_; }
  const std::vector<Part>& parts() const { return parts_; }

  // Names of all parameters of the model whose sums are not finite: sorted, each once, the same
  // list on every rank. Waits for the stream.
  std::vector<std::string> names_not_finite(Stream& stream) const;

 private:
  void add_parts(const UpdateSpan& span, std::size_t index, std::int64_t begin, std::int64_t end,
                 std::int64_t first_block);

  std::int64_t block_;
  Communicator* ranks_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  std::vector<Part> parts_;
  Tensor sums_;
  std::vector<std::pair<std::string, std::int64_t>> names_;  // parameter, its first block
};

}  // namespace piton
