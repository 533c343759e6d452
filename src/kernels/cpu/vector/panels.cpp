// Products on packed panels: the sums of a few rows and one panel stay in registers over k.
//
// Registers: 8 rows x 3 vectors of sums, 3 of the right side and 1 of the left are 28 of 32 with
// AVX-512 and NEON; otherwise 6 x 2, 2 and 1 are 15 of 16. A step over k has 24 multiply-adds for
// 11 loads (otherwise 12 for 8); at two loads per cycle, the loads are not the bottleneck. Other
// work of a step takes ports from multiply-adds, so steps are unrolled.
#include "kernels/cpu/vector/panels.h"

#include "kernels/cpu/vector/pack.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

// Layout of the left side, and which rows form a group. Plain rows: groups of about equal size,
// since a last group of one row would take as long as a whole one. Packed rows: the packed groups.
struct Rows {
  static constexpr std::int64_t kRow = kLeftStride;
  static constexpr std::int64_t kStep = 1;
  PITON_INLINE std::int64_t first_row(const PanelMultiply& p, std::int64_t group,
                                      std::int64_t groups) {
    return p.rows * group / groups;
  }
  PITON_INLINE std::int64_t offset(const PanelMultiply&, std::int64_t row) {
    return row * kLeftStride;
  }
};
struct Groups {
  static constexpr std::int64_t kRow = 1;
  static constexpr std::int64_t kStep = kGroup;
  PITON_INLINE std::int64_t first_row(const PanelMultiply& p, std::int64_t group,
                                      std::int64_t groups) {
    return group == groups ? p.rows : group * kGroup;
  }
  PITON_INLINE std::int64_t offset(const PanelMultiply& p, std::int64_t row) {
    return row * p.depth;
  }
};

constexpr int kUnrolled = kLanes == 16 ? 2 : 4;

// A row of two vectors of bf16 is read as one vector of pairs: even columns are widened by a shift,
// odd ones by a mask. Their sums are put in order at the end.
template <typename T>
constexpr bool kReadsPairs = false;
template <>
constexpr bool kReadsPairs<Bf16> = kPanelVectors == 2;

// One row of a panel.
template <int wide, typename T>
PITON_INLINE void load_row(F (&right)[wide], const T* b) {
  if constexpr (kReadsPairs<T>) {
    static_assert(wide == 2);
    const U pairs = load_bits<U>(b);
    right[0] = (F)(pairs << 16);
    right[1] = (F)(pairs & 0xFFFF0000U);
  } else {
    for (int w = 0; w < wide; ++w) right[w] = load(b + w * kLanes);
  }
}

// Sums of load_row()'s columns in the order of the panel.
template <typename T, typename Vector>
PITON_INLINE void put_in_order(Vector* sum) {
  if constexpr (kReadsPairs<T>) {
    const Vector even = sum[0];
    const Vector odd = sum[1];
    if constexpr (kLanes == 8) {
      sum[0] = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
      sum[1] = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
    } else {
      sum[0] = __builtin_shufflevector(even, odd, 0, 4, 1, 5);
      sum[1] = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
    }
  }
}

// Advances through the memory ahead by `pace` bytes at a time, and prefetches all lines of them: a
// single group of rows, which passes through it fastest, has two to four lines a step.
struct Prefetch {
  const std::byte* at;
  const std::byte* end;  // of the piece
  std::int64_t pace;
  std::int64_t gap;  // from the end of a piece to the next one
  std::int64_t bytes;

  inline __attribute__((always_inline)) void step() {
    constexpr std::int64_t kLine = 64;
    __builtin_prefetch(at, 0, 2);
    for (std::int64_t line = kLine; line < pace; line += kLine) {
      __builtin_prefetch(at + line, 0, 2);
    }
    at += pace;
    if (at >= end) {
      at += gap;
      end = at + bytes;
    }
  }
};

// Prefetches every `kUnrolled` steps.
template <int rows, int wide, typename Left, typename T>
PITON_INLINE void sum_up(F (&sum)[rows][wide], std::int64_t depth, const float* a, const T* b,
                         Prefetch ahead) {
  const auto step = [&](int at) __attribute__((always_inline)) {
    F right[wide];
    load_row<wide>(right, b + at * wide * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const F left = splat(a[r * Left::kRow + at * Left::kStep]);
      for (int w = 0; w < wide; ++w) sum[r][w] = add_product(sum[r][w], left, right[w]);
    }
  };
  std::int64_t p = 0;
  for (; p + kUnrolled <= depth; p += kUnrolled) {
    ahead.step();
#pragma GCC unroll 4
    for (int at = 0; at < kUnrolled; ++at) step(at);
    a += kUnrolled * Left::kStep;
    b += kUnrolled * wide * kLanes;
  }
  for (; p < depth; ++p) {
    step(0);
    a += Left::kStep;
    b += wide * kLanes;
  }
}

// `count`: lanes of the last vector of a row.
template <int rows, int wide, typename Count>
PITON_INLINE void put(const F (&sum)[rows][wide], const PanelMultiply& p, std::int64_t row,
                      Count count) {
  const auto one = [&](float* to, F value, int w, auto lanes) __attribute__((always_inline)) {
    if (p.adds) value = load(to, lanes) + value;
    if (p.bias != nullptr) value += load(p.bias + w * kLanes);
    store(to, value, lanes);
  };
  float* to = p.sums + row * p.stride;
  for (int r = 0; r < rows; ++r, to += p.stride) {
    for (int w = 0; w < wide - 1; ++w) one(to + w * kLanes, sum[r][w], w, Full{});
    one(to + (wide - 1) * kLanes, sum[r][wide - 1], wide - 1, count);
  }
}

template <int rows, int wide, typename Left, typename T>
void tile(const PanelMultiply& p, const float* a, std::int64_t row, const Prefetch& ahead) {
  if (p.adds) {
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < wide; ++w) {
        __builtin_prefetch(p.sums + (row + r) * p.stride + w * kLanes, 1);
      }
    }
  }
  F sum[rows][wide] = {};
  sum_up<rows, wide, Left>(sum, p.depth, a, static_cast<const T*>(p.right), ahead);
  for (int r = 0; r < rows; ++r) put_in_order<T>(sum[r]);
  const int count = static_cast<int>(p.columns - (wide - 1) * kLanes);
  if (count == kLanes) {
    put<rows, wide>(sum, p, row, Full{});
  } else {
    put<rows, wide>(sum, p, row, count);
  }
}

// tile() for a number of rows that is known only at run time.
template <int wide, typename Left, typename T, int rows = kGroup>
PITON_INLINE void tile_of(std::int64_t count, const PanelMultiply& p, const float* a,
                          std::int64_t row, const Prefetch& ahead) {
  if (count == rows) return tile<rows, wide, Left, T>(p, a, row, ahead);
  if constexpr (rows > 1) tile_of<wide, Left, T, rows - 1>(count, p, a, row, ahead);
}

// Each group prefetches its share of the memory ahead.
struct Ahead {
  Ahead(const PanelMultiply& p, std::int64_t groups)
      : memory(p.ahead),
        all(p.ahead.data != nullptr ? p.ahead.rows * p.ahead.bytes : 0),
        groups(groups),
        right(static_cast<const std::byte*>(p.right)),
        pace(0) {
    const std::int64_t steps = p.depth / kUnrolled < 1 ? 1 : p.depth / kUnrolled;
    pace = (all / groups + steps - 1) / steps;
  }
  Prefetch at(std::int64_t group) const {
    if (all == 0) return {right, right + 1, 0, 0, 1};
    const std::int64_t first = all * group / groups;
    const std::byte* piece = memory.data + first / memory.bytes * memory.stride;
    return {piece + first % memory.bytes, piece + memory.bytes, pace, memory.stride - memory.bytes,
            memory.bytes};
  }

  const PanelAhead& memory;
  std::int64_t all;
  std::int64_t groups;
  const std::byte* right;
  std::int64_t pace;
};

template <typename Left, int wide, typename T = float>
void multiply_panel(const PanelMultiply& p) {
  const std::int64_t groups = (p.rows + kGroup - 1) / kGroup;
  const Ahead ahead(p, groups);
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t row = Left::first_row(p, group, groups);
    const std::int64_t count = Left::first_row(p, group + 1, groups) - row;
    tile_of<wide, Left, T>(count, p, p.left + Left::offset(p, row), row, ahead.at(group));
  }
}

template <typename Left>
void multiply(const PanelMultiply& p) {
  switch ((p.columns + kLanes - 1) / kLanes) {
    case 1:
      return multiply_panel<Left, 1>(p);
    case 2:
      return multiply_panel<Left, 2>(p);
    default:
      return multiply_panel<Left, kPanelVectors>(p);
  }
}

// One or two rows by several whole panels: all sums stay in registers.
template <int rows, typename T>
void tile_of_panels(const PanelMultiply& p) {
  constexpr int kPanels = PanelTable::panels_at_once(rows);
  constexpr int kWide = kPanels * kPanelVectors;
  const std::int64_t apart = p.panel_bytes / static_cast<std::int64_t>(sizeof(T));
  const float* a = p.left;
  const T* b = static_cast<const T*>(p.right);
  F sum[rows][kWide] = {};
  const auto step = [&](int at) __attribute__((always_inline)) {
    F left[rows];
    for (int r = 0; r < rows; ++r) left[r] = splat(a[r * kLeftStride + at]);
#pragma GCC unroll 4
    for (int panel = 0; panel < kPanels; ++panel) {
      F right[kPanelVectors];
      load_row<kPanelVectors>(right, b + panel * apart + at * kPanelColumns);
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < kPanelVectors; ++v) {
          F& own = sum[r][panel * kPanelVectors + v];
          own = add_product(own, left[r], right[v]);
        }
      }
    }
  };
  std::int64_t k = 0;
  for (; k + kUnrolled <= p.depth; k += kUnrolled) {
#pragma GCC unroll 4
    for (int at = 0; at < kUnrolled; ++at) step(at);
    a += kUnrolled;
    b += kUnrolled * kPanelColumns;
  }
  for (; k < p.depth; ++k) {
    step(0);
    ++a;
    b += kPanelColumns;
  }
  for (int r = 0; r < rows; ++r) {
    for (int panel = 0; panel < kPanels; ++panel) put_in_order<T>(sum[r] + panel * kPanelVectors);
  }
  put<rows, kWide>(sum, p, 0, Full{});
}

template <typename T>
void multiply_whole(const PanelMultiply& p) {
  if (p.columns == kPanelColumns) return multiply_panel<Rows, kPanelVectors, T>(p);
  p.rows == 1 ? tile_of_panels<1, T>(p) : tile_of_panels<2, T>(p);
}
void multiply_whole_of(const PanelMultiply& p, Type type) {
  type == Type::kF32 ? multiply_whole<float>(p) : multiply_whole<Bf16>(p);
}

}  // namespace

const PanelTable& panel_table() {
  static constexpr PanelTable kTable{.lanes = kLanes,
                                     .panel = kPanelColumns,
                                     .group = kGroup,
                                     .depth = kDepth,
                                     .left_stride = kLeftStride,
                                     .reads_rows = kLanes < 16,
                                     .part_rows = kPartRows,
                                     .multiply_rows = multiply<Rows>,
                                     .multiply_groups = multiply<Groups>,
                                     .multiply_whole = multiply_whole_of,
                                     .pack_right = pack_right,
                                     .pack_right_columns = pack_right_columns,
                                     .pack_right_wide = pack_right_wide,
                                     .pack_right_columns_wide = pack_right_columns_wide,
                                     .pack_left = pack_left};
  return kTable;
}

}  // namespace piton::cpu::PITON_ISA
