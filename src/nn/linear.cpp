#include "nn/linear.h"

#include <algorithm>
#include <utility>

#include "nn/adapter_factors.h"
#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/scale.h"

namespace piton {
namespace {

// Until they are set to the lengths of the weight's rows, which no rank may have whole.
constexpr Initialization kOnes{.kind = Initialization::Kind::kOne};

// Where the adapters of a linear are made.
struct NewAdapters {
  ParameterList& parameters;
  const Shard& shard;
  const Adapters& adapters;  // of all linears
  std::string prefix = {};   // of the names of their tensors
  std::optional<std::int64_t> choice = {};
};

// `tensors`: A and B.
LayerAdapter layer_adapter(const NewAdapters& of, double scale,
                           std::pair<Parameter, Parameter> tensors) {
  // Two linears may have one A.
  LayerAdapter adapter{.a = &of.parameters.find_or_add(std::move(tensors.first)),
                       .b = &of.parameters.add(std::move(tensors.second)),
                       .scale = scale,
                       .dropout = of.adapters.dropout,
                       .choice = of.choice};
  adapter.a->contributions += 1;
  adapter.b->contributions += 1;
  return adapter;
}

void add_magnitude(const NewAdapters& of, LayerAdapter& adapter, Parameter magnitude) {
  adapter.magnitude = &of.parameters.add(std::move(magnitude));
  adapter.magnitude->contributions += 1;
  adapter.lengths = std::make_shared<AdaptedLengths>();
}

// What `make` gives for the adapters of all rows, and for each choice.
template <typename Make>
std::vector<LayerAdapter> made_adapters(ParameterList& parameters, const Shard& shard,
                                        const Adapters* adapters, const Make& make) {
  if (adapters == nullptr) return {};
  std::vector<LayerAdapter> all = make(NewAdapters{parameters, shard, *adapters});
  for (std::size_t i = 0; i < adapters->choices.size(); ++i) {
    const std::vector<LayerAdapter> more = make(NewAdapters{
        parameters, shard, adapters->choices[i], choice_prefix(i), static_cast<std::int64_t>(i)});
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

template <typename Adapter>
bool has_magnitudes(const Context& context, const std::vector<Adapter>& adapters) {
  return context.adapters &&
         std::ranges::any_of(adapters, [](const Adapter& one) { return one.magnitude != nullptr; });
}

// What makes a parameter of the rows of a column linear, or of what each row has.
auto parameter_of_rows(const ColumnLinearShape& shape) {
  return shape.whole ? shared_parameter : row_split_parameter;
}

// The adapter `name` of rows of a column linear, which are `parts`. Its own tensors begin with
// `own`.
LayerAdapter column_adapter(const NewAdapters& of, const std::string& name, const std::string& own,
                            const std::vector<RowPart>& parts, const ColumnLinearShape& shape) {
  const auto [rank, scale, magnitude] = of.adapters.shapes.at(name);
  const std::string whole = of.prefix + name;
  const std::string local = of.prefix + own;
  std::vector<RowPart> rows;
  std::vector<RowPart> lengths;
  for (const RowPart& part : parts) {
    rows.push_back({adapter_b_of(of.prefix + part.name), part.out});
    lengths.push_back({adapter_magnitude_of(of.prefix + part.name), part.out});
  }
  LayerAdapter adapter =
      layer_adapter(of, scale,
                    {shared_adapter_factor(of.shard, adapter_a_of(whole), rank, shape.in,
                                           initial_adapter_a(shape.in)),
                     parameter_of_rows(shape)(of.shard, adapter_b_of(local), rows, rank, {})});
  if (magnitude)
    add_magnitude(
        of, adapter,
        parameter_of_rows(shape)(of.shard, adapter_magnitude_of(local), lengths, 0, kOnes));
  return adapter;
}

// Of parts next to each other: what has an adapter is one range of the columns of y.
std::vector<LayerAdapter> column_adapters(const NewAdapters& of, const std::string& linear,
                                          const ColumnLinearShape& shape) {
  std::vector<LayerAdapter> adapters;
  if (!shape.joint_adapter.empty() && of.adapters.find(shape.joint_adapter) != nullptr)
    return {column_adapter(of, shape.joint_adapter, linear, shape.parts, shape)};
  std::int64_t first_output = 0;
  for (auto first = shape.parts.begin(); first != shape.parts.end(); ++first) {
    std::vector<RowPart> parts;
    std::vector<std::string> matrices;
    for (auto last = first; last != shape.parts.end(); ++last) {
      parts.push_back(*last);
      matrices.push_back(last->name);
      const std::optional<std::string> name = adapter_of(matrices);
      if (!name || of.adapters.find(*name) == nullptr) continue;
      adapters.push_back(column_adapter(of, *name, *name, parts, shape));
      adapters.back().first_output = first_output;
    }
    first_output += shape.whole ? first->out : first->out / of.shard.size();
  }
  return adapters;
}

std::vector<LayerAdapter> row_adapters(const NewAdapters& of, const std::string& name,
                                       const RowLinearShape& shape) {
  if (of.adapters.find(name) == nullptr) return {};
  const auto [rank, scale, magnitude] = *of.adapters.find(name);
  const std::string whole = of.prefix + name;
  LayerAdapter adapter =
      layer_adapter(of, scale,
                    {column_split_parameter(of.shard, adapter_a_of(whole), rank, shape.in,
                                            initial_adapter_a(shape.in)),
                     shared_adapter_factor(of.shard, adapter_b_of(whole), shape.out, rank, {})});
  if (magnitude)
    add_magnitude(of, adapter,
                  replicated_parameter(of.shard, adapter_magnitude_of(whole), shape.out, 0, kOnes));
  return {adapter};
}

std::vector<LayerAdapter> whole_adapters(const NewAdapters& of, const std::string& name,
                                         const WholeLinearShape& shape) {
  if (of.adapters.find(name) == nullptr) return {};
  const auto [rank, scale, magnitude] = *of.adapters.find(name);
  const std::string whole = of.prefix + name;
  LayerAdapter adapter =
      layer_adapter(of, scale,
                    {replicated_parameter(of.shard, adapter_a_of(whole), rank, shape.in,
                                          initial_adapter_a(shape.in)),
                     replicated_parameter(of.shard, adapter_b_of(whole), shape.out, rank, {})});
  if (magnitude)
    add_magnitude(of, adapter,
                  replicated_parameter(of.shard, adapter_magnitude_of(whole), shape.out, 0, kOnes));
  return {adapter};
}

// The adapters of a pass, for rows of x that are `rows` of the micro-batch.
std::vector<LinearAdapter> drawn_from(const Context& context,
                                      const std::vector<LayerAdapter>& adapters,
                                      const MaskRows& rows) {
  std::vector<LinearAdapter> list;
  for (const LayerAdapter& one : adapters) {
    LinearAdapter adapter{.a = *one.a,
                          .b = *one.b,
                          .scale = one.scale,
                          .first_output = one.first_output,
                          .magnitude = one.magnitude,
                          .lengths = one.lengths};
    if (one.choice) {
      const auto found = std::ranges::find(context.adapter_rows, *one.choice, &AdapterRows::choice);
      if (found == context.adapter_rows.end()) continue;
      adapter.rows = RowRange{found->begin, found->size};
    }
    if (one.dropout > 0)
      adapter.dropout = {one.dropout, site_key(context.seed, one.a->name + ".dropout"), rows};
    list.push_back(adapter);
  }
  return list;
}

// Measures the rows of all adapters with magnitudes, also of those that this pass does not have:
// later the plain rows of the weight may be gone.
void measure(Context& context, Parameter& weight, const std::vector<LayerAdapter>& adapters,
             Communicator* columns) {
  std::vector<LinearAdapter> all;
  for (const LayerAdapter& one : adapters) {
    all.push_back({.a = *one.a,
                   .b = *one.b,
                   .scale = one.scale,
                   .first_output = one.first_output,
                   .magnitude = one.magnitude,
                   .lengths = one.lengths});
  }
  measure_rows(context, weight, all, columns);
}

// A linear whose adapters have magnitudes (ops/linear/linear_adapter.h), measured before.
// `product`(x, split, bias): x W^T with the adapters of `split`, and this bias or none. Under
// dropout as PEFT has it, with one mask for all adapters of the linear: they and the part of the
// product that is brought to other lengths see the masked x, the product itself the whole x:
//
//   y_j = (x W^T)_j + (c_j - 1) (x' W^T)_j + c_j (scale x' A^T B^T)_j      x' = dropout(x)
//       = ((x - x') W^T)_j + c_j (x' W^T + scale x' A^T B^T)_j             c_j = m_j / |row j|
template <typename Product>
Value product_at_lengths(Context& context, const Value& x, const SplitWeight& split,
                         Parameter* bias, const Product& product) {
  const Dropout dropout = split.adapters.front().dropout;
  if (!context.training || dropout.probability == 0)
    return with_magnitudes(context, product(x, split, bias), split.adapters, bias);
  SplitWeight without = split;
  without.adapters.clear();
  SplitWeight undrawn = split;
  for (LinearAdapter& adapter : undrawn.adapters) adapter.dropout = {};
  const MaskedParts parts = split_by_mask(context, x, dropout);
  const Value rest = product(parts.rest, without, bias);
  const Value kept =
      with_magnitudes(context, product(parts.kept, undrawn, nullptr), undrawn.adapters, nullptr);
  return dropout_add(context, kept, nullptr, &rest, {});
}

// The adapters of a linear, and the rows of the micro-batch that x has.
struct DrawnAdapters {
  const std::vector<LayerAdapter>& adapters;
  MaskRows rows;
};

// The product of `split`, which has no adapters yet, with those of `of`.
Value adapted_columns(Context& context, const Value& x, SplitWeight split, const DrawnAdapters& of,
                      const ColumnEnd& end) {
  const std::vector<LayerAdapter>& adapters = of.adapters;
  split.adapters = drawn_from(context, adapters, of.rows);
  if (has_magnitudes(context, adapters)) measure(context, split.weight, adapters, nullptr);
  if (!has_magnitudes(context, split.adapters)) return column_linear(context, x, split, end);
  const Value y = product_at_lengths(
      context, x, split, end.bias,
      [&](const Value& part, const SplitWeight& adapted, Parameter* bias) {
        return column_linear(context, part, adapted, {.bias = bias, .output = end.output});
      });
  return end.activation ? activation_of(context, y, *end.activation) : y;
}

}  // namespace

ColumnLinear::ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                           const ColumnLinearShape& shape)
    : shard_(shard) {
  std::vector<RowPart> weights;
  std::vector<RowPart> biases;
  for (const RowPart& part : shape.parts) {
    weights.push_back({part.name + ".weight", part.out});
    biases.push_back({part.name + ".bias", part.out});
  }
  weight_ = &parameters.add(
      parameter_of_rows(shape)(shard, name + ".weight", weights, shape.in, shape.initialization));
  weight_->contributions += 1;
  if (shape.bias) {
    bias_ = &parameters.add(parameter_of_rows(shape)(shard, name + ".bias", biases, 0, {}));
    bias_->contributions += 1;
  }
  adapters_ = made_adapters(parameters, shard, shape.adapters, [&](const NewAdapters& of) {
    return column_adapters(of, name, shape);
  });
}

SplitWeight ColumnLinear::split() const {
  return {.weight = *weight_,
          .group = *shard_.group,
          .strategy = shard_.strategy,
          .shared = shard_.shared,
          .float8 = shard_.float8};
}

Value ColumnLinear::forward(Context& context, const Value& x,
                            std::optional<ActivationKind> activation) const {
  const MaskRows rows = shard_.residual_rows(context.rows, x.tensor.dim(0));
  return adapted_columns(context, x, split(), {adapters_, rows},
                         {.bias = bias_, .output = shard_.dtype, .activation = activation});
}

Value ColumnLinear::forward_gated(Context& context, const Value& x, ActivationKind activation,
                                  const GateRule& rule) const {
  if (adapters_.empty() && gates_in_product(context, x, split()))
    return gated_column_linear(context, x, split(), {bias_, activation, rule});
  return gated_activation(context, forward(context, x), activation, rule);
}

WholeLinear::WholeLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                         const WholeLinearShape& shape)
    : dtype_(shard.dtype),
      alone_(shape.alone),
      weight_(&parameters.add(replicated_parameter(shard, name + ".weight", shape.out, shape.in,
                                                   shape.initialization))) {
  weight_->contributions += 1;
  if (shape.bias) {
    bias_ = &parameters.add(replicated_parameter(shard, name + ".bias", shape.out, 0, {}));
    bias_->contributions += 1;
  }
  adapters_ = made_adapters(parameters, shard, shape.adapters,
                            [&](const NewAdapters& of) { return whole_adapters(of, name, shape); });
}

Value WholeLinear::forward(Context& context, const Value& x, const MaskRows& rows,
                           std::optional<ActivationKind> activation) const {
  return adapted_columns(context, x, {*weight_, *alone_, {}}, {adapters_, rows},
                         {.bias = bias_, .output = dtype_, .activation = activation});
}

Tensor WholeLinear::values(Context& context, const Tensor& x, DType type) const {
  Context plain = context.with_tape(nullptr);
  return adapted_columns(plain, {x}, {*weight_, *alone_, {}}, {adapters_, {}},
                         {.bias = bias_, .output = type})
      .tensor;
}

RowLinear::RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const RowLinearShape& shape)
    : shard_(shard), factor_(shape.factor) {
  weight_ = &parameters.add(
      column_split_parameter(shard, name + ".weight", shape.out, shape.in, shape.initialization));
  weight_->contributions += 1;
  if (shape.bias) {
    bias_ = &parameters.add(replicated_parameter(shard, name + ".bias", shape.out, 0, {}));
    bias_->contributions += 1;
  }
  adapters_ = made_adapters(parameters, shard, shape.adapters,
                            [&](const NewAdapters& of) { return row_adapters(of, name, shape); });
}

Value RowLinear::ended(Context& context, const Value& sum, const Value* residual,
                       const Dropout& dropout) const {
  Value branch = norm_ ? norm_->forward(context, sum) : sum;
  if (factor_ != 1) branch = scaled(context, branch, factor_);
  return dropout_add(context, branch, nullptr, residual, dropout);
}

Value RowLinear::forward(Context& context, const Value& x, const Value* residual,
                         const Dropout& dropout) const {
  const bool is_plain = !norm_ && factor_ == 1;
  MaskRows rows = context.rows;
  rows.first_column = shard_.rank() * x.tensor.dim(1);
  const SplitWeight split{.weight = *weight_,
                          .group = *shard_.group,
                          .strategy = shard_.strategy,
                          .shared = shard_.shared,
                          .adapters = drawn_from(context, adapters_, rows),
                          .float8 = shard_.float8};
  if (has_magnitudes(context, adapters_)) measure(context, *weight_, adapters_, shard_.group);
  if (has_magnitudes(context, split.adapters)) {
    const Value sum = product_at_lengths(
        context, x, split, nullptr, [&](const Value& part, const SplitWeight& adapted, Parameter*) {
          return row_linear(context, part, adapted, {});
        });
    if (is_plain) return dropout_add(context, sum, bias_, residual, dropout);
    const Value biased = bias_ != nullptr ? dropout_add(context, sum, bias_, nullptr, {}) : sum;
    return ended(context, biased, residual, dropout);
  }
  if (is_plain) return row_linear(context, x, split, {bias_, residual, dropout});
  const Value sum =
      row_linear(context, x, split, {.bias = bias_, .residual = nullptr, .dropout = {}});
  return ended(context, sum, residual, dropout);
}

}  // namespace piton
