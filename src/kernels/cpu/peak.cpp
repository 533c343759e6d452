// Measures the peak of a machine.
#include "kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "kernels/cpu/processor/isa.h"

namespace piton {

namespace {

using Loop = double (*)(std::int64_t rounds);

// Each thread keeps its own best while all of them work, so that a short preemption does not lower
// the sum.
double measured(ThreadPool& threads, Loop loop, double seconds) {
  constexpr std::int64_t kRounds = 20'000;  // 0.1 to 0.4 ms
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(static_cast<std::size_t>(threads.threads()));
  const auto start = Clock::now();
  threads.run(threads.threads(), [&](std::int64_t part) {
    Clock::time_point now = Clock::now();
    do {
      const Clock::time_point before = now;
      const double work = loop(kRounds);
      now = Clock::now();
      const double speed = work / std::chrono::duration<double>(now - before).count();
      best[static_cast<std::size_t>(part)] = std::max(best[static_cast<std::size_t>(part)], speed);
    } while (std::chrono::duration<double>(now - start).count() < seconds);
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
}

}  // namespace

// A dot product is not always the fastest: some processors do more with fp32 multiply-adds.
double peak_flops(ThreadPool& threads, DType dtype, const std::string& isa, double seconds) {
  const cpu::Isa set = cpu::find_isa(isa);
  const Loop fma = cpu::vector_table(set).fma_loop;
  if (dtype != DType::kBF16) return measured(threads, fma, seconds);
  if (const cpu::TileTable* tiles = cpu::tile_table(set)) {
    return measured(threads, tiles->loop, seconds);
  }
  const cpu::DotTable* dot = cpu::dot_table(set);
  if (dot == nullptr) return measured(threads, fma, seconds);
  return std::max(measured(threads, fma, seconds / 2), measured(threads, dot->loop, seconds / 2));
}

double loading_peak_flops(ThreadPool& threads, DType dtype, const std::string& isa,
                          double seconds) {
  const cpu::Isa set = cpu::find_isa(isa);
  const Loop fma = cpu::vector_table(set).loading_fma_loop;
  if (dtype != DType::kBF16) return measured(threads, fma, seconds);
  if (const cpu::TileTable* tiles = cpu::tile_table(set)) {
    return measured(threads, tiles->loading_loop, seconds);
  }
  return cpu::dot_table(set) == nullptr ? measured(threads, fma, seconds) : 0;
}

}  // namespace piton
