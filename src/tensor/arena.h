// The memory of a run: slots in a few large segments, counted by kind.
//
// A slot is free as soon as its last tensor is destroyed. Fences passed to hold() stay with the
// slot (sends, gathers and reductions do this), and its next user, a stream or the host, waits for
// them first. Which slot a request gets depends only on the requests, holds and waits of the
// program, never on what has completed. So the same program gets the same addresses, and after the
// first steps of a run the arena allocates nothing from the system.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace piton {

// The source of segments: a device.
class Memory {
 public:
  virtual ~Memory() = default;
  // Aligned to at least 64 bytes. Throws Error(kMemory) that says what was requested and what is
  // free.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) = 0;
  virtual Place place() const = 0;
};

// Identifies a stream. Unique as long as a copy of it exists.
using StreamIdentity = std::shared_ptr<const void>;

// Something that completes later: an event of a stream or of a communicator.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual void wait() = 0;  // blocks the calling host thread
  // For back ends and tests. Programs must not make decisions that depend on it: ranks, and two
  // runs, would differ.
  virtual bool complete() const = 0;
  // Runs `work` when the fence is complete, also after a failure. If it is complete already, `work`
  // runs on this thread at once, else on the thread that completes the fence. `work` must be short
  // and must not throw. The default, for fences without callbacks, waits here.
  virtual void then(std::function<void()> work) {
    wait();
    work();
  }

  // Records that all work enqueued on `stream` from now on runs after this fence. Only the last
  // such stream is remembered.
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
  // Work enqueued on the stream from now on runs after `fence`.
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

struct MemoryRange {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

class Arena {
 public:
  // Segments are at least `segment_bytes`; a larger request takes a separate segment.
  explicit Arena(Memory& memory, std::int64_t segment_bytes = std::int64_t{64} << 20);
  ~Arena();  // asserts that no tensor of it is left
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialized memory, aligned to 64 bytes, for work on `user`, which waits for the fences of
  // the slot. Takes the best fit among the free slots for which `user` need not wait (no fences, or
  // it already waits for them), and the lowest address on ties; otherwise the best fit among all
  // free slots; otherwise a new segment.
  //
  // A slot is used in the order of one stream. If another stream also works on it, the caller must
  // hold() an event of that stream. If streams share an arena, the caller must order a stream that
  // gets memory after the stream that used it before. Thread-safe. Throws Error(kMemory) that names
  // the kind, the size and the kinds that hold the most.
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser& user);
  // The same for use by the host: this thread waits for the fences.
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind);

  // Makes the next user of the slot of `tensor` wait for `fence`. `tensor` may be a view. Does
  // nothing for tensors that are not from this arena.
  void hold(const Tensor& tensor, std::shared_ptr<Fence> fence);

  // What the slot of `tensor` was requested for; empty if it is not from this arena.
  std::optional<MemoryKind> kind_of(const Tensor& tensor) const;

  // Makes `user` wait for the fences of all free slots, and joins adjacent ones. Later addresses
  // then do not depend on earlier requests. Called at the beginning of every step.
  void settle(MemoryUser& user);

  // For work that is recorded, to run later in the same memory (Stream::recorded). Runs `record`
  // and returns the memory that it has asked for and has given back. It finds the same memory free
  // as equal work before it that took no new segment, so it needs none either; a device cannot be
  // asked for one then, and Error(kMemory) is thrown.
  std::vector<MemoryRange> used_by(const std::function<void()>& record);
  // Whether no tensor has any of this memory of free slots, and none of them has fences: after
  // settle() recorded work may use it.
  bool is_free(const std::vector<MemoryRange>& memory) const;

  MemoryCounts counts() const;
  Memory& memory() const;
  // For tests: calls `saw` for every request, with its address and size.
  void observe(std::function<void(const std::byte* data, std::int64_t bytes)> saw);

 private:
  struct State;
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser* user);
  std::shared_ptr<State> state_;
};

}  // namespace piton
