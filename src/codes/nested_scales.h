// Double quantization of scales (Dettmers et al. 2023, arXiv:2305.14314, section 3): less their
// mean, scales are rounded to the nearest of 256 values, relative to the largest of 256 neighbors.
//
// The 256 values are the signed dynamic map of bitsandbytes (Dettmers 2016, arXiv:1511.04561): for
// i = 0 .. 6 the middles of 2^i equal parts of 0.1 .. 1, times 10^(i - 6), with both signs; 0; 1.
#pragma once

#include <span>

namespace piton {

// Replaces the scales of a tensor, in order, by what they are after double quantization.
void nest_scales(std::span<float> scales);

}  // namespace piton
