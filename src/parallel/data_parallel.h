// Parameters, gradients and optimiser state over the data-parallel ranks: plain replication and the
// three ZeRO stages (Rajbhandari et al. 2019, arXiv:1910.02054), behind one interface.
//
//   stage  values              gradients                          optimiser state
//   0      whole               whole, all-reduced                 whole
//   1      whole               whole, reduce-scattered            own shard; new values gathered
//   2      whole               own shard; each micro-batch's contribution is reduce-scattered
//   3      own shard; gathered around each use (WeightProvider), as 2
//
// All sums a gradient needs follow from the placement: Placement::partial_axes() and tied_stages.
// Order: sums over tensor (split tokens) and over tied stages, then over data and context.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mesh.h"
#include "ops/weight.h"
#include "parallel/flat_layout.h"

namespace piton {

// What the optimiser works on: this rank's spans with their fp32 gradient and main copy.
struct OwnedSpan {
  FlatSpan span;
  Tensor gradient;  // fp32 [size], summed over all ranks when finish_gradients() has returned
  Tensor value;     // [size] weights' dtype: written by the update
};

class ShardedParameters : public WeightProvider {
 public:
  // Sets value and gradient of each parameter. Nothing is initialised. Frozen parameters get no gradient.
  static std::unique_ptr<ShardedParameters> make(int zero_stage, std::vector<Parameter*> parameters,
                                                 Mesh& mesh, Kernels& kernels, Device& device,
                                                 Arena& arena, Stream& stream);

  virtual const FlatLayout& layout() const = 0;
  virtual std::vector<OwnedSpan> owned() = 0;

  // Zeroes gradients; `micro_batches`: how many contributions x micro-batches the step brings.
  virtual void begin_step(int micro_batches, Stream& stream) = 0;
  // Starts what contribute() has not, waits for all reductions (the compute stream does).
  virtual void finish_gradients(Stream& stream) = 0;
  // The owned spans have new values: gathers them where values are whole, raises versions.
  virtual void publish_values(Stream& stream) = 0;

  // Whole local rows of a parameter, on every rank (gathers under stage 3): saving, checking, hashing.
  virtual Tensor whole_value(Parameter& parameter, Stream& stream) = 0;
  // Writes this rank's part of local rows (initialisation, loading), then publish_values().
  virtual void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) = 0;
};

}  // namespace piton
