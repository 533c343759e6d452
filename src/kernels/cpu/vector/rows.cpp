// Rotary embedding and the rows of the loss.
#include "kernels/cpu/vector/rows.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

template <typename T>
void rotate_halves(T* x, const float* cosine, const float* sine, std::int64_t half, float sign) {
  for_vectors(
      half, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
        const F c = load(cosine + i, count);
        const F s = load(sine + i, count) * sign;
        const F a = load(x + i, count);
        const F b = load(x + half + i, count);
        store(x + i, a * c - b * s, count);
        store(x + half + i, b * c + a * s, count);
      });
}

// Splits pairs through a small buffer, kLanes pairs at a time.
template <typename T>
void rotate_pairs(T* x, const float* cosine, const float* sine, std::int64_t half, float sign) {
  for_vectors(
      half, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
        const int pairs = static_cast<int>(half - i < kLanes ? half - i : kLanes);
        T* p = x + 2 * i;
        float flat[2 * kLanes] = {};
        const int first = 2 * pairs < kLanes ? 2 * pairs : kLanes;
        store(flat, load(p, first));
        if (2 * pairs > kLanes) store(flat + kLanes, load(p + kLanes, 2 * pairs - kLanes));
        F a, b;
        for (int lane = 0; lane < kLanes; ++lane) {
          a[lane] = flat[2 * lane];
          b[lane] = flat[2 * lane + 1];
        }
        const F c = load(cosine + i, count);
        const F s = load(sine + i, count) * sign;
        const F rotated_a = a * c - b * s;
        const F rotated_b = b * c + a * s;
        for (int lane = 0; lane < kLanes; ++lane) {
          flat[2 * lane] = rotated_a[lane];
          flat[2 * lane + 1] = rotated_b[lane];
        }
        store(p, load(flat), first);
        if (2 * pairs > kLanes) store(p + kLanes, load(flat + kLanes), 2 * pairs - kLanes);
      });
}

}  // namespace

void rotary(void* x, Type type, const float* cosine, const float* sine, std::int64_t d, bool pairs,
            float sign) {
  with_type(type, [&](auto tag) {
    auto* head = static_cast<decltype(tag)*>(x);
    if (pairs) {
      rotate_pairs(head, cosine, sine, d / 2, sign);
    } else {
      rotate_halves(head, cosine, sine, d / 2, sign);
    }
  });
}

// Finds the maximum of a stretch that stays in the first-level cache, then adds it up; sums of
// earlier stretches are rescaled when the maximum grows. So the row is read from memory once.
void loss_statistics(const float* logits, std::int64_t valid, float* maximum, float* sum) {
  constexpr std::int64_t kStretch = 2048;
  const float lowest = -__builtin_inff();
  float m = lowest;
  float z = 0;
  for (std::int64_t begin = 0; begin < valid; begin += kStretch) {
    const std::int64_t n = valid - begin < kStretch ? valid - begin : kStretch;
    const float* x = logits + begin;
    F top = splat(lowest);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          top = max(first_lanes(load(x + i, count), count, lowest), top);
        });
    const float highest = max_lanes(top);
    if (highest > m) {
      z *= exp(splat(m - highest))[0];
      m = highest;
    }
    const float base = m == lowest ? 0.0F : m;
    F total = splat(0);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          total += first_lanes(exp(load(x + i, count) - base), count, 0);
        });
    z += sum_lanes(total);
  }
  *maximum = m;
  *sum = z;
}

void loss_gradient(void* y, Type type, const float* logits, std::int64_t columns,
                   std::int64_t valid, float lse, float factor) {
  with_type(type, [&](auto tag) {
    auto* out = static_cast<decltype(tag)*>(y);
    for_vectors(
        valid, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(out + i, exp(load(logits + i, count) - lse) * factor, count);
        });
    for_vectors(
        columns - valid, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(out + valid + i, splat(0), count);
        });
  });
}

}  // namespace piton::cpu::PITON_ISA
