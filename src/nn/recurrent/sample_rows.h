// What layers with a state of fixed size have in common: the rows of a pass, and their filters.
#pragma once

#include "nn/attention.h"
#include "ops/recurrent/delta_rule.h"

namespace piton {

// Of the texts of a cache, or of samples with the segments of their rows.
RecurrentRows rows_of_pass(const AttentionInput& input);

// The segment of each row, [n], or empty.
Tensor row_segments(const AttentionPlaces& places);

// As torch draws those of a convolution: uniform, by the root of the inputs of a channel.
Initialization initial_filters(std::int64_t width);

// Adds a parameter that one op of a micro-batch uses, or several do.
Parameter* add_used(ParameterList& parameters, Parameter parameter, int contributions = 1);

// Rows [n, heads * d] as [n, heads, d].
Value per_head(const Value& rows, std::int64_t d);

}  // namespace piton
