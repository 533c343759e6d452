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

// Eight panels of the left side are three vectors. Several pairs are packed at once, since panels
// are a multiple of 4 KiB apart and a line of the first-level cache holds two or three pairs.
constexpr std::int64_t kLineWords = 8 * kLeftPanel;
constexpr std::int64_t kPairsAtOnce = 8;

// Words (row, row + 1) of up to 48 of the `left` columns from `column` on; 0 behind them.
PITON_INLINE void pack_line(Pair* line, const Matrix& columns, std::int64_t row, std::int64_t k,
                            std::int64_t column, std::int64_t left) {
  if (columns.type == Type::kBF16 && left >= kLineWords && row + 1 < k) {
    const std::uint16_t* one =
        static_cast<const std::uint16_t*>(columns.data) + row * columns.stride + column;
    pack_two(line, one, one + columns.stride);
    _mm512_store_si512(line + 32, words(columns, row, k, column + 32, 0xFFFF));
    return;
  }
  for (int v = 0; v < 3; ++v) {
    const std::int64_t rest = left - 16 * v;
    _mm512_store_si512(line + 16 * v,
                       rest > 0 ? words(columns, row, k, column + 16 * v, first_words(rest))
                                : _mm512_setzero_si512());
  }
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
  for (std::int64_t pair = 0; pair < pairs; pair += kPairsAtOnce) {
    const std::int64_t count = pairs - pair < kPairsAtOnce ? pairs - pair : kPairsAtOnce;
    for (std::int64_t column = 0; column < m; column += kLineWords) {
      // The last load of a line has two words of the next one.
      alignas(64) Pair lines[kPairsAtOnce * kLineWords + 2];
      for (std::int64_t i = 0; i < count; ++i) {
        pack_line(lines + i * kLineWords, columns, 2 * (pair + i), k, column, m - column);
      }
      const std::int64_t end = m - column < kLineWords ? m - column : kLineWords;
      Pair* to = panels + column * pairs + pair * kLeftPanel;
      for (std::int64_t first = 0; first < end; first += kLeftPanel, to += pairs * kLeftPanel) {
        for (std::int64_t i = 0; i < count; ++i) {
          _mm256_mask_storeu_epi32(
              to + i * kLeftPanel, 0x3F,
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lines + i * kLineWords + first)));
        }
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
