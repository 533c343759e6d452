// CUDA streams and events as the Stream and Event of device/device.h. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/cuda/kept_failure.h"
#include "device/device.h"

namespace piton::cuda {

// A cudaEvent without timing on the current device. Before the first record() it is complete.
class RecordedEvent {
 public:
  RecordedEvent();
  ~RecordedEvent();
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  void record(cudaStream_t stream);
  bool complete() const;
  void wait() const;  // blocks this host thread
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// `failure`: of the device; calls and waits throw it.
std::unique_ptr<Stream> make_stream(int device, std::shared_ptr<KeptFailure> failure);

// The handle of a stream made by make_stream(); asserts that it is one.
cudaStream_t handle_of(Stream& stream);
// The same for a copy to or from the host, which a recording would repeat with the memory of the
// host at that time; asserts that the stream does not record.
cudaStream_t handle_for_host(Stream& stream);

}  // namespace piton::cuda
