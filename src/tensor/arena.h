// The memory of a run: slots cut from a few large segments, counted by kind.
//
// A slot is free again as soon as its last tensor is gone, with the fences that were held on it
// (sends, gathers and reductions hold theirs). Whoever gets it next waits for them first: the
// stream that will use it, or the host. Which slot a request gets follows from the requests, the
// holds and the waits of the program alone, never from what happens to be complete: the same
// program gives the same addresses, and after the first steps of a run no request reaches the
// system.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "tensor/tensor.h"

namespace piton {

// Where segments come from: a device.
class Memory {
 public:
  virtual ~Memory() = default;
  // At least 64-byte aligned. Throws Error(kMemory) with what was asked and what is free.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) = 0;
  virtual Place place() const = 0;
};

// Names a stream, for as long as somebody holds it.
using StreamIdentity = std::shared_ptr<const void>;

// Something that completes later: an event of a stream or of a communicator.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual void wait() = 0;  // blocks the calling host thread
  // For back ends and tests. What a program does must not depend on it: ranks would differ, and
  // so would two runs.
  virtual bool complete() const = 0;
  // Runs `work` once this is complete, failed or not: at once on this thread if it is already, else
  // on the thread that completes it. `work` is short and does not throw. A fence that cannot call
  // back waits here.
  virtual void then(std::function<void()> work) {
    wait();
    work();
  }

  // All that is put on `stream` from now on comes after this fence. Remembers the last such stream.
  void set_waited_by(const StreamIdentity& stream);
  bool waited_by(const StreamIdentity& stream) const;

 private:
  mutable std::mutex mutex_;
  StreamIdentity waited_by_;
};

// The next user of a slot: a stream (device/device.h).
class MemoryUser {
 public:
  virtual ~MemoryUser() = default;
  virtual const StreamIdentity& identity() const = 0;
  // What comes next on the stream comes after `fence`.
  virtual void wait_for(const std::shared_ptr<Fence>& fence) = 0;
};

enum class MemoryKind : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kWorkspace,
  kCommunication
};
inline constexpr int kMemoryKinds = 6;
std::string_view name(MemoryKind kind);

struct MemoryCounts {
  std::array<std::int64_t, kMemoryKinds> in_use_bytes{};
  std::array<std::int64_t, kMemoryKinds> peak_bytes{};  // each kind's own maximum
  std::int64_t peak_total_bytes = 0;                    // maximum of the sum: what `plan` predicts
  std::int64_t reserved_bytes = 0;                      // segments taken from the system
  std::int64_t slots = 0;                               // requests served so far
  std::int64_t system_allocations = 0;                  // segments taken so far
};

class Arena {
 public:
  // Segments are at least `segment_bytes`; a larger request takes a segment of its own.
  explicit Arena(Memory& memory, std::int64_t segment_bytes = std::int64_t{64} << 20);
  ~Arena();  // asserts that no tensor of it is left
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialized, 64-byte aligned, for work on `user`, which waits for what is still done with the
  // slot. Best fit among the free slots that `user` need not wait for (no fences, or it has waited
  // for them already), by address on ties; else best fit among all; else a new segment. A slot is
  // used in the order of one stream: work of another stream on it is held with an event of that
  // stream, and a stream that takes over memory of another one is ordered after it by the caller.
  // Thread-safe. Throws Error(kMemory): names the kind, the size and what holds the most.
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser& user);
  // The same for the host: this thread waits.
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind);

  // The next user of the slot under `tensor` (or under the tensor it is a view of) waits for
  // `fence`. Tensors of other origin are left alone.
  void hold(const Tensor& tensor, std::shared_ptr<Fence> fence);

  // Makes `user` wait for what is still done with free slots, and joins them: from here on
  // addresses do not depend on what came before. A step begins with it.
  void settle(MemoryUser& user);

  MemoryCounts counts() const;
  Memory& memory() const;
  // `saw` is called for every request with the address that it got and its size: for tests.
  void observe(std::function<void(const std::byte* data, std::int64_t bytes)> saw);

 private:
  struct State;
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser* user);
  std::shared_ptr<State> state_;
};

}  // namespace piton
