// Muon's passes over elements.
#include "kernels/cpu/vector/muon.h"

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

void muon_momentum(const MuonMomentumArguments& a, std::int64_t begin, std::int64_t end) {
  const F scale = splat(a.scale), keep = splat(a.keep), rest = splat(a.rest);
  for_vectors(
      end - begin, [&](std::int64_t offset, auto count) __attribute__((always_inline)) {
        const std::int64_t i = begin + offset;
        const F g = rest * (load(a.gradient + i, count) * scale);
        const F sum = keep * load(a.buffer + i, count) + g;
        store(a.buffer + i, sum, count);
        store(a.direction + i, a.nesterov ? keep * sum + g : sum, count);
      });
}

void muon_normalize(void* y, Type y_type, const float* x, std::int64_t n, float factor) {
  const F scale = splat(factor);
  with_type(y_type, [&](auto tag) {
    auto* to = static_cast<decltype(tag)*>(y);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(to + i, load(x + i, count) * scale, count);
        });
  });
}

void muon_update(const MuonUpdateArguments& a, std::int64_t begin, std::int64_t end) {
  const F keep = splat(a.keep), step = splat(a.step);
  with_type(a.direction_type, [&](auto tag) {
    const auto* direction = static_cast<const decltype(tag)*>(a.direction);
    with_type(a.copy_type, [&](auto copy_tag) {
      auto* copy = static_cast<decltype(copy_tag)*>(a.copy);
      for_vectors(
          end - begin, [&](std::int64_t offset, auto count) __attribute__((always_inline)) {
            const std::int64_t i = begin + offset;
            const F moved = load(a.main + i, count) * keep - step * load(direction + i, count);
            store(a.main + i, moved, count);
            if (copy != nullptr) store(copy + i, moved, count);
          });
    });
  });
}

}  // namespace piton::cpu::PITON_ISA
