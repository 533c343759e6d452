#include "api/bench_bandwidth.h"

#include <array>
#include <bit>
#include <vector>

namespace piton {
namespace {

constexpr std::int64_t kLane = 16;  // words or elements of one turn of a loop: whole cache lines

struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Part part_of(std::int64_t elements, std::int64_t part, std::int64_t parts) {
  const std::int64_t lanes = elements / kLane;  // what is left over does not count in gigabytes
  return {lanes * part / parts * kLane, lanes * (part + 1) / parts * kLane};
}

}  // namespace

std::uint64_t read_once(ThreadPool& threads, const Tensor& tensor) {
  PITON_ASSERT(tensor.contiguous());
  const auto* words = reinterpret_cast<const std::uint64_t*>(tensor.raw());
  const std::int64_t parts = threads.threads();
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(parts));
  threads.run(parts, [&](std::int64_t part) {
    const auto [begin, end] = part_of(tensor.bytes() / 8, part, parts);
    std::array<std::uint64_t, kLane> sum{};
    for (std::int64_t i = begin; i + kLane <= end; i += kLane) {
      for (std::int64_t lane = 0; lane < kLane; ++lane) sum[lane] += words[i + lane];
    }
    for (const std::uint64_t one : sum) sums[part] += one;
  });
  std::uint64_t total = 0;
  for (const std::uint64_t one : sums) total += one;
  return total;
}

void update_once(ThreadPool& threads, const AdamwUpdate& call) {
  auto* __restrict main = call.main.data<float>();
  auto* __restrict first = call.first.data<float>();
  auto* __restrict second = call.second.data<float>();
  const auto* __restrict gradient = call.gradient.data<float>();
  auto* __restrict copy = call.copy.defined() ? call.copy.data<BFloat16>() : nullptr;
  const std::int64_t parts = threads.threads();
  threads.run(parts, [&](std::int64_t part) {
    const auto [begin, end] = part_of(call.main.elements(), part, parts);
    if (copy == nullptr) {
      for (std::int64_t i = begin; i < end; ++i) {
        main[i] *= 0.999F;
        first[i] *= 0.999F;
        second[i] *= gradient[i];
      }
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      main[i] *= 0.999F;
      first[i] *= 0.999F;
      second[i] *= gradient[i];
      copy[i] = {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(main[i]) >> 16)};
    }
  });
}

}  // namespace piton
