// The identity of a model's weights, whatever program stored them: adapters name their base by it.
#pragma once

#include <string>

#include "checkpoint/tensor_source.h"
#include "comm/communicator.h"

namespace piton {

// Collective: the hash over names, types, shapes and values of the source's weights, as they are
// stored: that of weights_hash() for a checkpoint of Piton with the same tensors. Every rank reads
// its share of them, in blocks of a few MiB. Throws Error(kData) on all ranks for a tensor that
// cannot be read.
std::string weights_hash(TensorSource& source, Communicator& ranks);

}  // namespace piton
