// Kernels that only count and compute nothing. With MetaDevice they run real model code to count
// parameters, bytes and FLOPs without memory or compute time (`plan`, `inspect`).
#pragma once

#include <utility>

#include "kernels/meta/call_counts.h"

namespace piton {

class MetaKernels final : public Kernels {
 public:
  // All queries are answered as `like` answers them, and calls take as much scratch, so that the
  // counted memory is that of a run on it; `like` must outlive this object. Without `like`: plain
  // rows, tiles of one row, no scratch.
  explicit MetaKernels(const Kernels* like = nullptr) : like_(like) {}

  std::string name() const override;
  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override;
  WeightForm forward_form(std::int64_t rows, std::int64_t in, DType dtype) const override;
  WeightForm frozen_form(WeightForm form, DType dtype) const override;
  bool reads_codes() const override;
  bool attends_to_latents(std::int64_t latents, std::int64_t shared) const override;
  std::string float8_obstacle(Float8Recipe recipe) const override;
  bool gates_in_product(std::int64_t rows, DType dtype) const override;
  std::int64_t workspace_bytes(const KernelCall& call) const override;
  Arena* set_workspace(Arena* workspace) override { return std::exchange(workspace_, workspace); }
  std::int64_t row_tile() const override;
  std::int64_t full_speed_rows() const override;

  CallCounts& counts() { return counts_; }
  const CallCounts& counts() const { return counts_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  const Kernels* like_;
  Arena* workspace_ = nullptr;
  CallCounts counts_;
};

}  // namespace piton
