// Streams and events of CUDA behind device/device.h. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "device/device.h"

namespace piton::cuda {

// A cudaEvent without timing, on the device that is selected when it is made. Never recorded:
// complete.
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

std::unique_ptr<Stream> make_stream(int device);

// Asserts that `stream` is one of make_stream.
cudaStream_t handle_of(Stream& stream);

}  // namespace piton::cuda
