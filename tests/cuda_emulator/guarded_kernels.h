// Declares the tensors of each call to the emulator, so that its kernels may use nothing else.
// Scratch of a call is new memory, and is as much as workspace_bytes() says.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/launcher.h"
#include "cuda_emulator/memory.h"
#include "kernels/cuda/linear/linear_parts.h"
#include "kernels/cuda/span_calls.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton::emulator {

class EmulatedMemory final : public Memory {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    return static_cast<std::byte*>(emulator::allocate(static_cast<std::size_t>(bytes)));
  }
  void release(std::byte* data, std::int64_t) override { emulator::release(data); }
  Place place() const override { return {DeviceKind::kCuda, 0}; }
};

class GuardedKernels final : public ForwardingKernels {
 public:
  // `inner`: the CUDA back end on the emulator; must outlive this.
  using ForwardingKernels::ForwardingKernels;

  Arena* set_workspace(Arena* workspace) override {
    inner_.set_workspace(workspace);
    return std::exchange(workspace_, workspace);
  }

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    if (captures()) return inner_.run(call, stream);
    const CallChain alone{call};
    const std::int64_t bytes = inner_.workspace_bytes(call);
    // Where calls are captured later, they find this free.
    if (workspace_ != nullptr && bytes > 0)
      workspace_->allocate(DType::kU8, {bytes}, MemoryKind::kWorkspace, stream);
    EmulatedMemory memory;
    Arena scratch(memory, 1);
    const WorkspaceScope scope(inner_, scratch);
    guarded(std::span(&alone, 1), [&] { inner_.run(call, stream); });
    const std::int64_t taken = scratch.counts().peak_total_bytes;
    if (taken != bytes) {
      throw Fault(fmt::format("{}: {} bytes of scratch, workspace_bytes() is {}", piton::name(call),
                              taken, bytes));
    }
  }

  // Chains of calls that do not run together one after another, so that each has its own tensors.
  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    if (chains.empty() || !(cuda::are_span_calls(chains) || cuda::linear_parts(chains))) {
      ForwardingKernels::submit_chains(chains, stream);
    } else {
      guarded(chains, [&] { inner_.run_chains(chains, stream); });
    }
  }

  template <typename Run>
  static void guarded(std::span<const CallChain> chains, Run run) {
    if (captures()) return run();  // nothing is written now
    const struct EndOfCall {
      ~EndOfCall() { end_call(); }
    } end;
    begin_calls(chains);
    try {
      run();
    } catch (const Fault& fault) {
      throw Fault(std::string(piton::name(chains[0][0])) + ": " + fault.what());
    }
  }

  Arena* workspace_ = nullptr;
};

}  // namespace piton::emulator
