// The functions of NCCL that this folder uses, from the library of the machine. Internal to this
// folder. The declarations are those of nccl.h, which have been the same since NCCL 2.10, so that a
// build does not need it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "base/shared_library.h"

namespace piton::nccl {

using Comm = struct ncclComm*;

struct UniqueId {
  char bytes[128];
};

enum class Result : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int {
  kU8 = 1,
  kI32 = 2,
  kI64 = 4,
  kF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBF16 = 9,
};

enum class Op : int { kSum = 0, kMax = 2 };

struct Library {
  // Opens `file`; "": libnccl.so.2. Throws Error(kUsage) if it is missing or older than 2.10.
  explicit Library(const std::string& file);

  // Returns if `result` is success. Throws Error(kUsage) if the machine does not suit, Error(kPeer)
  // for what other ranks or the network cause, and asserts that the arguments were right.
  void check(Result result, std::string_view doing) const;

  SharedLibrary library;
  int version = 0;  // 22805 is 2.28.5
  const char* (*error_text)(Result) = nullptr;
  Result (*make_id)(UniqueId*) = nullptr;
  Result (*init)(Comm*, int ranks, UniqueId, int rank) = nullptr;
  Result (*destroy)(Comm) = nullptr;
  Result (*abort)(Comm) = nullptr;
  Result (*async_error)(Comm, Result*) = nullptr;
  Result (*all_reduce)(const void*, void*, std::size_t, NcclType, Op, Comm, cudaStream_t) = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, NcclType, Comm, cudaStream_t) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, NcclType, Op, Comm,
                           cudaStream_t) = nullptr;
  Result (*broadcast)(const void*, void*, std::size_t, NcclType, int root, Comm,
                      cudaStream_t) = nullptr;
  Result (*send)(const void*, std::size_t, NcclType, int peer, Comm, cudaStream_t) = nullptr;
  Result (*receive)(void*, std::size_t, NcclType, int peer, Comm, cudaStream_t) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
};

}  // namespace piton::nccl
