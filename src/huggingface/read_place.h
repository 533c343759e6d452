// Reads parts of a canonical tensor from where a file has it (HfPlace).
#pragma once

#include "checkpoint/file_tensor.h"
#include "checkpoint/regions.h"
#include "huggingface/families/hf_family.h"

namespace piton {

// dst [run.size()] = the elements of the run of the canonical tensor that is at `place` of
// `stored`, as `dtype`. A transposed tensor is turned block by block. Throws Error(kData) as
// read_run().
void read_place(const FileTensor& stored, const HfPlace& place, const TensorRun& run, DType dtype,
                std::byte* dst);

}  // namespace piton
