// What families with layers of Mamba-2 have in common.
#pragma once

#include <string>
#include <vector>

#include "huggingface/families/names.h"
#include "model/state_space_options.h"

namespace piton {

// The tensors of such a layer; their names in the files begin with `module`: "mamba.".
std::vector<HfPart> state_space_parts(const StateSpaceFacts& facts, const std::string& module);

// Throws Error(kData) if steps are cut off below or above.
void refuse_bounds_of_steps(const HfConfig& config);

}  // namespace piton
