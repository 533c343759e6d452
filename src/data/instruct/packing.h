// Which samples share one sequence (--pack): best fit, as LlamaFactory and MindSpeed-LLM.
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

// Fills packs one after another: each takes the longest remaining sample that still fits, until
// none does. Of equally long samples the last one is taken first. Returns the samples of each pack.
// Asserts that every length is 1 to `capacity`.
std::vector<std::vector<std::int64_t>> best_fit(const std::vector<std::int32_t>& lengths,
                                                std::int64_t capacity);

}  // namespace piton
