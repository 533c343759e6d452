#include "bench/bandwidth.h"

#include <array>
#include <bit>
#include <vector>

#include "base/platform.h"

namespace piton {
namespace {

constexpr std::int64_t kLane = 16;  // words or elements per loop iteration: whole cache lines

struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Part part_of(std::int64_t elements, std::int64_t part, std::int64_t parts) {
  const std::int64_t lanes = elements / kLane;  // the remainder is negligible
  return {lanes * part / parts * kLane, lanes * (part + 1) / parts * kLane};
}

struct AdamwPointers {
  float* main;
  float* first;
  float* second;
  const float* gradient;
  std::uint16_t* copy;  // bf16, or null
};

// An iteration reads everything before it writes: if arrays begin at the same offset in a page,
// some processors assume that a read depends on the write just before it (4K aliasing), which slows
// the loop down.
PITON_VECTOR_CLONES
void update_part(const AdamwPointers& p, Part part) {
  for (std::int64_t i = part.begin; i + kLane <= part.end; i += kLane) {
    float main[kLane];
    float first[kLane];
    float second[kLane];
    for (std::int64_t lane = 0; lane < kLane; ++lane) {
      main[lane] = p.main[i + lane] * 0.999F;
      first[lane] = p.first[i + lane] * 0.999F;
      second[lane] = p.second[i + lane] * p.gradient[i + lane];
    }
    for (std::int64_t lane = 0; lane < kLane; ++lane) p.main[i + lane] = main[lane];
    for (std::int64_t lane = 0; lane < kLane; ++lane) p.first[i + lane] = first[lane];
    for (std::int64_t lane = 0; lane < kLane; ++lane) p.second[i + lane] = second[lane];
    if (p.copy == nullptr) continue;
    for (std::int64_t lane = 0; lane < kLane; ++lane) {
      p.copy[i + lane] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(main[lane]) >> 16);
    }
  }
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
  const AdamwPointers pointers{
      .main = call.main.data<float>(),
      .first = call.first.data<float>(),
      .second = call.second.data<float>(),
      .gradient = call.gradient.data<float>(),
      .copy = call.copy.defined() ? reinterpret_cast<std::uint16_t*>(call.copy.raw()) : nullptr};
  const std::int64_t parts = threads.threads();
  threads.run(parts, [&](std::int64_t part) {
    update_part(pointers, part_of(call.main.elements(), part, parts));
  });
}

}  // namespace piton
