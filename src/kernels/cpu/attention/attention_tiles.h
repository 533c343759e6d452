// Shared by forward and backward attention: views of heads, and which keys each query sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/cpu/context.h"

namespace piton::cpu {

// Queries and keys of one tile. Scores (16 KiB) and the tiles of q, k and v for heads of 64 stay in
// the first-level cache.
inline constexpr std::int64_t kQueryBlock = 64;
inline constexpr std::int64_t kKeyBlock = 64;
static_assert(kKeyBlock == kCachePage, "a tile of keys is in one page");

// One head of one sample: row r is at data + r * stride elements; with pages, row r % kCachePage of
// a page is at that place of the page. Rows from a multiple of kKeyBlock on up to the next one are
// `stride` elements apart in either case. Rows of a cache of codes are read through
// expanded_block().
struct HeadRows {
  std::byte* data;
  Type type;  // of codes: of the numbers that they are expanded to
  std::int64_t stride;
  std::int64_t width;
  const std::int32_t* pages = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t first = 0;         // without pages: the row at `data`
  const float* scales = nullptr;  // of codes: of a page those of its rows; pages as of `data`
  std::int64_t scale_page_stride = 0;
  std::int64_t channels = 0;
  // Of codes of latents: channels from `latents` on have other scales, at the same places.
  const float* end_scales = nullptr;
  std::int64_t latents = 0;

  HeadRows(const Tensor& tensor, std::int64_t batch, std::int64_t head)
      : data(tensor.raw() +
             (batch * tensor.stride(0) + head * tensor.stride(2)) * size_bytes(tensor.dtype())),
        type(type_of(tensor.dtype())),
        stride(tensor.stride(1)),
        width(size_bytes(tensor.dtype())),
        channels(tensor.dim(3)) {}
  // The head of a sample in a cache [pages, kCachePage, g, d]; its pages in order.
  HeadRows(const Tensor& cache, const std::int32_t* pages_of_sample, std::int64_t head,
           Type numbers)
      : data(cache.raw() + head * cache.stride(2) * size_bytes(cache.dtype())),
        type(numbers),
        stride(cache.stride(1)),
        width(size_bytes(cache.dtype())),
        pages(pages_of_sample),
        page_stride(cache.stride(0)),
        channels(cache.dim(3)) {}
  std::byte* row(std::int64_t r) const {
    if (pages == nullptr) return data + (r - first) * stride * width;
    return data + (pages[r / kCachePage] * page_stride + r % kCachePage * stride) * width;
  }
};

// Memory for one block of keys or values that are expanded from codes.
inline std::int64_t block_bytes(std::int64_t d) { return padded(kKeyBlock * d * 4, 64); }

// A head whose `rows` rows from `begin`, the first of a block, can be read: `head` itself or, of
// codes, their numbers in `memory`, which has block_bytes().
HeadRows expanded_block(const CpuContext& context, const HeadRows& head, std::int64_t begin,
                        std::int64_t rows, std::byte* memory);

// Numbers of keys: first .. last - 1; first == last: none.
struct KeyRange {
  std::int64_t first;
  std::int64_t last;
};

// What forward attention computes: a call, or one sample of a CachedAttention.
struct ForwardWork {
  AttentionForward call;  // with pages: one sample, maybe without lse; k, v are the cache
  std::int64_t keys = 0;  // sk
  const std::int32_t* pages = nullptr;
  Tensor key_scales = {};  // of a cache of codes
  Tensor value_scales = {};
  // v is the first channels of k, and may be narrower. Queries are [1, rows, 1, d].
  bool of_latents = false;
  // Stretches of this many keys, a multiple of kKeyBlock, are computed by different parts and then
  // merged in order; 0: one part has all keys. `partial`: memory of partial_floats().
  std::int64_t stretch_keys = 0;
  float* partial = nullptr;

  HeadRows key_rows(std::int64_t batch, std::int64_t group) const {
    HeadRows rows = rows_of(call.k, key_scales, batch, group);
    if (!of_latents || rows.scales == nullptr) return rows;
    rows.end_scales = rows.scales;
    rows.scales = rows_of(call.v, value_scales, batch, group).scales;
    rows.latents = call.v.dim(3);
    return rows;
  }
  HeadRows value_rows(std::int64_t batch, std::int64_t group) const {
    return rows_of(call.v, value_scales, batch, group);
  }
  std::int64_t stretches() const {
    return stretch_keys > 0 ? (keys + stretch_keys - 1) / stretch_keys : 1;
  }
  KeyRange keys_of(std::int64_t stretch) const {
    if (stretch_keys == 0) return {0, keys};
    return {stretch * stretch_keys, std::min(keys, (stretch + 1) * stretch_keys)};
  }
  // Of each stretch: sums of values [rows, c], then the base and the sum of weights of each row.
  std::int64_t partial_floats() const {
    return stretch_keys > 0 ? stretches() * call.q.dim(1) * (call.v.dim(3) + 2) : 0;
  }
  // Memory for a block of keys, and for one of values, where they are expanded; else 0.
  std::int64_t expanded_bytes() const {
    return key_scales.defined() ? block_bytes(call.q.dim(3)) : 0;
  }

 private:
  HeadRows rows_of(const Tensor& all, const Tensor& scales, std::int64_t batch,
                   std::int64_t group) const {
    if (pages == nullptr) return {all, batch, group};
    HeadRows rows(all, pages, group, type_of(call.q.dtype()));
    if (scales.defined()) {
      rows.scales = scales.data<float>() + group * scales.stride(2);
      rows.scale_page_stride = scales.stride(0);
    }
    return rows;
  }
};

// Where the log-sum-exp of a head's queries is written, from row `begin` on; null: nowhere.
inline float* lse_of(const AttentionForward& call, std::int64_t batch, std::int64_t head,
                     std::int64_t begin) {
  if (!call.lse.defined()) return nullptr;
  return call.lse.data<float>() + batch * call.lse.stride(0) + head * call.lse.stride(1) + begin;
}

// What a part has computed of rows of a stretch of keys.
struct PartialRows {
  float* out;    // [rows, c], rows one after another
  float* bases;  // [rows]
  float* sums;   // [rows]
};
inline PartialRows partial_rows(const ForwardWork& work, std::int64_t stretch, std::int64_t row) {
  const std::int64_t rows = work.call.q.dim(1);
  const std::int64_t width = work.call.v.dim(3);
  float* of_stretch = work.partial + stretch * rows * (width + 2);
  return {of_stretch + row * width, of_stretch + rows * width + row,
          of_stretch + rows * (width + 1) + row};
}

// Independent parts of a forward call, for threads. With stretches of keys, `merge` of each row
// follows them.
struct ForwardParts {
  std::int64_t count = 0;
  std::function<void(std::int64_t part)> run;
  std::function<void(std::int64_t row)> merge;
};
// `Forward` is made from a context and a work, which must outlive the parts.
template <typename Forward>
ForwardParts parts_of(CpuContext& context, const ForwardWork& work) {
  const auto forward = std::make_shared<const Forward>(context, work);
  return {forward->parts(), [forward](std::int64_t part) { (*forward)(part); }, {}};
}

// How a running softmax writes its weights: e^(score - base), or 2^(score log2(e) - base).
enum class SoftmaxBase : std::uint8_t { kE, kTwo };
// Merges the stretches of a row, and writes it and its log-sum-exp (of queries [1, rows, 1, d]).
void merge_stretches(const CpuContext& context, const ForwardWork& work, SoftmaxBase of,
                     std::int64_t row);

// Which keys each query of one sample sees: numbers low .. high - 1, of the same segment; and which
// tiles are computed.
class Sight {
 public:
  // Arrays of `queries` and `keys` entries are in `memory`, which has bytes() bytes.
  static std::int64_t bytes(std::int64_t queries, std::int64_t keys);
  Sight(const AttentionMask& mask, std::int64_t block_rows, std::int64_t batch,
        std::int64_t queries, std::int64_t keys, std::byte* memory);

  // Keys of the tiles of rows [begin, end). With a running softmax, the keys that any of the rows
  // may see; in the triangle form, all up to the end of the last row's block.
  KeyRange range(std::int64_t begin, std::int64_t end) const;
  // Whether the tile of `queries` rows and `columns` keys is computed.
  bool computed(std::int64_t query, std::int64_t queries, std::int64_t key,
                std::int64_t columns) const;
  // True if the tile has an invisible pair (columns after the last key count as invisible).
  bool masked(std::int64_t query, std::int64_t queries, std::int64_t key,
              std::int64_t columns) const;
  // Calls visit(query, queries, key) for the computed tiles of rows [begin, end), of `rows` x
  // `columns`. In each stretch of keys (a multiple of `columns`), queries are visited in order.
  // `within`: only keys of this range, which begins at a tile.
  template <typename Visit>
  void for_tiles(std::int64_t begin, std::int64_t end, std::int64_t rows, std::int64_t columns,
                 Visit visit, std::int64_t stretch, const KeyRange& within) const {
    KeyRange seen = range(begin, end);
    seen = {std::max(seen.first, within.first), std::min(seen.last, within.last)};
    for (std::int64_t first = seen.first / stretch * stretch; first < seen.last; first += stretch) {
      const std::int64_t from = std::max(first, seen.first / columns * columns);
      const std::int64_t last = std::min(first + stretch, seen.last);
      for (std::int64_t query = begin; query < end; query += rows) {
        const std::int64_t queries = std::min(rows, end - query);
        for (std::int64_t key = from; key < last; key += columns) {
          if (computed(query, queries, key, columns)) visit(query, queries, key);
        }
      }
    }
  }
  // The same of all keys, with stretches of one block of them.
  template <typename Visit>
  void for_tiles(std::int64_t begin, std::int64_t end, std::int64_t rows, std::int64_t columns,
                 Visit visit) const {
    for_tiles(begin, end, rows, columns, visit, columns, {0, keys_});
  }

  std::int64_t keys() const { return keys_; }  // without keys after the sample's length
  const std::int64_t* low() const { return low_; }
  const std::int64_t* high() const { return high_; }
  // Positions of queries relative to the first key, for slopes.
  const std::int64_t* positions() const { return positions_; }
  // For dropout: the position of a query, and that of key 0.
  std::int64_t position(std::int64_t query) const { return positions_[query] + first_position_; }
  std::int64_t first_position() const { return first_position_; }
  const std::int32_t* query_segments() const { return query_segments_; }
  const std::int32_t* key_segments() const { return key_segments_; }  // padded to whole blocks

 private:
  // Bounds of kSpanRows queries, so that a tile is judged without reading each of its rows.
  static constexpr std::int64_t kSpanRows = 64;
  struct Span {
    std::int64_t first;  // the lowest low and the highest high of those that see a key
    std::int64_t last;
    std::int64_t low;  // the highest low and the lowest high of all
    std::int64_t high;
  };
  // The span of rows [begin, end), from stored spans for whole ones if `by_spans`.
  Span span(std::int64_t begin, std::int64_t end, bool by_spans) const;

  std::int64_t keys_;
  std::int64_t queries_;
  std::int64_t block_rows_;
  std::int64_t* low_;
  std::int64_t* high_;
  std::int64_t* positions_;
  Span* spans_;
  std::int64_t first_position_ = 0;
  const std::int32_t* query_segments_ = nullptr;
  std::int32_t* key_segments_ = nullptr;
};

// Arguments of one tile of scores.
inline ScoreArguments scores_of(const Sight& sight, std::int64_t query, std::int64_t queries,
                                std::int64_t key, float* scores, float scale, float slope,
                                std::int64_t columns = kKeyBlock) {
  return {.scores = scores,
          .stride = columns,
          .rows = static_cast<int>(queries),
          .columns = static_cast<int>(columns),
          .first_key = key,
          .low = sight.low() + query,
          .high = sight.high() + query,
          .query_segments =
              sight.query_segments() != nullptr ? sight.query_segments() + query : nullptr,
          .key_segments = sight.key_segments() != nullptr ? sight.key_segments() + key : nullptr,
          .masked = sight.masked(query, queries, key, columns),
          .scale = scale,
          .slope = slope,
          .positions = sight.positions() + query};
}

// Queries of one part of forward. Tiles of k and v are converted once for all of them.
inline constexpr std::int64_t kQueryPart = 256;

// Divides a thread's scratch memory into aligned pieces.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : next_(memory) {}
  float* floats(std::int64_t n) {
    std::byte* piece = next_;
    next_ += padded(n * 4, 64);
    return reinterpret_cast<float*>(piece);
  }
  std::byte* bytes(std::int64_t n) {
    std::byte* piece = next_;
    next_ += padded(n, 64);
    return piece;
  }

 private:
  std::byte* next_;
};

// Rows [begin, begin + rows) of a head as fp32 [rows, stride]; rows from `valid` on and columns
// from d on are 0.
void load_rows(const CpuContext& context, const HeadRows& head, std::int64_t begin,
               std::int64_t rows, std::int64_t valid, std::int64_t d, float* to,
               std::int64_t stride);
// The same, transposed: fp32 [d, rows].
void load_columns(const CpuContext& context, const HeadRows& head, std::int64_t begin,
                  std::int64_t rows, std::int64_t valid, std::int64_t d, float* to);

// attention_fp32.cpp: any type, products in fp32.
ForwardParts forward_parts_fp32(CpuContext& context, const ForwardWork& work);
void attention_backward_fp32(CpuContext& context, const AttentionBackward& call);

// attention_dot.cpp: bf16 with an even number of channels.
ForwardParts forward_parts_dot(CpuContext& context, const ForwardWork& work);
void attention_backward_dot(CpuContext& context, const AttentionBackward& call);

// attention_amx.cpp: the same through tile products.
ForwardParts forward_parts_amx(CpuContext& context, const ForwardWork& work);
void attention_backward_amx(CpuContext& context, const AttentionBackward& call);

}  // namespace piton::cpu
