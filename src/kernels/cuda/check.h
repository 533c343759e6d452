// What becomes of a CUDA error: one function for each library's status.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

namespace piton::cuda {

// Returns if `result` is success. Otherwise clears it and
//   out of memory                throws Error(kMemory) with the `bytes` asked for and what is free
//   no driver, device or code    throws Error(kUsage)
//   an argument or an address    is a mistake of this program: asserts
//   anything else                throws Error(kPeer): the device is lost for this process
// `doing` is what failed, for the message: "allocation", "launch of add". Kernels run later than
// their launch, so an error may also come from work that was put on a stream before.
void check(cudaError_t result, std::string_view doing, std::int64_t bytes = 0,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Makes device `index` the one that this thread's calls mean.
void select(int index);

}  // namespace piton::cuda
