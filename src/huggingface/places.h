// Maps between canonical tensors and tensors of the files, in both directions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/assembly.h"
#include "huggingface/families/hf_family.h"
#include "tensor/shape.h"

namespace piton {

// The row (if transposed: the column) of the stored tensor that has canonical row `row`.
std::int64_t stored_row(const HfPlace& place, std::int64_t row);

// Whether the place is in one of several matrices that are transposed, one upon another.
inline bool is_turned_stack(const HfPlace& place) { return place.transposed && place.stacks > 0; }

// Calls each(first canonical row, its end) for stretches of rows that are consecutive in the file.
template <typename F>
void for_each_chunk(const HfPlace& place, std::int64_t begin, std::int64_t end, F&& each) {
  while (begin < end) {
    const std::int64_t stop =
        place.chunk == 0 ? end : std::min(end, (begin / place.chunk + 1) * place.chunk);
    each(begin, stop);
    begin = stop;
  }
}

// Shapes of canonical tensors, including the head's even if it is tied.
std::map<std::string, Shape> shapes_with_head(const ModelConfig& model);

// The shape of each tensor in the files: as many rows as all its parts need.
std::map<std::string, std::vector<std::int64_t>> hf_shapes(const std::vector<HfPlace>& places,
                                                           const ModelConfig& model);

// The tensors of the files, in the order of the places, without a tied head; stacks are one matrix
// of all their rows.
std::vector<Assembly> hf_assemblies(const std::vector<HfPlace>& places, const ModelConfig& model);

}  // namespace piton
