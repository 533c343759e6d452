// Fibers: a stack each, and a switch of six registers.
#include "cuda_emulator/launcher.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_emulator/memory.h"
#include "cuda_emulator/ordering.h"

extern "C" void piton_emulator_switch(void** from, void* to);
asm(R"(
.text
.globl piton_emulator_switch
.type piton_emulator_switch, @function
piton_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size piton_emulator_switch, .-piton_emulator_switch
)");

namespace piton::emulator {

Indices indices;
RunningThread running_thread;

namespace {

// How far above a local of launch() the host's frames are taken for arguments of the kernel.
constexpr std::uintptr_t kHostFrames = std::uintptr_t{256} << 10;

enum class State : std::uint8_t { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

struct Fiber {
  void* stack_pointer = nullptr;
  State state = State::kDone;
};

struct Warp {
  struct Slot {
    alignas(16) unsigned char bytes[kMostExchanged];
  };
  unsigned arrived = 0;
  unsigned mask = 0;  // of those that wait
  std::uint16_t barriers = 0;
  std::uint32_t turn = 0;  // exchanges so far: their slots alternate
  std::array<std::array<Slot, kWarpSize>, 2> slots;
};

struct Block {
  std::vector<Fiber> fibers{kMostThreads};
  std::array<Warp, kMostThreads / kWarpSize> warps;
  char* stacks = nullptr;
  void* scheduler = nullptr;
  std::size_t threads = 0;
  std::size_t current = 0;
  std::size_t at_barrier = 0;
  std::uint32_t number = 0;
  std::size_t shared_bytes = 0;
  std::uintptr_t host_frame = 0;
  std::string fault;
  const std::function<void()>* thread = nullptr;
  std::mutex mutex;  // one launch at a time
};

Block block;

void to_scheduler(State state) {
  Fiber& fiber = block.fibers[block.current];
  fiber.state = state;
  piton_emulator_switch(&fiber.stack_pointer, block.scheduler);
}

void fiber_main() {
  (*block.thread)();
  to_scheduler(State::kDone);
}

// A stack whose first switch enters fiber_main(), with the alignment of a called function.
void prepare(std::size_t index) {
  char* top = block.stacks + (index + 1) * kStackBytes;
  auto** words = reinterpret_cast<void**>(top - 16);
  words[0] = reinterpret_cast<void*>(&fiber_main);
  for (int i = 1; i <= 6; ++i) words[-i] = nullptr;
  block.fibers[index] = {.stack_pointer = words - 6, .state = State::kReady};
}

void resume(std::size_t index) {
  block.current = index;
  indices.thread = {static_cast<unsigned>(index), 0, 0};
  running_thread.stack = reinterpret_cast<std::uintptr_t>(block.stacks) + index * kStackBytes;
  running_thread.moment.warp_barriers = block.warps[index / kWarpSize].barriers;
  running_thread.moment.thread = static_cast<std::uint16_t>(index);
  piton_emulator_switch(&block.scheduler, block.fibers[index].stack_pointer);
}

void run_block() {
  for (std::size_t i = 0; i < block.threads; ++i) prepare(i);
  for (Warp& warp : block.warps) warp.arrived = warp.barriers = warp.turn = 0;
  block.at_barrier = 0;
  running_thread.moment.block = block.number;
  running_thread.moment.block_barriers = 0;
  forget_shared_memory();
  forget_block();
  while (block.fault.empty()) {
    bool moved = false;
    std::size_t done = 0;
    for (std::size_t i = 0; i < block.threads && block.fault.empty(); ++i) {
      const std::size_t index = block.number % 2 == 0 ? i : block.threads - 1 - i;
      if (block.fibers[index].state == State::kReady) {
        resume(index);
        moved = true;
      }
      if (block.fibers[index].state == State::kDone) ++done;
    }
    if (done == block.threads) return;
    if (!moved && block.fault.empty()) {
      block.fault = "block " + std::to_string(block.number) +
                    ": a barrier or a shuffle that not all threads reach";
    }
  }
}

unsigned whole_warp() {
  const std::size_t first = block.current / kWarpSize * kWarpSize;
  const std::size_t lanes = std::min<std::size_t>(kWarpSize, block.threads - first);
  return lanes == kWarpSize ? 0xFFFFFFFFU : (1U << lanes) - 1;
}

// Waits until all lanes of `mask` are here.
void wait_for_warp(unsigned mask) {
  Warp& warp = block.warps[block.current / kWarpSize];
  if ((mask & whole_warp()) != whole_warp()) fail("a shuffle or barrier of a part of a warp");
  warp.arrived |= 1U << lane();
  if (warp.arrived == whole_warp()) {
    warp.arrived = 0;
    const std::size_t first = block.current / kWarpSize * kWarpSize;
    for (std::size_t i = first; i < std::min(first + kWarpSize, block.threads); ++i) {
      if (block.fibers[i].state == State::kAtWarpBarrier) block.fibers[i].state = State::kReady;
    }
  } else {
    to_scheduler(State::kAtWarpBarrier);
  }
}

}  // namespace

void launch(dim3 grid, dim3 threads, std::size_t shared, const std::function<void()>& thread) {
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (blocks == 0 || threads.x == 0 || threads.x > kMostThreads || threads.y * threads.z != 1 ||
      shared > kMostSharedBytes || grid.y > 65535 || grid.z > 65535) {
    throw std::invalid_argument("cuda emulator: a launch that no GPU runs");
  }
  const std::scoped_lock lock(block.mutex);
  if (block.stacks == nullptr) {
    block.stacks =
        static_cast<char*>(mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (block.stacks == MAP_FAILED) throw std::bad_alloc();
  }
  block.threads = threads.x;
  block.shared_bytes = shared;
  block.thread = &thread;
  block.fault.clear();
  block.host_frame = reinterpret_cast<std::uintptr_t>(&blocks) - 4096;
  ++running_thread.moment.launch;
  forget_launch();
  indices.block_size = threads;
  indices.grid_size = grid;
  running_thread.runs = true;
  for (std::uint64_t i = 0; i < blocks && block.fault.empty(); ++i) {
    block.number = static_cast<std::uint32_t>(i);
    indices.block = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / grid.x / grid.y)};
    run_block();
  }
  running_thread.runs = false;
  if (!block.fault.empty()) throw Fault("cuda emulator: " + block.fault);
}

std::uint32_t launches() { return running_thread.moment.launch; }

void sync_block() {
  if (++block.at_barrier == block.threads) {
    block.at_barrier = 0;
    ++running_thread.moment.block_barriers;
    for (std::size_t i = 0; i < block.threads; ++i) {
      if (block.fibers[i].state == State::kAtBlockBarrier) block.fibers[i].state = State::kReady;
    }
  } else {
    to_scheduler(State::kAtBlockBarrier);
  }
}

void sync_warp(unsigned mask) {
  Warp& warp = block.warps[block.current / kWarpSize];
  const std::uint16_t before = warp.barriers;
  wait_for_warp(mask);
  warp.barriers = running_thread.moment.warp_barriers = static_cast<std::uint16_t>(before + 1);
}

int lane() { return static_cast<int>(block.current % kWarpSize); }

void exchange(unsigned mask, void* value, std::size_t bytes, int from) {
  Warp& warp = block.warps[block.current / kWarpSize];
  const std::uint32_t turn = warp.turn;
  auto& slots = warp.slots[turn % 2];
  std::memcpy(slots[static_cast<std::size_t>(lane())].bytes, value, bytes);
  wait_for_warp(mask);
  warp.turn = turn + 1;
  if (from < 0 || from >= static_cast<int>(kWarpSize) || ((whole_warp() >> from) & 1U) == 0) {
    fail("a shuffle from lane " + std::to_string(from));
  }
  std::memcpy(value, slots[static_cast<std::size_t>(from)].bytes, bytes);
}

void gather(unsigned mask, const void* value, std::size_t bytes, void* all) {
  Warp& warp = block.warps[block.current / kWarpSize];
  const std::uint32_t turn = warp.turn;
  auto& slots = warp.slots[turn % 2];
  if (bytes > kMostExchanged) fail("an exchange of " + std::to_string(bytes) + " bytes");
  std::memcpy(slots[static_cast<std::size_t>(lane())].bytes, value, bytes);
  wait_for_warp(mask);
  warp.turn = turn + 1;
  for (std::size_t i = 0; i < kWarpSize; ++i)
    std::memcpy(static_cast<unsigned char*>(all) + i * bytes, slots[i].bytes, bytes);
}

void fail(const std::string& what) {
  block.fault = "block " + std::to_string(block.number) + " thread " +
                std::to_string(block.current) + ": " + what;
  to_scheduler(State::kDone);
  std::abort();  // a fiber that is done is not resumed
}

bool on_launching_stack(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - block.host_frame < kHostFrames;
}

std::size_t shared_bytes() { return block.shared_bytes; }

}  // namespace piton::emulator
