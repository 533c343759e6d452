// Which parameters of a model are held as codes (codes/code_format.h), and in which format.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "ops/parameter.h"
#include "tensor/arena.h"

namespace piton {

// Nullopt: as values.
using CodesOfParameter = std::function<std::optional<CodeFormat>(const Parameter&)>;

// All matrices of the model's layers in `format`; in a format of GGUF files the head, too, in q8_0
// or q6_k as those have it, unless it is the table of tokens. Others stay as they are: tables,
// norms, biases, adapters, routers. The function throws Error(kUsage), beginning with `flag`, for a
// matrix whose columns are split within a group.
CodesOfParameter codes_in(const CodeFormat& format, const std::string& flag);

// Those matrices and heads that `source`, which must outlive the function, stores as codes, if this
// rank holds whole groups of them.
CodesOfParameter codes_stored_in(const TensorSource& source);

// Gives those of `parameters` that are not trained the memory of their codes in place of values.
void hold_as_codes(const std::vector<Parameter*>& parameters, const CodesOfParameter& codes,
                   Arena& arena);

}  // namespace piton
