// What computes: memory, streams in which work is ordered, and events that say when it is done.
//
// Every kernel and collective is enqueued on a Stream and runs after all work enqueued before it.
// Another stream waits for it through an Event. Order comes from streams and events alone: no code
// asks whether something is complete and decides by the answer. On the host, compute runs inline:
// when enqueue returns the work is done, and its events are complete. Host code that reads a result
// on any device first waits for an event recorded after it, or uses download().
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

class Stream : public MemoryUser {
 public:
  virtual Event record() = 0;  // complete when all that is on the stream so far is done
  // What comes after on this stream waits for `event`.
  void wait(const Event& event) {
    if (event.fence()) wait_for(event.fence());
  }
  void wait_for(const std::shared_ptr<Fence>& fence) final {
    follow(Event(fence));
    fence->set_waited_by(identity_);
  }
  const StreamIdentity& identity() const final { return identity_; }
  // Host work in stream order (a CUDA stream calls it from its own thread). The function must not
  // use the stream.
  virtual void enqueue(std::function<void()> work) = 0;
  void synchronize() { record().wait(); }

 private:
  virtual void follow(const Event& event) = 0;  // wait(); the event has a fence

  StreamIdentity identity_ = std::make_shared<char>();
};

class Device : public Memory {
 public:
  virtual std::string name() const = 0;  // "host: 2 threads, x86-64-v4 with bf16"
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Ordered on `stream`. The host buffer of upload may be reused when the call returns; that of
  // download holds the data when the call returns (it synchronizes).
  virtual void upload(const void* host, const Tensor& dst, Stream& stream) = 0;  // contiguous dst
  virtual void download(const Tensor& src, void* host, Stream& stream) = 0;      // contiguous src
  virtual void zero(const Tensor& dst, Stream& stream) = 0;                      // contiguous dst
  // The same, quickly where most of it was never written: pages that the system gives as zeros are
  // left to their first use.
  virtual void zero_new(const Tensor& dst, Stream& stream) { zero(dst, stream); }

  // dst = src, ordered on `stream`. Contiguous, of one dtype and shape; one is of this device, the
  // other too or in host memory. The host's side belongs to the copy until an event recorded after
  // it is complete. From and to host_memory() the copy runs beside the host and other streams.
  virtual void copy(const Tensor& dst, const Tensor& src, Stream& stream) = 0;
  // Host memory that this device reaches by itself (page-locked for a GPU; an Arena over it gives
  // tensors).
  virtual Memory& host_memory() = 0;

  // Where host code that runs in stream order (Stream::enqueue, the communication thread) finds the
  // bytes of `tensor`; nullptr if it cannot touch them (CUDA, meta).
  virtual std::byte* host_address(const Tensor& tensor) const = 0;
};

// Asserts what Device::copy asks of its tensors, but for their places.
inline void check_copy(const Tensor& dst, const Tensor& src) {
  PITON_ASSERT(dst.contiguous() && src.contiguous() && dst.dtype() == src.dtype() &&
                   dst.shape() == src.shape(),
               "copy of {} to {}", to_string(src), to_string(dst));
}

}  // namespace piton
