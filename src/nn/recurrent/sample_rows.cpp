#include "nn/recurrent/sample_rows.h"

#include <cmath>
#include <utility>

namespace piton {

RecurrentRows rows_of_pass(const AttentionInput& input) {
  RecurrentRows rows{.samples = input.batch, .segments = {}, .cache = input.states};
  if (!rows.cache.given()) rows.segments = row_segments(input.places);
  return rows;
}

Tensor row_segments(const AttentionPlaces& places) {
  const Tensor& segments = places.query_segments;
  return segments.defined() ? segments.reshape(Shape{segments.elements()}) : segments;
}

Initialization initial_filters(std::int64_t width) {
  return {.kind = Initialization::Kind::kUniform,
          .bound = 1 / std::sqrt(static_cast<double>(width))};
}

Parameter* add_used(ParameterList& parameters, Parameter parameter, int contributions) {
  parameter.contributions = contributions;
  return &parameters.add(std::move(parameter));
}

Value per_head(const Value& rows, std::int64_t d) { return {rows.tensor.split_dim(1, d), rows.id}; }

}  // namespace piton
