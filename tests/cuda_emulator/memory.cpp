// A cell for every two bytes of each allocation.
#include "cuda_emulator/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <map>
#include <mutex>

#include "cuda_emulator/launcher.h"
#include "cuda_emulator/ordering.h"

namespace piton::cuda {

// The memory behind  extern __shared__  of kernels/cuda/launch.cuh.
alignas(1024) unsigned char shared_memory[emulator::kMostSharedBytes];

}  // namespace piton::cuda

namespace piton::emulator {
namespace {

constexpr std::size_t kGranule = 2;  // bytes of a cell

enum CellBit : std::uint8_t {
  kReadable = 1,
  kWritable = 2,
  kWritten = 4,
  kManyReaders = 8,
  kWrittenBefore = 16  // the call
};

struct Cell {
  Moment write;
  Moment read;
  std::uint32_t call = 0;  // that may use it; of shared memory: the block that last used it
  std::uint8_t bits = 0;
};

struct Region {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  Cell* cells = nullptr;
  std::uint32_t call = 0;  // in which it was allocated
};

Cell* make_cells(std::size_t bytes) {
  const std::size_t size = (bytes / kGranule + 1) * sizeof(Cell);
  void* cells = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return cells == MAP_FAILED ? nullptr : static_cast<Cell*>(cells);
}

struct DeviceMemory {
  std::mutex mutex;
  std::map<std::uintptr_t, Region> regions;  // by their begin
  Region shared;
  std::array<Region*, 4> recent{};  // of the last accesses: a kernel has a few tensors
  std::size_t turn = 0;
  std::size_t bytes = 0;
  std::uint32_t call = 0;  // 0: none is declared
  std::uint32_t calls = 0;
  std::uint32_t blocks = 0;  // that have run
};

DeviceMemory memory;

constexpr std::size_t kGap = 256;  // between allocations
constexpr std::size_t kMost = std::size_t{4} << 30;

Region* region_of(std::uintptr_t at, std::size_t bytes) {
  const auto inside = [&](const Region& region) {
    return at >= region.begin && at + bytes <= region.begin + region.bytes;
  };
  for (Region* region : memory.recent) {
    if (region != nullptr && inside(*region)) return region;
  }
  auto next = memory.regions.upper_bound(at);
  if (next == memory.regions.begin()) return nullptr;
  Region& region = std::prev(next)->second;
  if (!inside(region)) return nullptr;
  return memory.recent[memory.turn++ % memory.recent.size()] = &region;
}

template <typename Use>
void for_cells(const Region& region, std::uintptr_t at, std::size_t bytes, Use use) {
  const std::size_t first = (at - region.begin) / kGranule;
  const std::size_t last = (at - region.begin + bytes - 1) / kGranule;
  for (std::size_t i = first; i <= last; ++i) use(region.cells[i]);
}

// True if nothing orders the two.
bool concurrent(const Moment& before, const Moment& after, bool shared) {
  if (before.launch != after.launch) return false;
  if (before.block != after.block) return !shared && !is_ordered(before);
  if (before.thread == after.thread) return false;
  if (before.block_barriers < after.block_barriers) return false;
  const bool one_warp = before.thread / kWarpSize == after.thread / kWarpSize;
  return !(one_warp && before.warp_barriers < after.warp_barriers);
}

std::string text_of(const void* address, std::size_t bytes) {
  return fmt::format("{} bytes at {}", bytes, address);
}

void check_rules(const Region& region, const Cell& cell, const void* address, std::size_t bytes,
                 bool write, bool of_call) {
  const bool shared = &region == &memory.shared;
  if (of_call && !shared && memory.call != 0 && region.call != memory.call) {
    const std::uint8_t needed = write ? kWritable : kReadable;
    if (cell.call != memory.call || (cell.bits & needed) == 0) {
      fail(fmt::format("{} of {} that no tensor of the call holds{}", write ? "a write" : "a read",
                       text_of(address, bytes), write ? ", or that it only reads" : ""));
    }
  }
  if (!write && (cell.bits & kWritten) == 0)
    fail(fmt::format("a read of {} that nobody has written", text_of(address, bytes)));
}

void check_races(const Region& region, Cell& cell, const void* address, bool write) {
  const bool shared = &region == &memory.shared;
  const Moment& moment = running_thread.moment;
  if (concurrent(cell.write, moment, shared)) {
    fail(fmt::format("a race with thread {} of block {}, which wrote to {}", cell.write.thread,
                     cell.write.block, address));
  }
  const bool read_before =
      concurrent(cell.read, moment, shared) ||
      ((cell.bits & kManyReaders) != 0 && cell.read.launch == moment.launch &&
       cell.read.block == moment.block && cell.read.block_barriers == moment.block_barriers);
  if (write && read_before) {
    fail(fmt::format("a race with thread {} of block {}, which read {}", cell.read.thread,
                     cell.read.block, address));
  }
  if (write) {
    cell.write = moment;
    return;
  }
  if (concurrent(cell.read, moment, shared)) {
    cell.bits |= kManyReaders;
  } else {
    cell.bits &= static_cast<std::uint8_t>(~kManyReaders);
  }
  cell.read = moment;
}

// `of_call`: only what the declared call may use. Counters of atomics are the back end's.
void access(const void* address, std::size_t bytes, bool write, bool of_call = true) {
  if (!running() || on_own_stack(address)) return;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at - reinterpret_cast<std::uintptr_t>(&indices) < sizeof(indices)) return;
  const Region* region = nullptr;
  const auto shared = reinterpret_cast<std::uintptr_t>(cuda::shared_memory);
  if (at - shared < kMostSharedBytes) {
    region = &memory.shared;
    if (at + bytes > shared + shared_bytes())
      fail(fmt::format("{} beyond the shared memory", text_of(address, bytes)));
  } else {
    region = region_of(at, bytes);
  }
  if (region == nullptr) {
    if (!write && on_launching_stack(address)) return;  // the arguments of the kernel
    fail(fmt::format("{} of {}, outside of all allocations", write ? "a write" : "a read",
                     text_of(address, bytes)));
  }
  if (at % (bytes == 0 ? 1 : bytes) != 0 && bytes <= 16)
    fail(fmt::format("{}, which is not aligned", text_of(address, bytes)));
  for_cells(*region, at, bytes, [&](Cell& cell) {
    if (region == &memory.shared && cell.call != memory.blocks) cell = {.call = memory.blocks};
    check_rules(*region, cell, address, bytes, write, of_call);
    if (bytes > 1) check_races(*region, cell, address, write);
    if (write) cell.bits |= kWritten;
  });
}

// visit(address) of each element of a strided tensor.
template <typename Visit>
void for_elements(const Tensor& tensor, int dim, std::byte* at, const Visit& visit) {
  if (dim == tensor.ndim()) return visit(at);
  const std::int64_t step = tensor.stride(dim) * size_bytes(tensor.dtype());
  for (std::int64_t i = 0; i < tensor.dim(dim); ++i) {
    for_elements(tensor, dim + 1, at + i * step, visit);
  }
}

void permit(const Tensor& tensor, Access access) {
  const auto size = static_cast<std::size_t>(size_bytes(tensor.dtype()));
  for_elements(tensor, 0, tensor.raw(), [&](std::byte* element) {
    const auto at = reinterpret_cast<std::uintptr_t>(element);
    const Region* region = region_of(at, size);
    if (region == nullptr) throw Fault("cuda emulator: a tensor outside of all allocations");
    for_cells(*region, at, size, [&](Cell& cell) {
      if (cell.call != memory.call) cell.bits &= kWritten;
      cell.call = memory.call;
      // Reading back what the call itself has written is allowed.
      cell.bits |= access == Access::kRead ? kReadable : kReadable | kWritable;
      if (access == Access::kWrite && (cell.bits & kWritten) != 0) {
        cell.bits = static_cast<std::uint8_t>((cell.bits & ~kWritten) | kWrittenBefore);
      }
      if (access != Access::kWrite && (cell.bits & kWrittenBefore) != 0) cell.bits |= kWritten;
    });
  });
}

}  // namespace

void* allocate(std::size_t bytes) {
  const std::scoped_lock lock(memory.mutex);
  if (bytes > kMost || memory.bytes + bytes > kMost) return nullptr;
  void* data = std::aligned_alloc(256, (bytes + 2 * kGap) / 256 * 256);
  Cell* cells = make_cells(bytes);
  if (data == nullptr || cells == nullptr) return nullptr;
  std::memset(data, 0xFF, bytes);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  memory.regions[begin] = {begin, bytes, cells, memory.call};
  memory.bytes += bytes;
  return data;
}

void release(void* data) {
  if (data == nullptr) return;
  const std::scoped_lock lock(memory.mutex);
  const auto found = memory.regions.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == memory.regions.end()) throw Fault("cuda emulator: a release of unknown memory");
  munmap(found->second.cells, (found->second.bytes / kGranule + 1) * sizeof(Cell));
  memory.bytes -= found->second.bytes;
  memory.regions.erase(found);
  memory.recent = {};
  std::free(data);
}

std::size_t allocated_bytes() { return memory.bytes; }

void host_writes(void* data, std::size_t bytes) {
  const std::scoped_lock lock(memory.mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const Region* region = region_of(at, bytes);
  if (region == nullptr) throw Fault("cuda emulator: a write of the host outside of allocations");
  if (bytes > 0) for_cells(*region, at, bytes, [](Cell& cell) { cell.bits |= kWritten; });
}

bool is_allocated(const void* data) {
  const std::scoped_lock lock(memory.mutex);
  return region_of(reinterpret_cast<std::uintptr_t>(data), 0) != nullptr;
}

// Copies of storages read the gaps between rows too, so what was not written is no fault here: it
// is NaN.
void host_reads(const void* data, std::size_t bytes) {
  const std::scoped_lock lock(memory.mutex);
  if (region_of(reinterpret_cast<std::uintptr_t>(data), bytes) == nullptr)
    throw Fault("cuda emulator: a read of the host outside of allocations");
}

void begin_calls(std::span<const CallChain> chains) {
  const std::scoped_lock lock(memory.mutex);
  memory.call = ++memory.calls;
  // What is written first: the same memory may be read too.
  for (const bool writes : {true, false}) {
    for (const CallChain& chain : chains) {
      for (const KernelCall& call : chain) {
        for_each_tensor(call, [&](std::string_view, const Tensor& tensor, Access access) {
          if ((access == Access::kWrite) == writes) permit(tensor, access);
        });
      }
    }
  }
}

void end_call() { memory.call = 0; }

void forget_shared_memory() {
  if (memory.shared.cells == nullptr) {
    memory.shared = {reinterpret_cast<std::uintptr_t>(cuda::shared_memory), kMostSharedBytes,
                     make_cells(kMostSharedBytes), 0};
  }
  std::memset(cuda::shared_memory, 0xFF, shared_bytes());
  ++memory.blocks;  // the cells of others are empty
}

unsigned atomic_add(unsigned* address, unsigned value) {
  access(address, sizeof(unsigned), /*write=*/false, /*of_call=*/false);
  note_atomic(address);
  const unsigned before = *address;
  *address = before + value;
  return before;
}

unsigned atomic_inc(unsigned* address, unsigned most) {
  access(address, sizeof(unsigned), /*write=*/false, /*of_call=*/false);
  note_atomic(address);
  const unsigned before = *address;
  *address = before >= most ? 0 : before + 1;
  return before;
}

}  // namespace piton::emulator

// What -fsanitize=thread calls. Values of these functions' names are the compiler's.
extern "C" {

using piton::emulator::access;

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_read1(void* at) { access(at, 1, false); }
void __tsan_read2(void* at) { access(at, 2, false); }
void __tsan_read4(void* at) { access(at, 4, false); }
void __tsan_read8(void* at) { access(at, 8, false); }
void __tsan_read16(void* at) { access(at, 16, false); }
void __tsan_write1(void* at) { access(at, 1, true); }
void __tsan_write2(void* at) { access(at, 2, true); }
void __tsan_write4(void* at) { access(at, 4, true); }
void __tsan_write8(void* at) { access(at, 8, true); }
void __tsan_write16(void* at) { access(at, 16, true); }
void __tsan_read_range(void* at, unsigned long bytes) { access(at, bytes, false); }
void __tsan_write_range(void* at, unsigned long bytes) { access(at, bytes, true); }
// Counts of references, of host code in the same files.
unsigned __tsan_atomic32_fetch_add(volatile unsigned* at, unsigned value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

}  // extern "C"
