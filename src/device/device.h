// A compute device: its memory, streams that order its work, and events that mark points in them.
//
// Work enqueued on a Stream runs after all work that was enqueued on it before. Another stream
// waits for it through an Event. Only streams and events order work: no product code checks whether
// an event is complete to decide what to do next. On the host, compute runs inline: when the call
// returns the work is done, and its events are complete. Before host code reads a result, on any
// device, it waits for an event recorded after the work, or calls download().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tensor/arena.h"

namespace piton {

// A point in a stream. A default-constructed event is complete. Cheap to copy.
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

// Work that was recorded on a stream, to run any number of times: the same calls with the same
// settings, on the same memory.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void run() = 0;  // enqueues it on its stream
};

class Stream : public MemoryUser {
 public:
  virtual Event record() = 0;  // complete when all work enqueued so far is done
  // Work enqueued on this stream from now on waits for `event`. Does not block the host. Enqueues
  // nothing if it waits already.
  void wait(const Event& event) {
    if (event.fence() && !event.fence()->waited_by(identity_)) wait_for(event.fence());
  }
  void wait_for(const std::shared_ptr<Fence>& fence) final {
    follow(Event(fence));
    fence->set_waited_by(identity_);
  }
  const StreamIdentity& identity() const final { return identity_; }
  // Runs a host function in stream order (a CUDA stream calls it from a separate thread). The
  // function must not use the stream.
  virtual void enqueue(std::function<void()> work) = 0;
  void synchronize() { record().wait(); }
  // Whether this stream has recorded(). On CPUs it would spare nothing.
  virtual bool can_record() const { return false; }
  // Records what `enqueue` enqueues on this stream, which does not run then. It may enqueue kernel
  // calls, copies on the device and zeros. It may not use the memory of the host (upload, download,
  // enqueue()), nor wait for work that was enqueued before.
  virtual std::unique_ptr<RecordedWork> recorded(const std::function<void()>& enqueue) {
    (void)enqueue;
    PITON_ASSERT(false, "this stream cannot record work");
    return nullptr;
  }

 private:
  virtual void follow(const Event& event) = 0;  // wait(); the event has a fence

  StreamIdentity identity_ = std::make_shared<char>();
};

class Device : public Memory {
 public:
  virtual std::string name() const = 0;  // "host: 2 threads, x86-64-v4 with bf16"
  virtual std::unique_ptr<Stream> make_stream() = 0;

  // Copy between host memory and the device, ordered on `stream`. When upload() returns, the host
  // buffer may be reused. download() waits for the stream: when it returns, the host buffer holds
  // the data.
  virtual void upload(const void* host, const Tensor& dst, Stream& stream) = 0;  // contiguous dst
  virtual void download(const Tensor& src, void* host, Stream& stream) = 0;      // contiguous src
  virtual void zero(const Tensor& dst, Stream& stream) = 0;                      // contiguous dst
  // The same, faster if most of the memory was never written: the host returns whole pages to the
  // system, which supplies zeros when they are first used.
  virtual void zero_new(const Tensor& dst, Stream& stream) { zero(dst, stream); }

  // dst = src, ordered on `stream`. Both are contiguous, with the same dtype and shape. One of them
  // is on this device; the other is on this device too, or in host memory. Do not touch the tensor
  // in host memory until an event recorded after the copy is complete. Copies to and from
  // host_memory() run while the host and other streams continue.
  virtual void copy(const Tensor& dst, const Tensor& src, Stream& stream) = 0;
  // Host memory that this device can access directly (page-locked for a GPU). An Arena over it
  // allocates tensors there.
  virtual Memory& host_memory() = 0;

  // The address of `tensor` for host code that runs in stream order (Stream::enqueue, the
  // communication thread); nullptr if host code cannot access it (CUDA, meta).
  virtual std::byte* host_address(const Tensor& tensor) const = 0;
};

// Asserts that the tensors suit Device::copy. Does not check whether they are on device or host.
inline void check_copy(const Tensor& dst, const Tensor& src) {
  PITON_ASSERT(dst.contiguous() && src.contiguous() && dst.dtype() == src.dtype() &&
                   dst.shape() == src.shape(),
               "copy of {} to {}", to_string(src), to_string(dst));
}

}  // namespace piton
