// Packs operands into panels and groups.
#include "kernels/cpu/vector/pack.h"

#include "kernels/cpu/vector/transpose.h"

namespace piton::cpu::PITON_ISA {
namespace {

// 32-bit words; an element of 16 bits is in the low half.
PITON_INLINE U load_words(const float* p) { return load_bits<U>(p); }
PITON_INLINE U load_words(const Bf16* p) { return widen_words(load_bits<H>(p)); }
PITON_INLINE U load_words(const Half* p) { return widen_words(load_bits<H>(p)); }
PITON_INLINE void store_words(float* p, U x) { __builtin_memcpy(p, &x, sizeof x); }
PITON_INLINE void store_words(Bf16* p, U x) {
  const H h = __builtin_convertvector(x, H);
  __builtin_memcpy(p, &h, sizeof h);
}
PITON_INLINE void store_words(Half* p, U x) {
  const H h = __builtin_convertvector(x, H);
  __builtin_memcpy(p, &h, sizeof h);
}
template <typename T>
PITON_INLINE U load_words(const T* p, std::int64_t count) {
  T lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, static_cast<std::size_t>(count) * sizeof(T));
  return load_words(lanes);
}

// Rows may be pages apart, which the hardware prefetcher does not follow.
constexpr int kRowsAhead = 12;
PITON_INLINE void bring(const void* row, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + at);
  }
}

PITON_INLINE void copy_panel(Bf16* to, const Bf16* row) {
  __builtin_memcpy(to, row, kPanelColumns * sizeof *to);
}
PITON_INLINE void copy_panel(Half* to, const Half* row) {
  __builtin_memcpy(to, row, kPanelColumns * sizeof *to);
}
template <typename T>
PITON_INLINE void copy_panel(float* to, const T* row) {
  for (int at = 0; at < kPanelColumns; at += kLanes) store(to + at, load(row + at));
}

template <typename To, typename T>
void copy_rows(To* to, const T* from, std::int64_t stride, std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kTogether = 4;  // panels, to read more than a few lines of a row
  std::int64_t first = 0;
  while (n - first >= kPanelColumns) {
    const std::int64_t whole = (n - first) / kPanelColumns;
    const std::int64_t panels = whole < kTogether ? whole : kTogether;
    for (std::int64_t p = 0; p < k; ++p) {
      const T* row = from + p * stride + first;
      bring(row + kRowsAhead * stride, panels * kPanelColumns * sizeof(T));
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        copy_panel(to + (panel * k + p) * kPanelColumns, row + panel * kPanelColumns);
      }
    }
    to += panels * k * kPanelColumns;
    first += panels * kPanelColumns;
  }
  const std::int64_t columns = n - first;
  const std::int64_t width = (columns + kLanes - 1) / kLanes * kLanes;
  if (columns == 0) return;
  for (std::int64_t p = 0; p < k; ++p, to += width) {
    const T* row = from + p * stride + first;
    To line[kPanelColumns];
    T known[kPanelColumns] = {};
    __builtin_memcpy(known, row, static_cast<std::size_t>(columns) * sizeof(T));
    copy_panel(line, known);
    __builtin_memcpy(to, line, static_cast<std::size_t>(width) * sizeof(To));
  }
}

template <typename T>
void copy_columns(T* to, const T* from, std::int64_t stride, std::int64_t k, std::int64_t n) {
  for (std::int64_t first = 0; first < n; first += kPanelColumns) {
    const std::int64_t columns = n - first < kPanelColumns ? n - first : kPanelColumns;
    const std::int64_t width = (columns + kLanes - 1) / kLanes * kLanes;
    for (std::int64_t p = 0; p < k; p += kLanes) {
      const std::int64_t deep = k - p < kLanes ? k - p : kLanes;
      for (std::int64_t column = 0; column < width; column += kLanes) {
        const T* square = from + (first + column) * stride + p;
        U rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          if (column + i >= columns) {
            rows[i] = U{};
          } else {
            rows[i] = deep == kLanes ? load_words(square + i * stride)
                                     : load_words(square + i * stride, deep);
          }
        }
        transpose(rows);
        for (int i = 0; i < kLanes; ++i) {
          if (i < deep) store_words(to + (p + i) * width + column, rows[i]);
        }
      }
    }
    to += k * width;
  }
}

// A word has two neighbors in k, as a row has them: words are transposed, then each is widened
// twice.
PITON_INLINE void widen_words(float* even, float* odd, U words, Bf16) {
  store(even, (F)(words << 16));
  store(odd, (F)(words & 0xFFFF0000U));
}
PITON_INLINE void widen_words(float* even, float* odd, U words, Half) {
  store(even, widen_half(__builtin_convertvector(words & 0xFFFFU, H)));
  store(odd, widen_half(__builtin_convertvector(words >> 16, H)));
}

// Columns [0, kLanes) of k [0, deep), at most 2 kLanes, of which `given` columns exist. Rows of
// `to` are `width` apart.
template <typename T>
PITON_INLINE void widen_square(float* to, std::int64_t width, const T* from, std::int64_t stride,
                               std::int64_t given, std::int64_t deep) {
  constexpr std::int64_t kDeep = 2 * kLanes;
  U words[kLanes];
  if (given >= kLanes && deep >= kDeep) {
    for (int i = 0; i < kLanes; ++i) words[i] = load_bits<U>(from + i * stride);
  } else {
    const std::int64_t count = deep < kDeep ? deep : kDeep;
    for (int i = 0; i < kLanes; ++i) {
      T line[kDeep] = {};
      if (i < given) {
        __builtin_memcpy(line, from + i * stride, static_cast<std::size_t>(count) * sizeof(T));
      }
      words[i] = load_bits<U>(line);
    }
  }
  transpose(words);
  float none[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    if (2 * i >= deep) break;
    float* even = to + 2 * i * width;
    widen_words(even, 2 * i + 1 < deep ? even + width : none, words[i], T{});
  }
}

template <typename T>
void widen_columns(float* to, const T* from, std::int64_t stride, std::int64_t k, std::int64_t n) {
  // Of k, one column of squares at a time: the hardware prefetcher follows its rows. With 16, which
  // changes to other rows after each square, a product takes 3 to 7 % longer.
  constexpr std::int64_t kDeep = 256;
  for (std::int64_t first = 0; first < n; first += kPanelColumns) {
    const std::int64_t columns = n - first < kPanelColumns ? n - first : kPanelColumns;
    const std::int64_t width = (columns + kLanes - 1) / kLanes * kLanes;
    for (std::int64_t begin = 0; begin < k; begin += kDeep) {
      const std::int64_t end = k - begin < kDeep ? k : begin + kDeep;
      for (std::int64_t column = 0; column < width; column += kLanes) {
        for (std::int64_t p = begin; p < end; p += 2 * kLanes) {
          widen_square(to + p * width + column, width, from + (first + column) * stride + p, stride,
                       columns - column, k - p);
        }
      }
    }
    to += k * width;
  }
}
void widen_columns(float* to, const float* from, std::int64_t stride, std::int64_t k,
                   std::int64_t n) {
  copy_columns(to, from, stride, k, n);
}

}  // namespace

void pack_right(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  with_type(rows.type, [&](auto tag) {
    using T = decltype(tag);
    copy_rows(static_cast<T*>(panels), static_cast<const T*>(rows.data), rows.stride, k, n);
  });
}

void pack_right_wide(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  with_type(rows.type, [&](auto tag) {
    copy_rows(panels, static_cast<const decltype(tag)*>(rows.data), rows.stride, k, n);
  });
}

void pack_right_columns(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  with_type(rows.type, [&](auto tag) {
    using T = decltype(tag);
    copy_columns(static_cast<T*>(panels), static_cast<const T*>(rows.data), rows.stride, k, n);
  });
}

void pack_right_columns_wide(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n) {
  with_type(rows.type, [&](auto tag) {
    widen_columns(panels, static_cast<const decltype(tag)*>(rows.data), rows.stride, k, n);
  });
}

void pack_left(float* groups, const Matrix& columns, std::int64_t k, std::int64_t m) {
  constexpr std::int64_t kLine = 8 * kGroup;  // whole vectors
  with_type(columns.type, [&](auto tag) {
    const auto* from = static_cast<const decltype(tag)*>(columns.data);
    for (std::int64_t first = 0; first < m; first += kLine) {
      const std::int64_t count = m - first < kLine ? m - first : kLine;
      const std::int64_t whole = (count + kGroup - 1) / kGroup;
      float* to = groups + first * k;
      for (std::int64_t p = 0; p < k; ++p) {
        float line[kLine] = {};
        bring(from + (p + kRowsAhead) * columns.stride + first, count * sizeof(*from));
        for_vectors(
            count, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
              store(line + i, load(from + p * columns.stride + first + i, lanes));
            });
        for (std::int64_t group = 0; group < whole; ++group) {
          __builtin_memcpy(to + (group * k + p) * kGroup, line + group * kGroup,
                           kGroup * sizeof(float));
        }
      }
    }
  });
}

}  // namespace piton::cpu::PITON_ISA
