// Small fp32 matrix products on tiles that stay in the first and second level caches.
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/simd.h"
#include "kernels/cpu/vector/transpose.h"

namespace piton::cpu::PITON_ISA {
namespace {

// Registers: 6 rows x kWide vectors of sums, kWide of b, one of a: 29 of 32 with AVX-512 (kWide 4),
// 15 of 16 otherwise (kWide 2).
constexpr int kRows = 6;
constexpr int kWide = kLanes == 16 ? 4 : 2;

template <int rows, int wide>
PITON_INLINE void tile(int k, const float* a, std::int64_t a_row, std::int64_t a_column,
                       const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                       bool accumulate) {
  F sum[rows][wide] = {};
  for (int step = 0; step < k; ++step) {
    F right[wide];
    for (int w = 0; w < wide; ++w) right[w] = load(b + step * b_stride + w * kLanes);
    for (int r = 0; r < rows; ++r) {
      const F left = splat(a[r * a_row + step * a_column]);
      for (int w = 0; w < wide; ++w) sum[r][w] += left * right[w];
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int w = 0; w < wide; ++w) {
      float* at = c + r * c_stride + w * kLanes;
      store(at, accumulate ? load(at) + sum[r][w] : sum[r][w]);
    }
  }
}

template <int wide>
void panel(int m, int k, const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
           std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulate) {
  int r = 0;
  for (; r + kRows <= m; r += kRows) {
    tile<kRows, wide>(k, a + r * a_row, a_row, a_column, b, b_stride, c + r * c_stride, c_stride,
                      accumulate);
  }
  // Blocks of 64 rows leave four: two pairs of rows would wait for their own sums.
  for (; r + 4 <= m; r += 4) {
    tile<4, wide>(k, a + r * a_row, a_row, a_column, b, b_stride, c + r * c_stride, c_stride,
                  accumulate);
  }
  for (; r + 2 <= m; r += 2) {
    tile<2, wide>(k, a + r * a_row, a_row, a_column, b, b_stride, c + r * c_stride, c_stride,
                  accumulate);
  }
  if (r < m) {
    tile<1, wide>(k, a + r * a_row, a_row, a_column, b, b_stride, c + r * c_stride, c_stride,
                  accumulate);
  }
}

}  // namespace

void product(int m, int n, int k, const float* a, std::int64_t a_row, std::int64_t a_column,
             const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
             bool accumulate) {
  int column = 0;
  for (; column + kWide * kLanes <= n; column += kWide * kLanes) {
    panel<kWide>(m, k, a, a_row, a_column, b + column, b_stride, c + column, c_stride, accumulate);
  }
  for (; column < n; column += kLanes) {
    panel<1>(m, k, a, a_row, a_column, b + column, b_stride, c + column, c_stride, accumulate);
  }
}

void transpose(float* y, std::int64_t y_stride, const Matrix& x, int m, int n) {
  with_type(x.type, [&](auto tag) {
    const auto* from = static_cast<const decltype(tag)*>(x.data);
    for (int row = 0; row < m; row += kLanes) {
      const int rows = m - row < kLanes ? m - row : kLanes;
      for (int column = 0; column < n; column += kLanes) {
        const int columns = n - column < kLanes ? n - column : kLanes;
        U square[kLanes];
        for (int r = 0; r < kLanes; ++r) {
          const auto* p = from + (row + r) * x.stride + column;
          square[r] = r >= rows ? U{} : (U)(columns == kLanes ? load(p) : load(p, columns));
        }
        transpose(square);
        float* to = y + column * y_stride + row;
        for (int c = 0; c < columns; ++c, to += y_stride) {
          if (rows == kLanes) {
            store(to, (F)square[c]);
          } else {
            store(to, (F)square[c], rows);
          }
        }
      }
    }
  });
}

float dot(const void* a, Type a_type, const void* b, Type b_type, std::int64_t d) {
  F sum = splat(0);
  with_type(a_type, [&](auto left) {
    with_type(b_type, [&](auto right) {
      for_vectors(
          d, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
            sum += load(static_cast<const decltype(left)*>(a) + i, count) *
                   load(static_cast<const decltype(right)*>(b) + i, count);
          });
    });
  });
  return sum_lanes(sum);
}

}  // namespace piton::cpu::PITON_ISA
