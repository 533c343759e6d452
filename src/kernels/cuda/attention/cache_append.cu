// Writing to a cache in pages: numbers as they are, or as codes of 8 bits. Queries and keys are
// rotated on the way, so that a pass of decoding has one launch for all of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cached_attention.h"
#include "kernels/cuda/attention/head_matrix.cuh"
#include "kernels/cuda/attention/rotary.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

// Of queries, keys or values [n, heads, width].
template <typename T>
struct HeadRows {
  T* data;
  std::int64_t row_stride;
  std::int64_t head_stride;
  std::uint32_t heads;
  std::int64_t width;

  __device__ T* row(std::int64_t row, std::int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
};

template <typename T>
HeadRows<T> head_rows(const Tensor& x) {
  if (!x.defined()) return {};
  return {pointer<T>(x), x.stride(0), x.stride(1), static_cast<std::uint32_t>(x.dim(1)), x.dim(2)};
}

// The call. Its heads are those of q, then of k, then of v, of each row.
template <typename T>
struct NewHeads {
  HeadRows<T> q;
  HeadRows<const T> k;
  HeadRows<const T> v;
  RowAngles<T> angles;  // half: 0 without a rotation
  const std::int32_t* slots;
  Division heads;  // of a row
  std::int64_t first_channel;
};

template <typename T>
NewHeads<T> new_heads(const CacheAppend& call) {
  const std::int64_t queries = call.rotates() ? call.q.dim(1) : 0;
  const std::int64_t heads = queries + 2 * call.k.dim(1);
  PITON_ASSERT(call.k.dim(0) * heads <= Division::kLargest, "cuda: cache append of {} rows",
               call.k.dim(0));
  return {.q = head_rows<T>(call.q),
          .k = head_rows<const T>(call.k),
          .v = head_rows<const T>(call.v),
          .angles = {.positions = pointer<const std::int32_t>(call.positions),
                     .cosine = pointer<const Wide<T>>(call.cosine),
                     .sine = pointer<const Wide<T>>(call.sine),
                     .half = call.rotated_channels() / 2,
                     .inverse = false},
          .slots = pointer<const std::int32_t>(call.slots),
          .heads = Division(heads),
          .first_channel = call.first_channel};
}

// One head of a row of the call.
struct NewHead {
  enum class Part : std::uint8_t { kQuery, kKey, kValue };
  std::uint32_t row;
  std::uint32_t head;  // of its part
  Part part;

  template <typename T>
  __device__ NewHead(const NewHeads<T>& all, std::int64_t head_row) {
    const auto index = static_cast<std::uint32_t>(head_row);
    row = all.heads.quotient(index);
    head = all.heads.rest(index, row);
    part = Part::kQuery;
    if (head < all.q.heads) return;
    head -= all.q.heads;
    part = Part::kKey;
    if (head < all.k.heads) return;
    head -= all.k.heads;
    part = Part::kValue;
  }
};

// A row is a head of a row of the call, a column a pair of channels that are rotated, or two that
// are not.
template <typename T, bool kHalves>
struct Append {
  static constexpr int kVector = kVectorOf<T, Wide<T>>;
  NewHeads<T> all;
  HeadMatrix<T> keys;  // "samples" are pages
  HeadMatrix<T> values;

  template <int kCount>
  __device__ void run(std::int64_t head_row, std::int64_t pair) const {
    const NewHead one(all, head_row);
    const bool is_value = one.part == NewHead::Part::kValue;
    const std::int64_t half = is_value ? 0 : all.angles.half;
    T* to = nullptr;
    const T* from = nullptr;
    if (one.part == NewHead::Part::kQuery) {
      from = to = all.q.row(one.row, one.head);
    } else {
      const std::int64_t slot = all.slots[one.row];
      from = (is_value ? all.v : all.k).row(one.row, one.head);
      to = (is_value ? values : keys).row(slot / kCachePage, slot % kCachePage, one.head);
    }
    if (pair < half) {
      rotate_pairs<kHalves, kCount>(all.angles, one.row, pair, from + all.first_channel,
                                    to + all.first_channel);
    } else if (from != to) {
      copy_channels<kCount>(2 * (pair - half), {2 * half, is_value ? all.v.width : all.k.width},
                            from, to);
    }
  }

 private:
  struct Channels {
    std::int64_t rotated;
    std::int64_t all;
  };
  // Channels `at` .. at + 2 kCount - 1 of those around the rotated ones; keys and values may have
  // fewer than the others (of latents).
  template <int kCount>
  __device__ void copy_channels(std::int64_t at, const Channels& channels, const T* from,
                                T* to) const {
    const std::int64_t rotated = channels.rotated;
    if constexpr (kCount == 1) {
      for (std::int64_t i = at; i < at + 2 && i < channels.all - rotated; ++i) {
        const std::int64_t c = rotated > 0 && i >= all.first_channel ? i + rotated : i;
        to[c] = from[c];
      }
    } else {
      if (at >= channels.all - rotated) return;
      const std::int64_t c = rotated > 0 && at >= all.first_channel ? at + rotated : at;
      store(to + c, load<2 * kCount>(from + c));
    }
  }
};

template <typename T, bool kHalves>
void launch_append(const CacheAppend& call, cudaStream_t stream) {
  using Body = Append<T, kHalves>;
  constexpr int kWidth = 2 * Body::kVector;
  const Body body{
      .all = new_heads<T>(call),
      .keys = head_matrix<T>(call.keys),
      .values = head_matrix<T>(call.values),
  };
  const std::int64_t heads = (call.rotates() ? call.q.dim(1) : 0) + 2 * call.k.dim(1);
  // No vector is partly rotated, or partly of a head.
  const bool whole = body.all.angles.half % Body::kVector == 0 &&
                     call.first_channel % kWidth == 0 && call.k.dim(2) % kWidth == 0 &&
                     call.v.dim(2) % kWidth == 0;
  launch_rows(
      "launch of cache append",
      {.rows = call.k.dim(0) * heads,
       .columns = (std::max(call.k.dim(2), call.v.dim(2)) + 1) / 2,
       .vectors = whole && vectors_fit(kWidth, {call.q, call.k, call.v, call.keys, call.values}) &&
                  vectors_fit(Body::kVector, {call.cosine, call.sine})},
      body, stream);
}

// A cache of codes with its scales.
struct CodedPages {
  HeadMatrix<std::int8_t> codes;
  float* scales;
  std::int64_t scales_of_page;  // strides
  std::int64_t scales_of_head;
};

CodedPages coded_pages(const Tensor& cache, const Tensor& scales) {
  return {head_matrix<std::int8_t>(cache), pointer<float>(scales), scales.stride(0),
          scales.stride(2)};
}

template <typename T>
struct AppendCodes {
  NewHeads<T> all;
  CodedPages keys;
  CodedPages values;
  std::uint32_t count;  // heads of all rows
  float not_finite;     // the scale of a row with a value that is not finite: NaN
};

// A key or a value, and its rotated pairs: channels around them are as they are.
template <typename T>
struct NewRow {
  const T* x;
  std::int64_t width;
  std::int64_t half;
};

// use(channel, value) of the two channels of a pair of a row, rounded to T, if they are rotated.
template <bool kHalves, typename T, typename Use>
__device__ void with_pair(const NewHeads<T>& all, const NewHead& one, std::int64_t pair,
                          const NewRow<T>& row, Use use) {
  const T* x = row.x;
  const std::int64_t half = row.half;
  if (pair < half) {
    Numbers<Wide<T>, 1> c;
    Numbers<Wide<T>, 1> s;
    all.angles.load_pairs(one.row, pair, c, s);
    const std::int64_t first_at = all.first_channel + (kHalves ? pair : 2 * pair);
    const std::int64_t second_at = first_at + (kHalves ? half : 1);
    auto first = widen(x[first_at]);
    auto second = widen(x[second_at]);
    rotate_pair(first, second, c.at[0], s.at[0]);
    use(first_at, narrow<T>(first));
    use(second_at, narrow<T>(second));
    return;
  }
  const std::int64_t at = 2 * (pair - half);
  for (std::int64_t i = at; i < at + 2 && i < row.width - 2 * half; ++i) {
    const std::int64_t c = half > 0 && i >= all.first_channel ? i + 2 * half : i;
    use(c, x[c]);
  }
}

// A warp: a head of a row.
template <typename T, bool kHalves>
__global__ void __launch_bounds__(kThreads, kBlocks) append_codes(AppendCodes<T> call) {
  wait_for_previous();
  let_next_start();
  const std::uint32_t index = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (index >= call.count) return;  // the whole warp
  const NewHeads<T>& all = call.all;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const NewHead one(all, index);
  if (one.part == NewHead::Part::kQuery) {
    T* x = all.q.row(one.row, one.head) + all.first_channel;
    for (std::int64_t pair = lane; pair < all.angles.half; pair += kWarp)
      rotate_pairs<kHalves, 1>(all.angles, one.row, pair, x, x);
    return;
  }
  const bool is_value = one.part == NewHead::Part::kValue;
  const NewRow<T> row{.x = (is_value ? all.v : all.k).row(one.row, one.head),
                      .width = is_value ? all.v.width : all.k.width,
                      .half = is_value ? 0 : all.angles.half};
  const std::int64_t slot = all.slots[one.row];
  float largest = 0;
  float strange = 0;  // 1: a value is not finite
  for (std::int64_t pair = lane; 2 * pair < row.width; pair += kWarp) {
    with_pair<kHalves>(all, one, pair, row, [&](std::int64_t, T number) {
      const auto value = static_cast<float>(widen(number));
      largest = fmaxf(largest, fabsf(value));
      if (!isfinite(value)) strange = 1;
    });
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    strange = fmaxf(strange, __shfl_xor_sync(kAllLanes, strange, distance));
  }
  const float scale = strange > 0 ? call.not_finite : largest / 127.0F;
  const CodedPages& pages = is_value ? call.values : call.keys;
  std::int8_t* to = pages.codes.row(slot / kCachePage, slot % kCachePage, one.head);
  for (std::int64_t pair = lane; 2 * pair < row.width; pair += kWarp) {
    with_pair<kHalves>(all, one, pair, row, [&](std::int64_t c, T number) {
      float code = 0;
      if (scale > 0) {
        code = rintf(static_cast<float>(widen(number)) / scale);
        code = fmaxf(-127.0F, fminf(code, 127.0F));
      }
      to[c] = static_cast<std::int8_t>(code);
    });
  }
  if (lane == 0) {
    pages.scales[slot / kCachePage * pages.scales_of_page + slot % kCachePage +
                 one.head * pages.scales_of_head] = scale;
  }
}

template <typename T, bool kHalves>
void launch_append_codes(const CacheAppend& call, cudaStream_t stream) {
  const std::int64_t heads = (call.rotates() ? call.q.dim(1) : 0) + 2 * call.k.dim(1);
  const std::int64_t count = call.k.dim(0) * heads;
  launch("launch of cache append, codes", append_codes<T, kHalves>,
         {.blocks = {static_cast<unsigned>((count + kWarps - 1) / kWarps), 1, 1}, .early = true},
         AppendCodes<T>{.all = new_heads<T>(call),
                        .keys = coded_pages(call.keys, call.key_scales),
                        .values = coded_pages(call.values, call.value_scales),
                        .count = static_cast<std::uint32_t>(count),
                        .not_finite = std::numeric_limits<float>::quiet_NaN()},
         stream);
}

}  // namespace

void execute(const CacheAppend& call, const CallContext& context) {
  if (call.slots.elements() == 0) return;
  with_floating(call.k.dtype(), [&]<typename T>(std::type_identity<T>) {
    const auto launch_all = [&]<bool kHalves>(std::bool_constant<kHalves>) {
      if (call.key_scales.defined()) return launch_append_codes<T, kHalves>(call, context.stream);
      launch_append<T, kHalves>(call, context.stream);
    };
    if (call.convention == Rotary::Convention::kHalves) return launch_all(std::true_type{});
    launch_all(std::false_type{});
  });
}

}  // namespace piton::cuda
