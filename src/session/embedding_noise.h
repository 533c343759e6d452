// NEFTune (Jain et al. 2023, arXiv:2310.05914): in training passes uniform noise is added to the
// embeddings of tokens. Its bound is alpha / sqrt(L h) for a text of L tokens, whatever the rows of
// the batch are filled up with, so that packing and layout do not change it.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/batch.h"

namespace piton {

// Of each row, [b*s]; 0 for padding. A text is a segment of a sample, or the whole sample.
std::vector<float> noise_bounds(const MicroBatch& batch, double alpha, std::int64_t hidden);

}  // namespace piton
