// The files of expert ranks: each has some experts of every layer, and all other tensors.
#pragma once

#include <string>
#include <vector>

#include "megatron/format/megatron_files.h"

namespace piton {

// The tensors of a chunk in a file, whose experts are numbered from 0.
struct ExpertRankTensors {
  std::string where;  // the file
  BoxedTensors tensors;
};

// `own`, whose experts are replaced by those of all `ranks`, under their numbers in the model.
// `ranks`: expert ranks 0, 1, ... that have the same share of each expert. Throws Error(kData)
// where a file has other tensors than the first.
BoxedTensors with_all_experts(const ExpertRankTensors& own, std::vector<ExpertRankTensors> ranks);

}  // namespace piton
