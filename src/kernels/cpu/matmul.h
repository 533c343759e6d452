// Matrix products of one thread, through a library (oneDNN).
//
//   c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ c)       sums in fp32
// a and c have contiguous rows, or a is handed over as its transpose; b is plain, transposed, or in
// the library's own layout. Whatever is made for a shape is made once and kept in this object.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

enum class Form : std::uint8_t {
  kPlain,       // row r is at r * stride
  kTransposed,  // column c is at c * stride
  kPacked,      // b only: opaque, made by pack()
};

struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Type in = Type::kF32;   // of a and b: kF32 or kBF16
  Type out = Type::kF32;  // of c
  Form a_form = Form::kPlain;
  Form b_form = Form::kPlain;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
  bool bias = false;
  Type bias_type = Type::kF32;
  bool accumulate = false;  // c += instead of c =

  auto operator<=>(const ProductShape&) const = default;
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  std::string version() const;  // "oneDNN 2.6.3"

  // Bytes that run() wants as `scratch`, 64-byte aligned, one piece a thread. May be called from
  // any thread; makes what the shape needs.
  std::int64_t scratch_bytes(const ProductShape& shape);

  // Runs on the calling thread alone, which may be any.
  void run(const ProductShape& shape, const void* a, const void* b, const void* bias, void* c,
           std::byte* scratch);

  // The library's layout of b[k, n], the same for any m. `b` is as b_form and b_stride say.
  std::int64_t packed_bytes(std::int64_t n, std::int64_t k, Type type);
  void pack(std::int64_t n, std::int64_t k, Type type, Form b_form, std::int64_t b_stride,
            const void* b, void* packed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton::cpu
