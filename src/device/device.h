// What computes: memory, streams in which work is ordered, and events that say when it is done.
//
// Every kernel and collective is put on a Stream and is ordered after what stands on it. Another
// stream waits for it through an Event. On the host, compute runs inline: when enqueue returns the
// work is done, and its events are complete. Host code that reads a result on any device first
// waits for an event recorded after it, or uses download().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tensor/arena.h"

namespace piton {

// A point in a stream. A default event is complete. Cheap to copy.
class Event {
 public:
  Event() = default;
  explicit Event(std::shared_ptr<Fence> fence) : fence_(std::move(fence)) {}

  bool complete() const { return !fence_ || fence_->complete(); }
  void wait() const {  // blocks this host thread
    if (fence_) fence_->wait();
  }
  const std::shared_ptr<Fence>& fence() const { return fence_; }

 private:
  std::shared_ptr<Fence> fence_;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual Event record() = 0;  // complete when all that is on the stream so far is done
  virtual void wait(const Event& event) = 0;  // what comes after on this stream waits for `event`
  // Host work in stream order (a CUDA stream calls it from its own thread). The function must not
  // use the stream.
  virtual void enqueue(std::function<void()> work) = 0;
  void synchronize() { record().wait(); }
};

class Device : public Memory {
 public:
  virtual std::string name() const = 0;  // "host: 2 threads, x86-64-v4 with bf16"
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Ordered on `stream`. The host buffer of upload may be reused when the call returns; that of
  // download holds the data when the call returns (it synchronises).
  virtual void upload(const void* host, const Tensor& dst, Stream& stream) = 0;  // contiguous dst
  virtual void download(const Tensor& src, void* host, Stream& stream) = 0;      // contiguous src
  virtual void zero(const Tensor& dst, Stream& stream) = 0;                      // contiguous dst
  // The same, quickly where most of it was never written: pages that the system gives as zeros are
  // left to their first use.
  virtual void zero_new(const Tensor& dst, Stream& stream) { zero(dst, stream); }

  // Where host code that runs in stream order (Stream::enqueue, the communication thread) finds the
  // bytes of `tensor`; nullptr if it cannot touch them (CUDA, meta).
  virtual std::byte* host_address(const Tensor& tensor) const = 0;
};

}  // namespace piton
