#include "plan/recorded_calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/seconds.h"
#include "kernels/measured/timed_kernels.h"

namespace piton {
namespace {

constexpr int kRounds = 3;
constexpr std::int64_t kCachedBytes = 32 << 20;  // of the last level of caches

KernelCall without_memory(KernelCall call) {
  std::map<const Storage*, std::shared_ptr<Storage>> ghosts;
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) {
    std::shared_ptr<Storage>& ghost = ghosts[tensor.storage().get()];
    if (!ghost) {
      ghost = std::make_shared<Storage>(nullptr, tensor.storage()->bytes(), tensor.place());
    }
    tensor = tensor.with_storage(ghost);
  });
  return call;
}

// Numbers from 0.5 to 1 of either sign, as bytes. Integers are 0, which any index can be. Packed
// weights are bytes too: pairs of these read as bf16, fours as fp32.
std::vector<std::byte> pattern_of(DType dtype, std::size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  if (dtype == DType::kI32 || dtype == DType::kI64) return pattern;
  const auto size = static_cast<std::size_t>(dtype == DType::kU8 ? 2 : size_bytes(dtype));
  // The sign, the exponent of 0.5, and the bits after it.
  const auto fill = [&](std::uint64_t half, int fraction_bits) {
    const int width = static_cast<int>(8 * size);
    std::uint64_t state = 1;
    for (std::size_t at = 0; at + size <= bytes; at += size) {
      state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
      const std::uint64_t fraction = (state >> 8) & ((std::uint64_t{1} << fraction_bits) - 1);
      const std::uint64_t value = (state >> 63 << (width - 1)) | half | fraction;
      std::memcpy(pattern.data() + at, &value, size);  // the low bytes: this is little-endian
    }
  };
  if (dtype == DType::kF64) fill(std::uint64_t{0x3fe} << 52, 52);
  if (dtype == DType::kF32) fill(std::uint64_t{0x7e} << 23, 23);
  if (dtype == DType::kF16) fill(std::uint64_t{0xe} << 10, 10);
  if (dtype == DType::kBF16 || dtype == DType::kU8) fill(std::uint64_t{0x7e} << 7, 7);
  return pattern;
}

// A contiguous tensor gets separate memory (the buffer of a weight has all weights), a strided
// one its whole slot, which views share.
class OperandMemory {
 public:
  OperandMemory(Arena& arena, const Machine& machine) : arena_(arena), machine_(machine) {}

  void give(Tensor& tensor) {
    if (tensor.contiguous()) {
      tensor = filled(tensor.dtype(), tensor.shape(), tensor.dtype());
      return;
    }
    std::shared_ptr<Storage>& slot = slots_[tensor.storage().get()];
    if (!slot) {
      slot = filled(DType::kU8, {tensor.storage()->bytes()}, tensor.dtype()).storage();
    }
    tensor = tensor.with_storage(slot);
  }

 private:
  static constexpr std::int64_t kPatternBytes = 1 << 20;

  // With the numbers of `contents`.
  Tensor filled(DType dtype, const Shape& shape, DType contents) {
    Tensor tensor = arena_.allocate(dtype, shape, MemoryKind::kWorkspace);
    std::vector<std::byte>& pattern = patterns_[contents];
    if (pattern.empty()) pattern = pattern_of(contents, kPatternBytes);
    const Tensor flat = tensor.flatten();
    const std::int64_t part = kPatternBytes / size_bytes(dtype);
    for (std::int64_t begin = 0; begin < flat.elements(); begin += part) {
      const std::int64_t count = std::min(part, flat.elements() - begin);
      machine_.device.upload(pattern.data(), flat.slice(0, begin, count), machine_.stream);
    }
    return tensor;
  }

  Arena& arena_;
  const Machine& machine_;
  std::map<const Storage*, std::shared_ptr<Storage>> slots_;
  std::map<DType, std::vector<std::byte>> patterns_;
};

// The rows of a call with experts, each of which has as many.
template <typename Call>
std::int64_t rows_of_experts(const Call& call) {
  if constexpr (requires { call.first_rows; }) {
    if constexpr (requires { call.dy; }) {
      return call.dy.dim(0);
    } else {
      return call.x.dim(0);
    }
  }
  return 0;
}

// Which experts tokens choose, and how many rows each has: all 0 would be too many or none.
void set_indices(const KernelCall& call, const Machine& machine) {
  const auto put = [&](const Tensor& tensor, const auto& number) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(tensor.elements()));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(number(i));
    machine.device.upload(numbers.data(), tensor, machine.stream);
    machine.stream.synchronize();
  };
  const std::int64_t rows = std::visit([](const auto& one) { return rows_of_experts(one); }, call);
  // The choices that the rows of a sort have room for: with a capacity not those of all tokens.
  std::int64_t room = std::numeric_limits<std::int64_t>::max();
  if (const auto* sort = std::get_if<SortByExpert>(&call)) {
    const std::int64_t k = sort->choices.dim(1);
    room = sort->rows.sources.dim(0) / std::min(k, sort->rows.first_rows.dim(0) - 1) * k;
  }
  if (const auto* sort = std::get_if<SortByRank>(&call)) {
    const std::int64_t k = sort->choices.dim(1), ranks = sort->places.dim(1);
    room = std::min(sort->sources.dim(0) / std::min(k, ranks), sort->received.dim(0)) * k;
  }
  std::int64_t first_dim = -1;  // of the call's first tensor
  for_each_tensor(call, [&](std::string_view name, const Tensor& tensor, Access access) {
    if (first_dim < 0) first_dim = tensor.dim(0);
    if (access != Access::kRead || !tensor.defined() || tensor.dtype() != DType::kI32) return;
    if (name == "first rows") {
      const std::int64_t experts = tensor.dim(0) - 1;
      put(tensor, [&](std::int64_t i) { return rows * i / experts; });
    } else if (name == "used") {
      put(tensor, [&](std::int64_t) { return first_dim; });
    } else if (name == "choices") {  // of a token: different experts
      put(tensor, [&](std::int64_t i) { return i < room ? i % tensor.dim(1) : -1; });
    }
  });
}

KernelCall with_memory(KernelCall call, Arena& arena, const Machine& machine) {
  OperandMemory memory(arena, machine);
  for_each_tensor(call, [&](std::string_view, Tensor& tensor, Access) { memory.give(tensor); });
  set_indices(call, machine);
  return call;
}

}  // namespace

void RecordedCalls::submit(const KernelCall& call, Stream& stream) {
  inner_.run(call, stream);
  const std::string what = describe(call);
  auto known = calls_.find(what);
  if (known == calls_.end())
    known = calls_.emplace(what, PlannedCall{.call = without_memory(call)}).first;
  ++known->second.count;
}

double seconds_of_call(const KernelCall& call, const Machine& machine, bool cold) {
  Arena arena(machine.device);
  const KernelCall real = with_memory(call, arena, machine);
  Tensor others;  // what a step writes between two calls that are alike
  if (cold && bytes_moved(call) < kCachedBytes) {
    others = arena.allocate(DType::kU8, {kCachedBytes}, MemoryKind::kWorkspace);
  }
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {
    if (others.defined()) machine.device.zero(others, machine.stream);
    machine.stream.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    machine.kernels.run(real, machine.stream);
    machine.stream.synchronize();
    if (round > 0) best = std::min(best, seconds_since(begin));
  }
  return best;
}

}  // namespace piton
