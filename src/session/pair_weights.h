// The weights of the second loss of encoders, that of the order of two parts of each sample.
//
// The loss of a step is Megatron's: the mean over the masked tokens plus the mean over the samples.
// A step divides the sum of all losses by the number of tokens T. So each of P pairs has the weight
// T / P.
#pragma once

#include <vector>

#include "data/samples/batch.h"

namespace piton {

// Pairs with a label, of these micro-batches.
double count_pairs(const std::vector<MicroBatch>& batches);

// `batches` with pair_weights: `weight` where there is a label, else 0.
std::vector<MicroBatch> with_pair_weights(std::vector<MicroBatch> batches, double weight);

}  // namespace piton
