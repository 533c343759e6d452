// Handling of CUDA errors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

namespace piton::cuda {

// Returns if `result` is success. Otherwise clears it and
//   out of memory                throws Error(kMemory) with the `bytes` asked for and what is free
//   no driver, device or code    throws Error(kUsage)
//   an argument or an address    a bug of this program: asserts
//   anything else                throws Error(kPeer): the device is lost for this process
// `doing` names the operation in the message: "allocation", "launch of add". Kernels run after
// their launch, so an error may also come from earlier work on a stream.
void check(cudaError_t result, std::string_view doing, std::int64_t bytes = 0,
           const char* file = __builtin_FILE(), int line = __builtin_LINE());

// Makes device `index` the current device of this thread.
void select(int index);

}  // namespace piton::cuda
