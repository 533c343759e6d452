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

// Row r of a canonical tensor is row  first + stored_row(r)  of `name`. Where `turned` is not 0,
// the first `turned` of each `head` rows are stored in pairs: rows i and i + turned/2 are rows 2i
// and 2i + 1, as rotary positions of neighboring channels want them.
struct GgufPlace {
  std::string canonical;
  std::string name;
  std::int64_t first = 0;
  std::int64_t head = 0;
  std::int64_t turned = 0;
  bool from_one = false;  // stored are gains, canonical their differences from 1
};

std::int64_t stored_row(const GgufPlace& place, std::int64_t row);

// The architecture has a name for each kind of tensor of the model.
bool can_be_placed(const GgufArchitecture& architecture, const ModelConfig& model);

// One for each of canonical_tensors(model), with the head's also where it is tied.
std::vector<GgufPlace> gguf_places(const GgufArchitecture& architecture, const ModelConfig& model);

// Shapes of the tensors of a file, rows first; the head's where it is not tied.
std::map<std::string, std::vector<std::int64_t>> gguf_shapes(const GgufArchitecture& architecture,
                                                             const ModelConfig& model);

}  // namespace piton
