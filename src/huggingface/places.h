// HfPlace in both directions: canonical rows are read out of the tensors of files, and the tensors
// of files are put together from canonical ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/assembly.h"
#include "huggingface/family.h"
#include "tensor/shape.h"

namespace piton {

// The row of the stored tensor (its column where it is transposed) that holds canonical row `row`.
std::int64_t stored_row(const HfPlace& place, std::int64_t row);

// Calls each(first canonical row, its end) for stretches of rows that are stored one after another.
template <typename F>
void for_each_chunk(const HfPlace& place, std::int64_t begin, std::int64_t end, F&& each) {
  while (begin < end) {
    const std::int64_t stop =
        place.chunk == 0 ? end : std::min(end, (begin / place.chunk + 1) * place.chunk);
    each(begin, stop);
    begin = stop;
  }
}

// Shapes of canonical tensors, with that of the head also where it is tied.
std::map<std::string, Shape> shapes_with_head(const ModelConfig& model);

// The shape of each tensor of the files: as many rows as its parts need together.
std::map<std::string, std::vector<std::int64_t>> hf_shapes(const std::vector<HfPlace>& places,
                                                           const ModelConfig& model);

// The tensors of the files, in the order of the places, without the head where it is tied.
std::vector<Assembly> hf_assemblies(const std::vector<HfPlace>& places, const ModelConfig& model);

}  // namespace piton
