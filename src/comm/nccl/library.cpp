#include "comm/nccl/library.h"

#include <vector>

#include "base/error.h"
#include "comm/nccl/world.h"

namespace piton {
namespace nccl {
namespace {

constexpr int kOldest = 21000;  // 2.10: bf16

}  // namespace

Library::Library(const std::string& file)
    : library(
          "NCCL",
          file.empty()
              ? std::vector<std::string>{"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"}
              : std::vector<std::string>{file},
          "install NCCL 2 (libnccl2), put its folder on LD_LIBRARY_PATH, or start one process") {
  library.find(error_text, "ncclGetErrorString");
  Result (*get_version)(int*) = nullptr;
  library.find(get_version, "ncclGetVersion");
  check(get_version(&version), "version of NCCL");
  if (version < kOldest) {
    throw Error(Fault::kUsage, "NCCL: got version number {}, wanted {} (2.10) or newer", version,
                kOldest);
  }
  library.find(make_id, "ncclGetUniqueId");
  library.find(init, "ncclCommInitRank");
  library.find(destroy, "ncclCommDestroy");
  library.find(abort, "ncclCommAbort");
  library.find(async_error, "ncclCommGetAsyncError");
  library.find(all_reduce, "ncclAllReduce");
  library.find(all_gather, "ncclAllGather");
  library.find(reduce_scatter, "ncclReduceScatter");
  library.find(broadcast, "ncclBroadcast");
  library.find(send, "ncclSend");
  library.find(receive, "ncclRecv");
  library.find(group_start, "ncclGroupStart");
  library.find(group_end, "ncclGroupEnd");
}

void Library::check(Result result, std::string_view doing) const {
  switch (result) {
    case Result::kSuccess:
    case Result::kInProgress:
      return;
    case Result::kInvalidArgument:
      PITON_ASSERT(false, "NCCL: {}: {}", doing, error_text(result));
      return;
    case Result::kInvalidUsage:
      throw Error(Fault::kUsage,
                  "NCCL: {}: {}; give each rank its own GPU (NCCL_DEBUG=WARN prints more)", doing,
                  error_text(result));
    default:
      throw Error(Fault::kPeer,
                  "NCCL: {}: {}; look at the other ranks, the network and the GPUs "
                  "(NCCL_DEBUG=WARN prints more)",
                  doing, error_text(result));
  }
}

}  // namespace nccl

std::string nccl_obstacle() {
  try {
    nccl::Library library("");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace piton
