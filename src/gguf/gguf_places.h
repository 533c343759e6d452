// Where canonical tensors are in the tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gguf/architectures.h"
#include "model/config.h"

namespace piton {

inline constexpr const char* kGgufTable = "token_embd.weight";
inline constexpr const char* kGgufHead = "output.weight";

// Row r of the canonical tensor is row stored_row(place, r) of the tensor `name`. If `turned` is
// not 0, the first `turned` of each `head` rows are stored in pairs: canonical rows i and
// i + turned/2 are stored as rows 2i and 2i + 1, for rotary positions of neighboring channels.
// A stacked tensor is [experts, rows, columns], of biases [experts, rows]; its rows are counted
// through all experts.
//
// Keys and values of latent attention, [heads (own + value), columns], are two tensors if `values`
// is not empty: of each head the first `own` rows are a transposed matrix of `name`
// [heads, columns, own], the others one of `values` [heads, value, columns]. `head` is own + value.
struct GgufPlace {
  std::string canonical;
  std::string name;
  std::int64_t first = 0;
  std::int64_t head = 0;
  std::int64_t turned = 0;
  bool stacked = false;
  bool vector = false;  // a matrix of one row, which the file has as a vector
  std::string values;
  std::int64_t own = 0;
  bool from_one = false;  // the file stores gains; canonical values are gain - 1
};

std::int64_t stored_row(const GgufPlace& place, std::int64_t row);

// Returns whether the architecture has a place for each kind of tensor of the model.
bool can_be_placed(const GgufArchitecture& architecture, const ModelConfig& model);

// One place for each of canonical_tensors(model), and one for the head even if it is tied.
std::vector<GgufPlace> gguf_places(const GgufArchitecture& architecture, const ModelConfig& model);

// Shapes of the tensors of a file, rows first (experts first if they are stacked); with the head if
// it is not tied.
std::map<std::string, std::vector<std::int64_t>> gguf_shapes(const GgufArchitecture& architecture,
                                                             const ModelConfig& model);

}  // namespace piton
