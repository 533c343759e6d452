// The peak of a machine, measured.
#include "kernels/cpu/peak.h"

#include <algorithm>
#include <chrono>

#include "kernels/cpu/isa.h"

namespace piton {

double peak_flops(ThreadPool& threads, DType dtype, double seconds) {
  const cpu::Isa isa = cpu::best_isa();
  const cpu::DotTable* dot = dtype == DType::kBF16 ? cpu::dot_table(isa) : nullptr;
  const auto loop = dot != nullptr ? dot->loop : cpu::vector_table(isa).fma_loop;
  constexpr std::int64_t kRounds = 20'000;  // 0.1 ms
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

}  // namespace piton
