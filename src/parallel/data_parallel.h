// Parameters, gradients and optimizer state over the data-parallel ranks: plain replication and the
// three ZeRO stages (Rajbhandari et al. 2019, arXiv:1910.02054), behind one interface.
//
//   stage  unit       values          gradients                    optimizer state
//   0      bucket     whole           whole, all-reduced           whole
//   1      bucket     whole           whole, reduce-scattered      own parts; new values gathered
//   2      bucket     whole           own parts; each micro-batch's contribution is
//   reduce-scattered 3      parameter  own parts; gathered around each use (WeightProvider),
//   gradients as 2
//
// A unit (parallel/shard_units.h) is cut into equal parts, one for each rank of its reduction
// group, so in every collective every rank sends and receives the same.
//
// All sums a gradient needs follow from the placement: Placement::partial_axes() and tied_stages.
// Order: over tensor (split tokens), then over data and context, then over tied stages. The last
// comes last because the other stage may be waiting for this one's backward: nothing of the
// backward pass may wait for it. Gradients are sums, never means: the loss scale carries 1 /
// tokens.
//
// Stages 0 and 1 collect a step's contributions and then sum over ranks, 2 and 3 sum over ranks for
// each micro-batch and collect the sums: with one micro-batch all four give the same bits, with
// several 0 = 1 and 2 = 3.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mesh.h"
#include "ops/weight.h"
#include "parallel/shard_units.h"

namespace piton {

// What the optimiser works on: this rank's spans with their fp32 gradient and main copy.
struct OwnedSpan {
  ShardSpan span;
  Tensor gradient;  // fp32 [size], summed over all ranks when finish_gradients() has returned
  Tensor value;     // [size] weights' dtype: written by the update
};

// The part of a parameter that this rank stores.
struct OwnValues {
  std::int64_t offset = 0;  // of its first element, in the parameter's local tensor
  Tensor values;            // [size]; not defined where all of the rank's part is padding
};

class ShardedParameters : public WeightProvider {
 public:
  // Sets value and gradient of each parameter. Nothing is initialised. Frozen parameters get no
  // gradient.
  static std::unique_ptr<ShardedParameters> make(int zero_stage, std::vector<Parameter*> parameters,
                                                 Mesh& mesh, Kernels& kernels, Device& device,
                                                 Arena& arena, Stream& stream);
  // Whole values on every rank, no gradients, and each weight held once: as plain rows until its
  // packed form is first asked for, packed from then on. What embeds and projects keeps both.
  // owned() is empty; whole_value() asserts that there are plain rows; steps are refused.
  static std::unique_ptr<ShardedParameters> make_inference(
      const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena);

  // Of the trainable parameters; owned() are the spans of this rank's parts.
  virtual const std::vector<ShardUnit>& units() const = 0;
  virtual std::vector<OwnedSpan> owned() = 0;

  // Zeroes gradients, and lets the arena settle, as publish_values() does: every step begins from
  // the same free memory. The step brings Parameter::contributions x `micro_batches` contributions.
  virtual void begin_step(int micro_batches, Stream& stream) = 0;
  // Starts what contribute() has not, waits for all reductions (the compute stream does).
  virtual void finish_gradients(Stream& stream) = 0;
  // The owned spans have new values: gathers them where values are whole, and raises the versions
  // of trainable parameters.
  virtual void publish_values(Stream& stream) = 0;

  // Whole local rows of a parameter, on every rank (gathers under stage 3): saving, checking,
  // hashing.
  virtual Tensor whole_value(Parameter& parameter, Stream& stream) = 0;
  // This rank's part of a parameter, to be written whole (initialization, loading); raises the
  // parameter's version. publish_values() has to follow, on all ranks: it gathers what is whole on
  // all of them. Stage 0, frozen parameters below stage 3, and inference: all local rows.
  virtual OwnValues own_values(Parameter& parameter) = 0;
  // Writes that part from local rows.
  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream);

 protected:
  explicit ShardedParameters(Kernels& kernels) : kernels_(kernels) {}

 private:
  Kernels& kernels_;
};

}  // namespace piton
