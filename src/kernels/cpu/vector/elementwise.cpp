// Conversion, sums, dropout with a residual, and updates: one pass over memory each.
#include "kernels/cpu/vector/elementwise.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/philox.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

void convert(void* y, Type y_type, const void* x, Type x_type, std::int64_t n) {
  with_type(y_type, [&](auto out) {
    with_type(x_type, [&](auto in) {
      auto* to = static_cast<decltype(out)*>(y);
      const auto* from = static_cast<const decltype(in)*>(x);
      for_vectors(
          n, [&](std::int64_t i, auto count)
                 __attribute__((always_inline)) { store(to + i, load(from + i, count), count); });
    });
  });
}

void add(void* y, const void* a, const void* b, Type type, std::int64_t n) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F sum =
              load(static_cast<const T*>(a) + i, count) + load(static_cast<const T*>(b) + i, count);
          store(static_cast<T*>(y) + i, sum, count);
        });
  });
}

void scale(void* y, const void* x, Type type, std::int64_t n, float factor) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(static_cast<T*>(y) + i, load(static_cast<const T*>(x) + i, count) * factor, count);
        });
  });
}

void soft_cap(float* y, const float* x, std::int64_t n, float scale, float cap) {
  const float inner = scale / cap;
  for_vectors(
      n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
        store(y + i, tanh(load(x + i, count) * inner) * cap, count);
      });
}

void soft_cap_gradient(void* dx, const void* dy, Type type, const float* y, std::int64_t n,
                       float cap) {
  const float inverse = 1.0F / cap;
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F t = load(y + i, count) * inverse;
          const F slope = splat(1.0F) - t * t;
          store(static_cast<T*>(dx) + i, load(static_cast<const T*>(dy) + i, count) * slope, count);
        });
  });
}

void accumulate(float* y, const void* x, Type type, std::int64_t n) {
  with_type(type, [&](auto tag) {
    const auto* from = static_cast<const decltype(tag)*>(x);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(y + i, load(y + i, count) + load(from + i, count), count);
        });
  });
}

void column_sums(float* sums, const Matrix& x, std::int64_t rows, std::int64_t columns) {
  with_type(x.type, [&](auto tag) {
    const auto* from = static_cast<const decltype(tag)*>(x.data);
    constexpr int kWide = 4 * kLanes;
    std::int64_t c = 0;
    for (; c + kWide <= columns; c += kWide) {
      F s0 = load(sums + c), s1 = load(sums + c + kLanes);
      F s2 = load(sums + c + 2 * kLanes), s3 = load(sums + c + 3 * kLanes);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto* row = from + r * x.stride + c;
        s0 += load(row);
        s1 += load(row + kLanes);
        s2 += load(row + 2 * kLanes);
        s3 += load(row + 3 * kLanes);
      }
      store(sums + c, s0);
      store(sums + c + kLanes, s1);
      store(sums + c + 2 * kLanes, s2);
      store(sums + c + 3 * kLanes, s3);
    }
    for_vectors(
        columns - c, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          F s = load(sums + c + i, count);
          for (std::int64_t r = 0; r < rows; ++r) s += load(from + r * x.stride + c + i, count);
          store(sums + c + i, s, count);
        });
  });
}

namespace {

// T: the type of x and bias; Y: of y and the residual. Which parts there are is known when it is
// compiled, so product and sum are rounded once wherever the processor can, under every compiler.
template <typename T, typename Y, bool kMasks, bool kAdds>
void drop_and_add(const DropoutArguments& a) {
  const T* x = static_cast<const T*>(a.x);
  const T* bias = static_cast<const T*>(a.bias);
  const Y* residual = static_cast<const Y*>(a.residual);
  Y* y = static_cast<Y*>(a.y);
  const MaskRow* mask = a.mask;
  float* sums = a.sums;
  // mask_factors() starts at multiples of four columns: `skip` of its factors belong to columns
  // before the first one.
  float kept[kMaskBlock + 4] = {};
  const std::int64_t skip = kMasks ? mask->first_column % 4 : 0;
  const std::int64_t block = skip == 0 ? kMaskBlock : kMaskBlock - 4;
  for (std::int64_t first = 0; first < a.columns; first += block) {
    const std::int64_t n = a.columns - first < block ? a.columns - first : block;
    if constexpr (kMasks) {
      mask_factors(*mask, static_cast<std::uint32_t>(mask->first_column - skip + first), kept);
    }
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const std::int64_t at = first + i;
          F value = load(x + at, count);
          if (bias != nullptr) value += load(bias + at, count);
          if constexpr (kMasks) value *= load(kept + skip + i);
          if constexpr (kAdds) value += load(residual + at, count);
          store(y + at, value, count);
          if (sums != nullptr) store(sums + at, load(sums + at, count) + value, count);
        });
  }
}

template <typename T, typename Y>
void drop_and_add(const DropoutArguments& a) {
  if (a.mask != nullptr) {
    a.residual != nullptr ? drop_and_add<T, Y, true, true>(a) : drop_and_add<T, Y, true, false>(a);
  } else {
    a.residual != nullptr ? drop_and_add<T, Y, false, true>(a)
                          : drop_and_add<T, Y, false, false>(a);
  }
}

}  // namespace

void dropout_add(const DropoutArguments& a) {
  with_type(a.type, [&](auto tag) {
    using T = decltype(tag);
    if (a.type_of_y == a.type) return drop_and_add<T, T>(a);
    if (a.type_of_y == Type::kF32) return drop_and_add<T, float>(a);
    if (a.type != Type::kF32) return;  // two narrow types: the calls have none
    a.type_of_y == Type::kBF16 ? drop_and_add<float, Bf16>(a) : drop_and_add<float, Half>(a);
  });
}

void add_noise(void* y, Type type, const MaskRow& row, float bound, std::int64_t columns) {
  const F step = splat(bound * 0x1p-31F);
  with_type(type, [&](auto tag) {
    auto* to = static_cast<decltype(tag)*>(y);
    for (std::int64_t first = 0; first < columns; first += kMaskBlock) {
      U words[4];
      mask_words(row, static_cast<std::uint32_t>(first), words);
      const std::int64_t n = columns - first < kMaskBlock ? columns - first : kMaskBlock;
      for_vectors(
          n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
            const F noise = __builtin_convertvector((I)words[i / kLanes], F) * step;
            store(to + first + i, load(to + first + i, count) + noise, count);
          });
    }
  });
}

void mask(float* x, const MaskRow& row, std::int64_t first, int columns) {
  float kept[kMaskBlock];
  for (int begin = 0; begin < columns; begin += kMaskBlock) {
    const int n = columns - begin < kMaskBlock ? columns - begin : kMaskBlock;
    mask_factors(row, static_cast<std::uint32_t>(first + begin), kept);
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F factor = load(kept + i);
          const F value = load(x + begin + i, count);
          store(x + begin + i, value * factor, count);
        });
  }
}

namespace {

// Those of kernels/optimizer.h: numbers below 2^16.
PITON_INLINE U drawn_bits(F gradient, F main, std::uint32_t update_number) {
  U x = (U)gradient * 0x9E3779B1U + (U)main + update_number * 0x85EBCA6BU;
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  x ^= x >> 16;
  return x & 0xFFFFU;
}

template <typename Call>
PITON_INLINE void with_moment(Type type, Call call) {
  if (type == Type::kF32) return call(float{});
  call(Bf16{});
}

template <typename First, typename Second, typename T>
PITON_INLINE void adamw_in(const AdamwArguments& a, std::int64_t begin, std::int64_t end) {
  const F scale = splat(a.gradient_scale), keep = splat(a.keep), rate = splat(a.learning_rate);
  const F beta1 = splat(a.beta1), beta2 = splat(a.beta2), eps = splat(a.eps);
  const F rest1 = splat(a.rest1), rest2 = splat(a.rest2);
  const F inverse1 = splat(1.0F / a.correction1), inverse2 = splat(1.0F / a.correction2);
  auto* first = static_cast<First*>(a.first);
  auto* second = static_cast<Second*>(a.second);
  T* copy = static_cast<T*>(a.copy);
  for_vectors(
      end - begin, [&](std::int64_t offset, auto count) __attribute__((always_inline)) {
        const std::int64_t i = begin + offset;
        const F gradient = load(a.gradient + i, count);
        const F main = load(a.main + i, count);
        const F g = gradient * scale;
        const F m = beta1 * load(first + i, count) + rest1 * g;
        F v = beta2 * load(second + i, count) + rest2 * g * g;
        F root;
        const F corrected = v * inverse2;
        for (int lane = 0; lane < kLanes; ++lane) root[lane] = __builtin_sqrtf(corrected[lane]);
        const F moved = main * keep - rate * (m * inverse1) / (root + eps);
        if (sizeof(Second) == 2) {
          v = (F)(((U)v + drawn_bits(gradient, main, a.update_number)) & 0xFFFF0000U);
        }
        store(first + i, m, count);
        store(second + i, v, count);
        store(a.main + i, moved, count);
        if (copy != nullptr) store(copy + i, moved, count);
      });
}

}  // namespace

void adamw(const AdamwArguments& a, std::int64_t begin, std::int64_t end) {
  with_moment(a.first_type, [&](auto first) {
    with_moment(a.second_type, [&](auto second) {
      with_type(a.copy_type, [&](auto copy) {
        adamw_in<decltype(first), decltype(second), decltype(copy)>(a, begin, end);
      });
    });
  });
}

void sgd(const SgdArguments& a, std::int64_t begin, std::int64_t end) {
  const F scale = splat(a.gradient_scale), decay = splat(a.decay), rate = splat(a.learning_rate);
  const F momentum = splat(a.momentum);
  with_type(a.copy_type, [&](auto tag) {
    using T = decltype(tag);
    T* copy = static_cast<T*>(a.copy);
    for_vectors(
        end - begin, [&](std::int64_t offset, auto count) __attribute__((always_inline)) {
          const std::int64_t i = begin + offset;
          const F main = load(a.main + i, count);
          F g = load(a.gradient + i, count) * scale + decay * main;
          if (a.buffer != nullptr) {
            g = momentum * load(a.buffer + i, count) + g;
            store(a.buffer + i, g, count);
          }
          const F moved = main - rate * g;
          store(a.main + i, moved, count);
          if (copy != nullptr) store(copy + i, moved, count);
        });
  });
}

// A block has 32 sums in fp64; element e goes to sum e mod 32, and the sums are added in order at
// the end: the same order on every instruction set. Four vectors of 8 hide the latency of
// additions.
void square_sums(double* sums, const float* x, std::int64_t n, std::int64_t block,
                 std::int64_t begin, std::int64_t end) {
  typedef float Floats __attribute__((vector_size(32)));
  typedef double Doubles __attribute__((vector_size(64)));
  constexpr int kSums = 32;
  for (std::int64_t i = begin; i < end; ++i) {
    const float* p = x + i * block;
    const std::int64_t size = (i + 1) * block < n ? block : n - i * block;
    Doubles s[kSums / 8] = {};
    std::int64_t e = 0;
    for (; e + kSums <= size; e += kSums) {
      for (int v = 0; v < kSums / 8; ++v) {
        const Doubles value = __builtin_convertvector(load_bits<Floats>(p + e + v * 8), Doubles);
        s[v] += value * value;
      }
    }
    for (int rest = 0; e < size; ++e, ++rest) {
      const double value = p[e];
      s[rest / 8][rest % 8] += value * value;
    }
    double sum = 0;
    for (const Doubles& part : s) {
      for (int lane = 0; lane < 8; ++lane) sum += part[lane];
    }
    sums[i] = sum;
  }
}

}  // namespace piton::cpu::PITON_ISA
