// A Stream is a cudaStream, an Event a cudaEvent.
#include "device/cuda/stream.h"

#include <exception>
#include <utility>

#include "device/cuda/check.h"

namespace piton::cuda {
namespace {

// Of a stream: the failure of its host work, and that of its device.
struct Failures {
  std::shared_ptr<KeptFailure> host;
  std::shared_ptr<KeptFailure> device;

  void rethrow() const {
    host->rethrow();
    device->rethrow();
  }
};

class CudaFence final : public Fence {
 public:
  CudaFence(cudaStream_t stream, Failures failures) : failures_(std::move(failures)) {
    event_.record(stream);
  }

  bool complete() const override { return event_.complete(); }
  void wait() override {
    event_.wait();
    failures_.rethrow();
  }
  cudaEvent_t handle() const { return event_.handle(); }

 private:
  RecordedEvent event_;
  Failures failures_;
};

// The argument of cudaLaunchHostFunc.
struct HostWork {
  std::function<void()> work;
  std::shared_ptr<KeptFailure> failure;
};

void run_host_work(void* data) {
  const std::unique_ptr<HostWork> host(static_cast<HostWork*>(data));
  try {
    host->work();
  } catch (...) {  // exceptions must not pass through CUDA
    host->failure->keep(std::current_exception());
  }
}

// A CUDA graph. Its stream must outlive it.
class CudaGraph final : public RecordedWork {
 public:
  // Ends the capture of `stream`.
  CudaGraph(int device, cudaStream_t stream, Failures failures)
      : device_(device), stream_(stream), failures_(std::move(failures)) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "recording of a graph");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "making of a graph");
  }
  ~CudaGraph() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
  }

  void run() override {
    failures_.rethrow();
    select(device_);
    check(cudaGraphLaunch(graph_, stream_), "launch of a graph");
  }

 private:
  int device_;
  cudaStream_t stream_;
  Failures failures_;
  cudaGraphExec_t graph_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  CudaStream(int device, std::shared_ptr<KeptFailure> failure)
      : device_(device), failures_{std::make_shared<KeptFailure>(), std::move(failure)} {
    select(device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making of a stream");
  }

  // Waits, because work on the stream may use objects that the caller destroys next. Errors are
  // ignored here.
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  Event record() override {
    failures_.rethrow();
    select(device_);
    return Event(std::make_shared<CudaFence>(stream_, failures_));
  }

  void enqueue(std::function<void()> work) override {
    expect_running();
    failures_.rethrow();
    select(device_);
    auto host = std::make_unique<HostWork>(HostWork{std::move(work), failures_.host});
    check(cudaLaunchHostFunc(stream_, run_host_work, host.get()), "launch of host work");
    static_cast<void>(host.release());  // run_host_work() owns it from here on
  }

  bool can_record() const override { return true; }
  std::unique_ptr<RecordedWork> recorded(const std::function<void()>& enqueue) override {
    failures_.rethrow();
    select(device_);
    // Other threads may allocate and copy meanwhile.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "recording of a graph");
    records_ = true;
    try {
      enqueue();
      records_ = false;
    } catch (...) {
      records_ = false;
      cudaGraph_t graph = nullptr;
      if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      throw;
    }
    return std::make_unique<CudaGraph>(device_, stream_, failures_);
  }

  cudaStream_t handle() const { return stream_; }
  void expect_running() const {
    PITON_ASSERT(!records_, "cuda: work of the host on a stream that records");
  }

 private:
  void follow(const Event& event) override {
    failures_.rethrow();
    if (const auto* fence = dynamic_cast<const CudaFence*>(event.fence().get())) {
      select(device_);
      check(cudaStreamWaitEvent(stream_, fence->handle(), 0), "wait of a stream");
    } else {
      event.wait();
    }
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  bool records_ = false;
  Failures failures_;
};

CudaStream& cuda_stream(Stream& stream) {
  auto* of_cuda = dynamic_cast<CudaStream*>(&stream);
  PITON_ASSERT(of_cuda != nullptr, "cuda: work for a GPU on a stream of another device");
  return *of_cuda;
}

}  // namespace

RecordedEvent::RecordedEvent() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making of an event");
}

RecordedEvent::~RecordedEvent() { cudaEventDestroy(event_); }

void RecordedEvent::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "recording of an event");
}

bool RecordedEvent::complete() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady)
    return false;  // cudaErrorNotReady is not stored as the last error
  check(result, "look at an event");
  return true;
}

void RecordedEvent::wait() const { check(cudaEventSynchronize(event_), "wait for an event"); }

std::unique_ptr<Stream> make_stream(int device, std::shared_ptr<KeptFailure> failure) {
  return std::make_unique<CudaStream>(device, std::move(failure));
}

cudaStream_t handle_of(Stream& stream) { return cuda_stream(stream).handle(); }

cudaStream_t handle_for_host(Stream& stream) {
  cuda_stream(stream).expect_running();
  return handle_of(stream);
}

}  // namespace piton::cuda
