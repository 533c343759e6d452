// Where canonical tensors are in the tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gguf/architectures.h"
#include "gguf/gguf_transform.h"
#include "gguf/tiled_heads.h"
#include "model/config.h"

namespace piton {

inline constexpr const char* kGgufTable = "token_embd.weight";
inline constexpr const char* kGgufHead = "output.weight";

// Row r of the canonical tensor is row stored_row(place, r) of the tensor `name`. If `turned` is
// not 0, the first `turned` of each `head` rows are stored in pairs: canonical rows i and
// i + turned/2 are stored as rows 2i and 2i + 1, for rotary positions of neighboring channels. If
// `chunk` is not 0, each `chunk` rows are next to each other, and `stride` rows behind the ones
// before them: matrices whose heads alternate. `tiled_rows`: heads in the order of tiled_heads.h.
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
  bool vector = false;       // a matrix of one row, which the file has as a vector
  std::int64_t columns = 0;  // not 0: a vector, which the file has as a matrix of so many columns
  std::string values;
  std::int64_t own = 0;
  std::int64_t chunk = 0;
  std::int64_t stride = 0;
  std::optional<TiledHeads> tiled_rows;
  std::optional<TiledHeads> tiled_columns;  // so are the columns
  GgufTransform transform = GgufTransform::kNone;
};

std::int64_t stored_row(const GgufPlace& place, std::int64_t row);

// From each multiple of this number on so many rows are next to each other in the file, in the same
// order; of a tensor of `rows` rows.
std::int64_t rows_in_order(const GgufPlace& place, std::int64_t rows);

// Returns whether the architecture has a place for each kind of tensor of the model.
bool can_be_placed(const GgufArchitecture& architecture, const ModelConfig& model);

// One place for each of canonical_tensors(model), and one for the head even if it is tied.
std::vector<GgufPlace> gguf_places(const GgufArchitecture& architecture, const ModelConfig& model);

// Shapes of the tensors of a file, rows first (experts first if they are stacked); with the head if
// it is not tied.
std::map<std::string, std::vector<std::int64_t>> gguf_shapes(const GgufArchitecture& architecture,
                                                             const ModelConfig& model);

}  // namespace piton
