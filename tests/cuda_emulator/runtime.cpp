// CUDA's runtime functions. Work is done at once, so streams and events are complete, unless a
// stream has deferred work: that is done by the first wait for it.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/memory.h"
#include "cuda_emulator/older_gpu.h"

using piton::emulator::host_reads;
using piton::emulator::host_writes;

namespace {

int compute_capability = 9;  // the first number of it

struct Deferred {
  void (*work)(void*);
  void* data;
  bool begun = false;
  std::atomic<bool> done{false};
};
using DeferredWork = std::vector<std::shared_ptr<Deferred>>;

// In order. Only one thread waits; others may look.
void finish(const DeferredWork& all) {
  for (const auto& one : all) {
    if (one->begun) continue;
    one->begun = true;
    one->work(one->data);
    one->done = true;
  }
}

bool finished(const DeferredWork& all) {
  for (const auto& one : all) {
    if (!one->done) return false;
  }
  return true;
}

}  // namespace

namespace piton::emulator {

OlderGpu::OlderGpu() { compute_capability = 8; }
OlderGpu::~OlderGpu() { compute_capability = 9; }

}  // namespace piton::emulator

// What was captured.
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  DeferredWork work;
  CUgraph_st* captured = nullptr;
  std::uint64_t capture = 0;  // the number of the last one
};
struct CUevent_st {
  DeferredWork work;
  bool recorded = false;
  // Of the capture in which it was recorded, in order from 1; 0: while nothing was captured.
  std::uint64_t capture = 0;
};

namespace {
std::atomic<int> launched_graphs{0};
std::atomic<int> captured_streams{0};
}  // namespace

void piton::emulator::run_or_record(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr || stream->captured == nullptr) return work();
  stream->captured->work.push_back(std::move(work));
}
bool piton::emulator::captures() { return captured_streams > 0; }
int piton::emulator::graph_launches() { return launched_graphs; }

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captured != nullptr) return cudaErrorInvalidValue;
  static std::atomic<std::uint64_t> begun{0};
  stream->captured = new CUgraph_st;
  stream->capture = ++begun;
  ++captured_streams;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->captured, nullptr);
  if (*graph != nullptr) --captured_streams;
  return *graph == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (stream->captured != nullptr) return cudaErrorInvalidValue;
  for (const auto& work : executable->graph.work) work();
  ++launched_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

void emulator_defer(cudaStream_t stream, void (*work)(void*), void* data) {
  auto one = std::make_shared<Deferred>();
  one->work = work;
  one->data = data;
  stream->work.push_back(std::move(one));
}

const char* cudaGetErrorString(cudaError_t) { return "an error of the emulator"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfTheEmulator"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "emulator");
  properties->major = compute_capability;
  properties->minor = 0;
  properties->totalGlobalMem = std::size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = compute_capability;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{4} << 30;
  *free = *total - piton::emulator::allocated_bytes();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = piton::emulator::allocate(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  piton::emulator::release(data);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  piton::emulator::run_or_record(stream, [=] {
    host_writes(data, bytes);
    std::memset(data, value, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool both_here = kind == cudaMemcpyDeviceToDevice ||
                         (kind == cudaMemcpyDefault && piton::emulator::is_allocated(src) &&
                          piton::emulator::is_allocated(dst));
  if (stream != nullptr && stream->captured != nullptr) {
    if (!both_here) return cudaErrorInvalidValue;  // the host's memory may be another by then
    stream->captured->work.push_back([=] {
      host_reads(src, bytes);
      host_writes(dst, bytes);
      std::memmove(dst, src, bytes);
    });
    return cudaSuccess;
  }
  const bool guessed = kind == cudaMemcpyDefault;
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
      (guessed && piton::emulator::is_allocated(src))) {
    host_reads(src, bytes);
  }
  if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
      (guessed && piton::emulator::is_allocated(dst))) {
    host_writes(dst, bytes);
  }
  std::memmove(dst, src, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->captured != nullptr) return cudaErrorInvalidValue;
  finish(stream->work);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
// A capture has no work of others, and nobody else waits for its work, which has not run.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::uint64_t here = stream->captured != nullptr ? stream->capture : 0;
  if (event->recorded && event->capture != here) return cudaErrorInvalidValue;
  return here != 0 ? cudaSuccess : cudaEventSynchronize(event);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t work, void* data) {
  if (stream->captured != nullptr)
    return cudaErrorInvalidValue;  // its work would be done once only
  work(data);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  DeferredWork& work = stream->work;
  std::erase_if(work, [](const auto& one) { return one->done.load(); });
  event->work = work;
  event->recorded = true;
  event->capture = stream->captured != nullptr ? stream->capture : 0;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture != 0) return cudaErrorInvalidValue;
  return finished(event->work) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture != 0) return cudaErrorInvalidValue;
  finish(event->work);
  return cudaSuccess;
}
