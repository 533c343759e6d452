// The peak of a machine, measured.
#include "kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>

#include "kernels/cpu/isa.h"

namespace piton {

namespace {

using Loop = double (*)(std::int64_t rounds);

double measured(ThreadPool& threads, Loop loop, double seconds) {
  constexpr std::int64_t kRounds = 20'000;  // 0.1 to 0.4 ms
  double best = 0;
  const auto start = std::chrono::steady_clock::now();
  double elapsed = 0;
  do {
    const auto before = std::chrono::steady_clock::now();
    double work = 0;
    threads.run(threads.threads(), [&](std::int64_t part) {
      const double mine = loop(kRounds);
      if (part == 0) work = mine;
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    best = std::max(best, work * threads.threads() / took.count());
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (elapsed < seconds);
  return best;
}

}  // namespace

// A dot product is not always the widest: some processors do more by fp32 multiply-adds.
double peak_flops(ThreadPool& threads, DType dtype, double seconds) {
  const cpu::Isa isa = cpu::best_isa();
  const Loop fma = cpu::vector_table(isa).fma_loop;
  if (dtype != DType::kBF16) return measured(threads, fma, seconds);
  if (const cpu::TileTable* tiles = cpu::tile_table(isa)) {
    return measured(threads, tiles->loop, seconds);
  }
  const cpu::DotTable* dot = cpu::dot_table(isa);
  if (dot == nullptr) return measured(threads, fma, seconds);
  return std::max(measured(threads, fma, seconds / 2), measured(threads, dot->loop, seconds / 2));
}

double loading_peak_flops(ThreadPool& threads, DType dtype, double seconds) {
  const cpu::TileTable* tiles = dtype == DType::kBF16 ? cpu::tile_table(cpu::best_isa()) : nullptr;
  return tiles != nullptr ? measured(threads, tiles->loading_loop, seconds) : 0;
}

}  // namespace piton
