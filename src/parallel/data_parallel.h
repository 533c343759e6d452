// Distributes parameters, gradients and optimizer state over the data-parallel ranks: plain
// replication (stage 0) and the three ZeRO stages (Rajbhandari et al. 2019, arXiv:1910.02054),
// with one interface.
//
//                     each rank holds
//   stage  unit       values     gradients  optimizer state  gradients are
//   0      bucket     whole      whole      whole            all-reduced once a step
//   1      bucket     whole      whole      own parts        reduce-scattered once a step
//   2      bucket     whole      own parts  own parts        reduce-scattered every micro-batch
//   3      parameter  own parts  own parts  own parts        reduce-scattered every micro-batch
//
// In stages 1 and 2 new values are gathered after the update, under the forward pass that follows:
// acquire() waits for its parameter. In stage 3 values are gathered around each use.
//
// A unit (parallel/shard_units.h) is cut into equal parts, one for each rank of its reduction
// group, so every rank sends and receives the same number of bytes in every collective.
//
// The placement of a parameter determines over which ranks its gradient is summed
// (Placement::partial_axes() and tied_stages). The order is: over tensor ranks that hold different
// tokens, then over the reduction group (data, context), then over tied stages. The sum over tied
// stages is last to avoid a deadlock: the other stage may still wait for the backward pass of this
// stage, so the backward pass must not wait for that sum. Gradients are sums, never means: the loss
// scale contains the factor 1 / tokens.
//
// Stages 0 and 1 add up the micro-batches of a step on each rank, then sum over ranks. Stages 2 and
// 3 sum over ranks for each micro-batch, then add up the micro-batches. With one micro-batch, all
// four stages give the same bits. With several, stage 0 gives the bits of stage 1, and stage 2
// those of stage 3.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mesh.h"
#include "kernels/compute_context.h"
#include "ops/weight.h"
#include "parallel/shard_units.h"

namespace piton {

// A span that this rank updates, with its gradient and value.
struct OwnedSpan {
  ShardSpan span;
  Tensor gradient;  // fp32 (fp64 for fp64 weights) [size]; after finish_gradients(), the sum over
                    // all ranks
  Tensor value;     // [size], in the dtype of the weights; the update writes it
  // Set if the unit is this one parameter and cut: its ranks hold `part` elements each, in order of
  // rank (the last ones fewer or none). Null: this rank holds all of the parameter, or its unit
  // holds others too.
  Communicator* ranks = nullptr;
  std::int64_t part = 0;
};

// The part of a parameter that this rank stores.
struct OwnValues {
  std::int64_t offset = 0;  // first element, counted in the parameter's local tensor
  Tensor values;            // [size]; empty if this rank's part is all padding
};

struct ShardingRules {
  // Of trainable parameters of stages 1 and 2; stage 3 cuts every parameter evenly.
  CutPolicy cut = CutPolicy::kEven;
  // Stages 1 to 3: groups of data-parallel ranks, each of which holds all shards. Gradients are
  // reduce-scattered within an instance, and the parts summed over instances.
  int instances = 1;
  // Of frozen parameters of stages 0 to 2; stage 3 frees packed forms with the gathered rows.
  FrozenForms frozen_forms = FrozenForms::kFewest;
};

class ShardedParameters : public WeightProvider {
 public:
  // Allocates the buffers. Sets `value` and `gradient` of each parameter if the stage keeps them
  // whole. Values are not initialized. Frozen parameters get no gradient.
  static std::unique_ptr<ShardedParameters> make(int zero_stage, std::vector<Parameter*> parameters,
                                                 Mesh& mesh, const ComputeContext& compute,
                                                 ShardingRules rules = {});
  // For inference: every rank holds all values, without gradients, and one copy of each weight. A
  // weight is stored as plain rows until a packed form of it is first acquired; then the packed
  // form replaces the rows. A table that is both embedding and head keeps both forms. owned() is
  // empty. whole_value() asserts that the plain rows still exist. begin_step() and
  // finish_gradients() must not be called (asserted).
  static std::unique_ptr<ShardedParameters> make_inference(
      const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena);

  // The units of the trainable parameters.
  virtual const std::vector<ShardUnit>& units() const = 0;
  // The spans in this rank's parts of the units.
  virtual std::vector<OwnedSpan> owned() = 0;

  // Gradients are 0 from here on. Calls Arena::settle, as publish_values() does, so that every step
  // starts with the same free memory. In this step, each parameter will get
  // Parameter::contributions x `micro_batches` contributions.
  virtual void begin_step(int micro_batches, Stream& stream) = 0;
  // Starts the reductions that contribute() has not started, and makes `stream` wait for all.
  virtual void finish_gradients(Stream& stream) = 0;
  // To be called after the owned spans were updated. Gathers the new values if the stage keeps them
  // whole, and raises the version of each trainable parameter.
  virtual void publish_values(Stream& stream) = 0;

  // All local rows of a parameter, in its local shape, on every rank. Stage 3 gathers them. For
  // saving, checking and hashing.
  virtual Tensor whole_value(Parameter& parameter, Stream& stream) = 0;
  // The part of a parameter that this rank stores, for initialization and loading. It is all local
  // rows in stage 0, for frozen parameters below stage 3, and for inference. The caller overwrites
  // all of it. Raises the version of the parameter. Afterwards all ranks call publish_values(),
  // which gathers the values that the stage keeps whole.
  virtual OwnValues own_values(Parameter& parameter) = 0;
  // Copies this rank's part of `rows`, which are all local rows of the parameter, in its local
  // shape. As with own_values(), all ranks call publish_values() afterwards.
  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream);

 protected:
  explicit ShardedParameters(Kernels& kernels) : kernels_(kernels) {}

 private:
  Kernels& kernels_;
};

}  // namespace piton
