// Maps CUDA errors to Error or assertion, by who can fix them.
#include "device/cuda/check.h"

#include "base/error.h"

namespace piton::cuda {
namespace {

enum class Cause { kMemory, kSetup, kOurs, kDevice };

Cause cause_of(cudaError_t result) {
  switch (result) {
    case cudaErrorMemoryAllocation:
      return Cause::kMemory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorStubLibrary:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
      return Cause::kSetup;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorAssert:
      return Cause::kOurs;
    default:
      return Cause::kDevice;
  }
}

}  // namespace

void check(cudaError_t result, std::string_view doing, std::int64_t bytes, const char* file,
           int line) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears it; otherwise the next launch would report it
  const char* text = cudaGetErrorString(result);
  switch (cause_of(result)) {
    case Cause::kMemory: {
      std::size_t free = 0;
      std::size_t total = 0;
      if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
      throw Error(Fault::kMemory,
                  "cuda: {}: out of memory: {} bytes asked, {} of {} free; use smaller "
                  "micro-batches, recomputation, or more ranks",
                  doing, bytes, free, total);
    }
    case Cause::kSetup:
      throw Error(Fault::kUsage,
                  "cuda: {}: {} ({}); look at the driver and the device with nvidia-smi, or use "
                  "--kernels cpu",
                  doing, text, cudaGetErrorName(result));
    case Cause::kOurs:
      assertion_failed(cudaGetErrorName(result), fmt::format("cuda: {}: {}", doing, text), file,
                       line);
    case Cause::kDevice:
      break;
  }
  throw Error(Fault::kPeer,
              "cuda: {}: the device is lost: {} ({}); start again on a healthy device", doing, text,
              cudaGetErrorName(result));
}

void select(int index) { check(cudaSetDevice(index), "choice of the device"); }

}  // namespace piton::cuda
