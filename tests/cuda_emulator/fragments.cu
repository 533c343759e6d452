#include "cuda_emulator/fragments.h"
#include "cuda_emulator/own_stream.h"
#include "kernels/cuda/attention/tensor_cores.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::emulator {
namespace {

using cuda::load_matrices;

constexpr int kPitch = 24;  // of rows in shared memory: 48 bytes

struct Multiply {
  Reading reading;
  const __nv_bfloat16* a;
  const __nv_bfloat16* b;
  float* d;
};

__device__ std::uint32_t pair_of(__nv_bfloat16 low, __nv_bfloat16 high) {
  return cuda::rounded_pair<__nv_bfloat16>(__bfloat162float(low), __bfloat162float(high));
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
__device__ void read_elements(const Multiply& call, std::uint32_t (&left)[4],
                              std::uint32_t (&right)[4]) {
  const int group = static_cast<int>(threadIdx.x >> 2);
  const int in_group = static_cast<int>(threadIdx.x % 4);
  __nv_bfloat16 a[8];
  __nv_bfloat16 b[4];
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    a[i] = call.a[row * 16 + column];
  }
  for (int i = 0; i < 4; ++i) {
    const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    b[i] = call.b[row * 8 + group];
  }
  for (int i = 0; i < 4; ++i) left[i] = pair_of(a[2 * i], a[2 * i + 1]);
  for (int i = 0; i < 2; ++i) right[i] = pair_of(b[2 * i], b[2 * i + 1]);
}

// Rows of a, and of b or of b transposed, in shared memory.
__device__ void read_matrices(const Multiply& call, std::uint32_t (&left)[4],
                              std::uint32_t (&right)[4]) {
  auto* a = cuda::shared_array<__nv_bfloat16>();
  auto* b = a + 16 * kPitch;
  const int lane = static_cast<int>(threadIdx.x);
  const bool whole = call.reading == Reading::kByTransposed;
  for (int i = lane; i < 256; i += 32) a[i / 16 * kPitch + i % 16] = call.a[i];
  for (int i = lane; i < 128; i += 32)
    b[whole ? i / 8 * kPitch + i % 8 : i % 8 * kPitch + i / 8] = call.b[i];
  __syncthreads();
  load_matrices<false>(left, a + lane % 16 * kPitch + lane / 16 * 8);
  if (whole) {  // the third and fourth matrix are not used
    load_matrices<true>(right, b + lane % 16 * kPitch);
  } else {
    const int aside = call.reading == Reading::kByMatricesAside ? 1 : 0;
    load_matrices<false>(right, b + lane % 8 * kPitch + lane / 8 % 2 * 8 + aside);
  }
}

__global__ void multiply_kernel(Multiply call) {
  std::uint32_t left[4];
  std::uint32_t right[4];
  if (call.reading == Reading::kByElement) {
    read_elements(call, left, right);
  } else {
    read_matrices(call, left, right);
  }
  float sums[4] = {};
  cuda::multiply_fragments<__nv_bfloat16>(sums, left, right);
  const int group = static_cast<int>(threadIdx.x >> 2);
  const int in_group = static_cast<int>(threadIdx.x % 4);
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? group : group + 8;
    call.d[row * 8 + in_group * 2 + (i & 1)] = sums[i];
  }
}

}  // namespace

void multiply(Reading reading, const __nv_bfloat16* a, const __nv_bfloat16* b, float* d) {
  const OwnStream stream;
  cuda::launch("launch of a product", multiply_kernel,
               {.blocks = {1, 1, 1}, .threads = 32, .shared_bytes = 32 * kPitch * 2},
               Multiply{reading, a, b, d}, stream.handle());
}

}  // namespace piton::emulator
