// Visibility of rows and tiles, and loading of tiles.
#include "kernels/cpu/attention/attention_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>

#include "kernels/cpu/vector/codes.h"

namespace piton::cpu {

namespace {

// Finds keys of a sample by their positions.
class KeyNumbers {
 public:
  // Of `keys` keys, the first `valid` ones exist.
  KeyNumbers(const AttentionMask& mask, std::int64_t batch, std::int64_t keys, std::int64_t valid)
      : keys_(keys) {
    if (!mask.key_positions.defined() || keys == 0) return;
    const auto* all = mask.key_positions.data<std::int32_t>() + batch * keys;
    positions_ = {all, static_cast<std::size_t>(valid)};
  }
  std::int64_t position(std::int64_t key) const {
    if (positions_.empty()) return 0;
    return positions_[static_cast<std::size_t>(key)];
  }
  std::int64_t last_position() const { return positions_.empty() ? keys_ : positions_.back(); }
  // The first key at `position` or after it.
  std::int64_t from(std::int64_t position) const {
    if (positions_.empty()) return position;
    return std::lower_bound(positions_.begin(), positions_.end(), position) - positions_.begin();
  }

 private:
  std::int64_t keys_;
  std::span<const std::int32_t> positions_;
};

}  // namespace

std::int64_t Sight::bytes(std::int64_t queries, std::int64_t keys) {
  const auto spans = padded(queries, kSpanRows) / kSpanRows * std::int64_t{sizeof(Span)};
  return padded(3 * queries * 8 + spans + padded(keys, kKeyBlock) * 4, 64);
}

Sight::Sight(const AttentionMask& mask, std::int64_t block_rows, std::int64_t batch,
             std::int64_t queries, std::int64_t keys, std::byte* memory)
    : keys_(keys),
      queries_(queries),
      block_rows_(block_rows),
      low_(reinterpret_cast<std::int64_t*>(memory)),
      high_(low_ + queries),
      positions_(high_ + queries),
      spans_(reinterpret_cast<Span*>(positions_ + queries)) {
  if (mask.key_lengths.defined()) {
    keys_ = std::clamp<std::int64_t>(mask.key_lengths.data<std::int32_t>()[batch], 0, keys);
  }
  const std::int32_t* given = mask.query_positions.defined()
                                  ? mask.query_positions.data<std::int32_t>() + batch * queries
                                  : nullptr;
  const std::int32_t* reach = mask.query_reach.defined()
                                  ? mask.query_reach.data<std::int32_t>() + batch * queries
                                  : nullptr;
  const KeyNumbers numbers(mask, batch, keys, keys_);
  first_position_ = numbers.position(0);
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t position = given != nullptr ? given[i] : mask.query_begin + i;
    std::int64_t low = 0;
    std::int64_t high = keys_;
    const std::int64_t last = reach != nullptr ? std::max<std::int64_t>(position, reach[i])
                                               : position;  // of a causal mask
    if (mask.causal) high = std::min(high, numbers.from(last + 1));
    // Bounds may be as large as their type: each is clamped to what reaches every key before it is
    // added.
    if (mask.window_before)
      low = std::max(low, numbers.from(position - std::min(*mask.window_before, position)));
    if (mask.window_after) {
      const std::int64_t widest = numbers.last_position() + 1 + std::abs(position);
      high = std::min(high, numbers.from(position + std::min(*mask.window_after, widest) + 1));
    }
    const bool sees = low < high;
    low_[i] = sees ? low : 0;
    high_[i] = sees ? high : 0;
    positions_[i] = position - first_position_;
  }
  const std::int64_t spans = padded(queries, kSpanRows) / kSpanRows;
  for (std::int64_t i = 0; i < spans; ++i) {
    const std::int64_t begin = i * kSpanRows;
    spans_[i] = span(begin, std::min(begin + kSpanRows, queries), false);
  }
  if (mask.query_segments.defined()) {
    query_segments_ = mask.query_segments.data<std::int32_t>() + batch * queries;
    key_segments_ = reinterpret_cast<std::int32_t*>(spans_ + spans);
    const std::int32_t* from = mask.key_segments.data<std::int32_t>() + batch * keys;
    std::copy_n(from, keys, key_segments_);
    std::fill_n(key_segments_ + keys, padded(keys, kKeyBlock) - keys, 0);
  }
}

Sight::Span Sight::span(std::int64_t begin, std::int64_t end, bool by_spans) const {
  Span all{keys_, 0, 0, keys_};
  const auto add = [&](const Span& one) {
    all.first = std::min(all.first, one.first);
    all.last = std::max(all.last, one.last);
    all.low = std::max(all.low, one.low);
    all.high = std::min(all.high, one.high);
  };
  if (by_spans && begin % kSpanRows == 0 && (end % kSpanRows == 0 || end == queries_)) {
    for (std::int64_t row = begin; row < end; row += kSpanRows) add(spans_[row / kSpanRows]);
    return all;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const bool sees = low_[i] < high_[i];
    add({sees ? low_[i] : keys_, sees ? high_[i] : 0, low_[i], high_[i]});
  }
  return all;
}

KeyRange Sight::range(std::int64_t begin, std::int64_t end) const {
  if (block_rows_ > 0) return {0, std::min(keys_, padded(end, block_rows_))};
  const Span all = span(begin, end, true);
  if (all.first >= all.last) return {0, 0};
  return {all.first, all.last};
}

bool Sight::computed(std::int64_t query, std::int64_t queries, std::int64_t key,
                     std::int64_t columns) const {
  const KeyRange seen = range(query, query + queries);
  const std::int64_t last = std::min(key + columns, keys_);
  if (seen.first >= last || seen.last <= key) return false;
  if (query_segments_ == nullptr || block_rows_ > 0) return true;
  // Segments in disjoint ranges of numbers have none in common.
  const auto [low_q, high_q] =
      std::minmax_element(query_segments_ + query, query_segments_ + query + queries);
  const auto [low_k, high_k] = std::minmax_element(key_segments_ + key, key_segments_ + last);
  return *low_q <= *high_k && *low_k <= *high_q;
}

bool Sight::masked(std::int64_t query, std::int64_t queries, std::int64_t key,
                   std::int64_t columns) const {
  if (query_segments_ != nullptr) return true;
  const Span all = span(query, query + queries, true);
  return all.low > key || all.high < key + columns;
}

HeadRows expanded_block(const CpuContext& context, const HeadRows& head, std::int64_t begin,
                        std::int64_t rows, std::byte* memory) {
  if (head.scales == nullptr) return head;
  const std::int64_t d = head.channels;
  const auto codes_of = [&](std::int64_t first, std::int64_t columns, const float* scales) {
    return CodedRows{.codes = reinterpret_cast<const std::uint8_t*>(head.row(begin)) + first,
                     .stride = head.stride,
                     .columns = columns,
                     .group = columns,
                     .groups = 1,
                     .scales = scales + head.pages[begin / kCachePage] * head.scale_page_stride};
  };
  const std::int64_t first = head.end_scales != nullptr ? head.latents : d;
  const CodedRows codes = codes_of(0, first, head.scales);
  const CodedRows end = first < d ? codes_of(first, d - first, head.end_scales) : CodedRows{};
  const auto expand = [&](float* to, std::int64_t row) {
    context.codes.expand(to, codes, row, 0, first);
    if (first < d) context.codes.expand(to + first, end, row, 0, d - first);
  };
  HeadRows block = head;
  block.data = memory;
  block.stride = d;
  block.width = head.type == Type::kF32 ? 4 : 2;
  block.pages = nullptr;
  block.first = begin;
  block.scales = nullptr;
  // Of 16 bits, rows fill one half of the memory: a row of fp32 is in the other.
  auto* wide = reinterpret_cast<float*>(memory + kKeyBlock * d * 2);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::byte* to = block.row(begin + r);
    if (head.type == Type::kF32) {
      expand(reinterpret_cast<float*>(to), r);
    } else {
      expand(wide, r);
      context.vector.convert(to, head.type, wide, Type::kF32, d);
    }
  }
  return block;
}

void merge_stretches(const CpuContext& context, const ForwardWork& work, SoftmaxBase of,
                     std::int64_t row) {
  constexpr float kLn2 = 0.69314718F;
  const float lowest = -std::numeric_limits<float>::infinity();
  const bool twos = of == SoftmaxBase::kTwo;
  const std::int64_t width = work.call.v.dim(3);
  float base = lowest;
  for (std::int64_t i = 0; i < work.stretches(); ++i)
    base = std::max(base, *partial_rows(work, i, row).bases);
  // Of the first stretch on, in order, in its memory.
  const PartialRows all = partial_rows(work, 0, row);
  float sum = 0;
  for (std::int64_t i = 0; i < work.stretches(); ++i) {
    const PartialRows one = partial_rows(work, i, row);
    const float above = *one.bases - base;
    float factor = 0;  // of a stretch of which the row sees no key
    if (*one.bases != lowest) factor = twos ? std::exp2(above) : std::exp(above);
    sum += factor * *one.sums;
    context.vector.scale(one.out, one.out, Type::kF32, width, factor);
    if (i > 0) context.vector.accumulate(all.out, one.out, Type::kF32, width);
  }
  const bool sees = base != lowest || sum != 0;
  context.vector.scale(all.out, all.out, Type::kF32, width, sees ? 1.0F / sum : 0.0F);
  const HeadRows to(work.call.out, 0, 0);
  context.vector.convert(to.row(row), to.type, all.out, Type::kF32, width);
  if (float* lse = lse_of(work.call, 0, 0, row))
    *lse = sees ? (twos ? kLn2 * base : base) + std::log(sum) : lowest;
}

void load_rows(const CpuContext& context, const HeadRows& head, std::int64_t begin,
               std::int64_t rows, std::int64_t valid, std::int64_t d, float* to,
               std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = to + r * stride;
    if (begin + r >= valid) {
      std::fill_n(row, stride, 0.0F);
      continue;
    }
    context.vector.convert(row, Type::kF32, head.row(begin + r), head.type, d);
    std::fill_n(row + d, stride - d, 0.0F);
  }
}

void load_columns(const CpuContext& context, const HeadRows& head, std::int64_t begin,
                  std::int64_t rows, std::int64_t valid, std::int64_t d, float* to) {
  const std::int64_t real = std::clamp<std::int64_t>(valid - begin, 0, rows);
  if (real < rows) std::fill_n(to, d * rows, 0.0F);
  if (real == 0) return;
  const Matrix from{head.row(begin), head.type, head.stride};
  context.vector.transpose(to, rows, from, static_cast<int>(real), static_cast<int>(d));
}

}  // namespace piton::cpu
