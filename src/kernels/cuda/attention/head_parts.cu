// Heads with a part that all have in common, and its gradients.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

// A row is a head of a token.
template <typename T>
struct Joined {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const T* own;
  const T* shared;
  std::int64_t y_row, y_head, own_row, own_head, shared_row;
  std::int64_t own_channels;
  std::int64_t used_channels;
  Division heads;

  template <int kCount>
  __device__ void run(std::int64_t head_row, std::int64_t channel) const {
    const auto index = static_cast<std::uint32_t>(head_row);
    const std::int64_t row = heads.quotient(index);
    const std::int64_t head = heads.rest(index, static_cast<std::uint32_t>(row));
    Numbers<T, kCount> part{};
    if (channel < own_channels) {
      part = load<kCount>(own + row * own_row + head * own_head + channel);
    } else if (channel < used_channels) {
      part = load<kCount>(shared + row * shared_row + channel - own_channels);
    }
    store(y + row * y_row + head * y_head + channel, part);
  }
};

template <typename T>
struct OwnPart {
  static constexpr int kVector = kVectorOf<T>;
  T* own;
  const T* y;
  std::int64_t own_row, own_head, y_row, y_head;
  Division heads;

  template <int kCount>
  __device__ void run(std::int64_t head_row, std::int64_t channel) const {
    const auto index = static_cast<std::uint32_t>(head_row);
    const std::int64_t row = heads.quotient(index);
    const std::int64_t head = heads.rest(index, static_cast<std::uint32_t>(row));
    store(own + row * own_row + head * own_head + channel,
          load<kCount>(y + row * y_row + head * y_head + channel));
  }
};

// A row is a token.
template <typename T>
struct SumOfHeads {
  static constexpr int kVector = kVectorOf<T>;
  T* shared;
  const T* y;  // its first channel that is shared
  std::int64_t shared_row, y_row, y_head;
  std::int64_t heads;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t channel) const {
    const T* from = y + row * y_row + channel;
    auto sum = load_wide<kCount>(from);
    for (std::int64_t head = 1; head < heads; ++head) {
      const auto term = load_wide<kCount>(from + head * y_head);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.at[i] += term.at[i];
    }
    store_rounded(shared + row * shared_row + channel, sum);
  }
};

// Whether each part of a head begins at a vector.
bool parts_fit(int vector, const Tensor& y, const Tensor& own, const Tensor& shared) {
  const std::int64_t r = shared.defined() ? shared.dim(1) : 0;
  return own.dim(2) % vector == 0 && (own.dim(2) + r) % vector == 0 &&
         vectors_fit(vector, {y, own, shared});
}

std::int64_t head_rows(const Tensor& y) {
  const std::int64_t rows = y.dim(0) * y.dim(1);
  PITON_ASSERT(rows <= Division::kLargest, "cuda: parts of {} heads", rows);
  return rows;
}

}  // namespace

void execute(const JoinHeads& call, const CallContext& context) {
  const std::int64_t rows = head_rows(call.y);
  if (rows == 0) return;
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    using Body = Joined<T>;
    const bool any = call.shared.defined();
    launch_rows("launch of join heads",
                {.rows = rows,
                 .columns = call.y.dim(2),
                 .vectors = parts_fit(Body::kVector, call.y, call.own, call.shared)},
                Body{.y = pointer<T>(call.y),
                     .own = pointer<const T>(call.own),
                     .shared = pointer<const T>(call.shared),
                     .y_row = call.y.stride(0),
                     .y_head = call.y.stride(1),
                     .own_row = call.own.stride(0),
                     .own_head = call.own.stride(1),
                     .shared_row = any ? call.shared.stride(0) : 0,
                     .own_channels = call.own.dim(2),
                     .used_channels = call.own.dim(2) + (any ? call.shared.dim(1) : 0),
                     .heads = Division(call.y.dim(1))},
                context.stream);
  });
}

void execute(const SplitHeads& call, const CallContext& context) {
  const std::int64_t rows = head_rows(call.y);
  if (rows == 0) return;
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    const bool fit = parts_fit(kVectorOf<T>, call.y, call.own, call.shared);
    launch_rows("launch of split heads", {.rows = rows, .columns = call.own.dim(2), .vectors = fit},
                OwnPart<T>{.own = pointer<T>(call.own),
                           .y = pointer<const T>(call.y),
                           .own_row = call.own.stride(0),
                           .own_head = call.own.stride(1),
                           .y_row = call.y.stride(0),
                           .y_head = call.y.stride(1),
                           .heads = Division(call.y.dim(1))},
                context.stream);
    if (!call.shared.defined()) return;
    launch_rows("launch of split heads",
                {.rows = call.y.dim(0), .columns = call.shared.dim(1), .vectors = fit},
                SumOfHeads<T>{.shared = pointer<T>(call.shared),
                              .y = pointer<const T>(call.y) + call.own.dim(2),
                              .shared_row = call.shared.stride(0),
                              .y_row = call.y.stride(0),
                              .y_head = call.y.stride(1),
                              .heads = call.y.dim(1)},
                context.stream);
  });
}

}  // namespace piton::cuda
