// In place of src/kernels/cuda/attention/warpgroup/warpgroup_products.cuh, whose comments say who
// holds what. A product is computed at once: missing waits are not found. What it reads is checked
// as all reads of kernels are.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda_emulator/tensor_cores.h"

namespace piton::cuda {

inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupRows = 64;
inline constexpr int kTileNumbers = 64;

struct TileOperand {
  const unsigned char* address;

  TileOperand moved(int bytes) const { return {address + bytes}; }

  // Number `bytes` / 2 behind it, in the place that it has.
  std::uint16_t number(int bytes) const {
    auto place = reinterpret_cast<std::uintptr_t>(address) + static_cast<std::uintptr_t>(bytes);
    place ^= (place / 128 % 8) * 16;
    return *reinterpret_cast<const std::uint16_t*>(place);
  }
};

template <typename T>
TileOperand tile_operand(const T* tile) {
  if (reinterpret_cast<std::uintptr_t>(tile) % 1024 != 0)
    emulator::fail("a tile that is not aligned to 1024 bytes");
  return {reinterpret_cast<const unsigned char*>(tile)};
}

inline TileOperand same_in_warp(TileOperand operand) { return operand; }

inline void publish_to_products() {}
inline void begin_products() {}
inline void end_products() {}
template <int kLeft>
void wait_for_products() {}
template <int kBlocks>
void receive(float (&)[kBlocks][4]) {}

template <typename T>
void multiply_by_rows_of_tile(float (&sums)[8][4], TileOperand left, TileOperand right, bool adds) {
  std::uint16_t own[2][16];
  std::uint16_t columns[16][16];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = static_cast<int>(threadIdx.x % kGroupThreads) / 32 * 16;
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 2; ++i) own[i][k] = left.number((first + lane / 4 + 8 * i) * 128 + 2 * k);
    for (int c = 0; c < 16; ++c)
      columns[c][k] = right.number((c / 2 * 8 + lane % 4 * 2 + c % 2) * 128 + 2 * k);
  }
  emulator::multiply_rows(std::is_same_v<T, __half>, sums, own, columns, adds);
}

template <typename T>
void add_product_with_tile(float (&sums)[8][4], const std::uint32_t (&left)[4], TileOperand right) {
  std::uint32_t lanes[32][4];
  emulator::gather(0xFFFFFFFFU, &left, sizeof left, lanes);
  std::uint16_t own[2][16];
  std::uint16_t columns[16][16];
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t pair = lanes[lane / 4 * 4 + k % 8 / 2][i + k / 8 * 2];
      own[i][k] = static_cast<std::uint16_t>(k % 2 == 0 ? pair : pair >> 16);
    }
    for (int c = 0; c < 16; ++c)
      columns[c][k] = right.number(k * 128 + 2 * (c / 2 * 8 + lane % 4 * 2 + c % 2));
  }
  emulator::multiply_rows(std::is_same_v<T, __half>, sums, own, columns, true);
}

}  // namespace piton::cuda
