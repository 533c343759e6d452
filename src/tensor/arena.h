// The memory of a run: slots cut from a few large segments, counted by kind.
//
// A slot is given back when its last tensor goes, and can be given out again when every fence held
// on it is complete (sends, gathers and reductions hold theirs). Slots are chosen best fit, by
// address on ties, and neighbours that are free are joined: the same sequence of requests gives the
// same addresses, so after the first steps of a run no request reaches the system.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
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

// Something that completes later: an event of a stream or of a communicator.
class Fence {
 public:
  virtual ~Fence() = default;
  virtual bool complete() const = 0;
  virtual void wait() = 0;  // blocks the calling host thread
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

  // Uninitialised, 64-byte aligned. Thread-safe. Throws Error(kMemory): names the kind, the size
  // and what holds the most.
  Tensor allocate(DType dtype, const Shape& shape, MemoryKind kind);

  // The slot under `tensor` (or under the tensor it is a view of) cannot be reused before `fence`
  // is complete, even if all its tensors go. Tensors of other origin are left alone.
  void hold(const Tensor& tensor, std::shared_ptr<Fence> fence);

  MemoryCounts counts() const;
  Memory& memory() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace piton
