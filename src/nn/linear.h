// Linear layers over the tensor-parallel group (ops/linear/linear.h has a table of what each rank
// holds and sends). With a group of one they are ordinary linear layers; there is no separate class
// for that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/adapters.h"
#include "nn/norm.h"
#include "nn/shard.h"

namespace piton {

// One adapter of a linear, and where its dropout is drawn.
struct LayerAdapter {
  Parameter* a = nullptr;
  Parameter* b = nullptr;
  double scale = 1;
  double dropout = 0;             // probability
  std::int64_t first_output = 0;  // LinearAdapter::first_output
  Parameter* magnitude = nullptr;
  std::shared_ptr<AdaptedLengths> lengths;
  std::optional<std::int64_t> choice;  // which of Adapters::choices it is of; nothing: of all rows
};

struct ColumnLinearShape {
  // Canonical matrices, fused into one local tensor; their rows: f. Those that share an adapter
  // (nn/adapters.h) are next to each other.
  std::vector<RowPart> parts;
  std::int64_t in = 0;  // h
  bool bias = false;
  Initialization initialization;       // of the weight
  const Adapters* adapters = nullptr;  // read by the constructor; null: none
  bool whole = false;                  // every rank has all rows, for heads that it alone has
  std::string joint_adapter = {};  // of all parts, and of those of another linear with the same A
};

// y = x W^T + b. The rows of W [f, h] are split over the ranks, or whole on each of them.
class ColumnLinear {
 public:
  // Canonical tensors are named part.name + ".weight" (".bias"), the local one name +
  // ".weight" (".bias").
  ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
               const ColumnLinearShape& shape);
  // x [n, h], under sequence parallelism this rank's [n/t, h] -> y [n, f/t], for f the sum of the
  // parts' `out`; with `activation`, the activation of y.
  Value forward(Context& context, const Value& x,
                std::optional<ActivationKind> activation = {}) const;
  // Of two parts of the same size: y [n, f/t / 2], the activation of the first one times the second
  // one (gated_activation()).
  Value forward_gated(Context& context, const Value& x, ActivationKind activation,
                      const GateRule& rule) const;

  Parameter& weight() const { return *weight_; }
  bool has_adapters() const { return !adapters_.empty(); }

 private:
  SplitWeight split() const;

  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  std::vector<LayerAdapter> adapters_;
};

struct WholeLinearShape {
  std::int64_t out = 0;  // f
  std::int64_t in = 0;   // h
  bool bias = false;
  Initialization initialization;       // of the weight
  Communicator* alone = nullptr;       // the group of this rank alone; must outlive the layer
  const Adapters* adapters = nullptr;  // as in ColumnLinearShape
};

// y = x W^T + b, a linear that every tensor rank holds whole: for the same rows on each of them or,
// with a shard that splits the sequence, for the rows of this rank. Gradients of the rows are
// complete on each rank.
class WholeLinear {
 public:
  WholeLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
              const WholeLinearShape& shape);
  // x [n, in] -> y [n, out]; with `activation`, the activation of y. Dropout of adapters is drawn
  // for `rows`.
  Value forward(Context& context, const Value& x, const MaskRows& rows,
                std::optional<ActivationKind> activation = {}) const;
  // The same in another type.
  Tensor values(Context& context, const Tensor& x, DType type) const;

  Parameter& weight() const { return *weight_; }
  Parameter& bias() const { return *bias_; }  // only with one

 private:
  DType dtype_;
  Communicator* alone_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  std::vector<LayerAdapter> adapters_;
};

struct RowLinearShape {
  std::int64_t out = 0;  // f
  std::int64_t in = 0;   // h
  bool bias = false;
  double factor = 1;                   // of the result, before dropout and residual
  Initialization initialization;       // of the weight
  const Adapters* adapters = nullptr;  // as in ColumnLinearShape
};

// Of the two projections of a residual branch.
struct BranchInitialization {
  Initialization input;   // of query, key and value; of up and gate
  Initialization output;  // of the projection that ends the branch
};

// y = residual + dropout(factor (sum over ranks of x W^T + b)), or of a norm of that sum. The
// columns of W [f, h] are split over the ranks; every rank has the whole of b [f].
class RowLinear {
 public:
  RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
            const RowLinearShape& shape);
  // A norm of the sum, before dropout and residual.
  void end_with(Norm norm) { norm_ = norm; }
  // x [n, h/t] -> y [n, f], under sequence parallelism this rank's [n/t, f]. `residual` has the
  // shape of y, or is null. `dropout.rows` says which rows of the micro-batch y holds.
  Value forward(Context& context, const Value& x, const Value* residual,
                const Dropout& dropout) const;

 private:
  // The end of a branch: norm and factor of the biased sum, then dropout and residual.
  Value ended(Context& context, const Value& sum, const Value* residual,
              const Dropout& dropout) const;

  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  std::vector<LayerAdapter> adapters_;  // one or none of each choice
  std::optional<Norm> norm_;
  double factor_;
};

}  // namespace piton
