// Packs operands into pairs and panels.
#include "kernels/cpu/dot/functions.h"
#include "kernels/cpu/dot/table.h"
#include "kernels/cpu/dot/words.h"

namespace piton::cpu::v4_bf16 {
namespace {

// Words of 32 columns of two rows of bf16.
PITON_INLINE void pack_two(Pair* to, const std::uint16_t* row, const std::uint16_t* next) {
  __m512i low;
  __m512i high;
  interleave(low, high, row, next);
  _mm512_storeu_si512(to, low);
  _mm512_storeu_si512(to + 16, high);
}

}  // namespace

void pack_rows(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  for (std::int64_t panel = 0; panel < n; panel += kPanel) {
    const std::int64_t width = n - panel < kPanel ? n - panel : kPanel;
    std::int64_t row = 0;
    if (width == kPanel && rows.type == Type::kBF16) {
      const auto* from = static_cast<const std::uint16_t*>(rows.data) + panel;
      for (; row + 2 <= k; row += 2, panels += kPanel) {
        const std::uint16_t* one = from + row * rows.stride;
        pack_two(panels, one, one + rows.stride);
        pack_two(panels + 32, one + 32, one + rows.stride + 32);
      }
    }
    for (; row < k; row += 2) {
      for (std::int64_t column = 0; column < width; column += 16) {
        _mm512_storeu_si512(panels,
                            words(rows, row, k, panel + column, first_words(width - column)));
        panels += 16;
      }
    }
  }
}

void pack_columns(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  const std::int64_t pairs = (k + 1) / 2;
  const auto* base = static_cast<const std::uint16_t*>(rows.data);
  for (std::int64_t panel = 0; panel < n; panel += kPanel) {
    const std::int64_t width = ((n - panel < kPanel ? n - panel : kPanel) + 15) / 16 * 16;
    for (std::int64_t column = 0; column < width; column += 16) {
      for (std::int64_t pair = 0; pair < pairs; pair += 16) {
        const std::int64_t left = k - 2 * pair;  // elements of k from here on
        const auto mask = static_cast<__mmask32>(left >= 32 ? 0xFFFFFFFFU : (1U << left) - 1);
        __m512i r[16];
        for (int i = 0; i < 16; ++i) {
          const std::int64_t row = panel + column + i;
          r[i] = row < n ? _mm512_maskz_loadu_epi16(mask, base + row * rows.stride + 2 * pair)
                         : _mm512_setzero_si512();
        }
        transpose(r);
        const std::int64_t count = pairs - pair < 16 ? pairs - pair : 16;
        for (int i = 0; i < 16; ++i) {
          if (i < count) _mm512_storeu_si512(panels + (pair + i) * width + column, r[i]);
        }
      }
    }
    panels += pairs * width;
  }
}

void pack_left(Pair* panels, const Matrix& columns, std::int64_t k, std::int64_t m) {
  const std::int64_t pairs = (k + 1) / 2;
  for (std::int64_t row = 0; row < m; row += 48) {  // eight panels are three vectors
    const std::int64_t left = m - row;
    Pair* to = panels + row / kLeftPanel * pairs * kLeftPanel;
    const std::int64_t count = (left < 48 ? left + kLeftPanel - 1 : 48) / kLeftPanel;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      alignas(64) Pair line[48];
      for (int v = 0; v < 3; ++v) {
        const std::int64_t rest = left - 16 * v;
        const __m512i word = rest > 0 ? words(columns, 2 * pair, k, row + 16 * v, first_words(rest))
                                      : _mm512_setzero_si512();
        _mm512_store_si512(line + 16 * v, word);
      }
      for (std::int64_t p = 0; p < count; ++p) {
        Pair* at = to + (p * pairs + pair) * kLeftPanel;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(at),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + p * kLeftPanel)));
        _mm_storel_epi64(
            reinterpret_cast<__m128i*>(at + 4),
            _mm_loadl_epi64(reinterpret_cast<const __m128i*>(line + p * kLeftPanel + 4)));
      }
    }
  }
}

const DotTable& dot_table() {
  static constexpr DotTable kTable{.product = product,
                                   .product_columns = product_columns,
                                   .product_streamed = product_streamed,
                                   .product_packed = product_packed,
                                   .pack_rows = pack_rows,
                                   .pack_columns = pack_columns,
                                   .pack_codes = pack_codes,
                                   .pack_left = pack_left,
                                   .softmax = softmax,
                                   .score_gradients = score_gradients,
                                   .loop = loop};
  return kTable;
}

}  // namespace piton::cpu::v4_bf16
