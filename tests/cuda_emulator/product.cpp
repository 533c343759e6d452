// In place of kernels/cuda/product.cpp: products by plain loops, in double.
#include "kernels/cuda/product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/memory.h"
#include "tensor/rounded.h"

namespace piton::cuda {
namespace {

double value_at(const Tensor& tensor, std::int64_t offset) {
  switch (tensor.dtype()) {
    case DType::kF64:
      return tensor.data<double>()[offset];
    case DType::kF32:
      return tensor.data<float>()[offset];
    case DType::kBF16:
      return to_float(tensor.data<BFloat16>()[offset]);
    default:
      return to_float(tensor.data<Float16>()[offset]);
  }
}

void set_value(const Tensor& tensor, std::int64_t offset, double value) {
  switch (tensor.dtype()) {
    case DType::kF64:
      tensor.data<double>()[offset] = value;
      return;
    case DType::kF32:
      tensor.data<float>()[offset] = static_cast<float>(value);
      return;
    case DType::kBF16:
      tensor.data<BFloat16>()[offset] = rounded<BFloat16>(value);
      return;
    default:
      tensor.data<Float16>()[offset] = rounded<Float16>(value);
  }
}

double gelu_by_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// The numbers of a matrix, row by row, after it is transposed.
std::vector<double> numbers(const Tensor& matrix, bool transposed) {
  const std::int64_t rows = matrix.dim(transposed ? 1 : 0);
  const std::int64_t columns = matrix.dim(transposed ? 0 : 1);
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(rows * columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      all.push_back(value_at(
          matrix, transposed ? column * matrix.stride(0) + row : row * matrix.stride(0) + column));
    }
  }
  return all;
}

}  // namespace

bool activates_in_product(ActivationKind kind, const Tensor& y, const Tensor& preactivation) {
  const auto in_vectors = [](const Tensor& tensor) {
    return (reinterpret_cast<std::uintptr_t>(tensor.raw()) |
            static_cast<std::uintptr_t>(tensor.stride(0) * size_bytes(tensor.dtype()))) %
               16 ==
           0;
  };
  return kind == ActivationKind::kGeluTanh && size_bytes(y.dtype()) == 2 && in_vectors(y) &&
         (!preactivation.defined() || in_vectors(preactivation));
}

std::string float8_obstacle(Float8Recipe /*recipe*/, int /*device*/) { return {}; }

struct Products::State {};
Products::Products() = default;
Products::~Products() = default;

namespace {

void multiply_now(const Product& product) {
  const std::vector<double> left = numbers(product.left, product.left_transposed);
  const std::vector<double> right = numbers(product.right, !product.right_transposed);  // [n, k]
  const std::int64_t m = product.y.dim(0);
  const std::int64_t n = product.y.dim(1);
  const std::int64_t k = product.left.dim(product.left_transposed ? 0 : 1);
  PITON_ASSERT(m > 0 && n > 0 && k > 0, "cuda: a product of {} x {} x {}", m, n, k);
  PITON_ASSERT(product.left.dtype() == product.right.dtype() &&
                   (!product.bias.defined() || product.bias.dtype() == product.y.dtype()) &&
                   (!product.addend.defined() || product.addend.dtype() == product.y.dtype()),
               "cuda: dtypes of a product");
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += left[static_cast<std::size_t>(row * k + i)] *
               right[static_cast<std::size_t>(column * k + i)];
      }
      if (product.addend.defined())
        sum += value_at(product.addend, row * product.addend.stride(0) + column);
      if (product.bias.defined()) sum += value_at(product.bias, column);
      if (product.preactivation.defined()) {
        set_value(product.preactivation, row * product.preactivation.stride(0) + column, sum);
      }
      if (product.activates) sum = gelu_by_tanh(sum);
      set_value(product.y, row * product.y.stride(0) + column, sum);
    }
  }
  for (const Tensor& written : {product.y, product.preactivation}) {
    if (!written.defined()) continue;
    for (std::int64_t row = 0; row < m; ++row) {
      emulator::host_writes(written.raw() + row * written.stride(0) * size_bytes(written.dtype()),
                            static_cast<std::size_t>(n * size_bytes(written.dtype())));
    }
  }
}

// The same place in memory, or so many elements after it, which a graph does not keep from being
// used for something else.
Tensor borrowed(const Tensor& tensor, std::int64_t after = 0) {
  class Place final : public Storage {
   public:
    using Storage::Storage;
  };
  if (!tensor.defined()) return {};
  const std::int64_t row = tensor.ndim() == 1 ? tensor.dim(0) : tensor.stride(0);
  const Shape shape = tensor.ndim() == 1 ? Shape{1, tensor.dim(0)}
                                         : Shape{tensor.dim(0), std::max(row, tensor.dim(1))};
  const auto place =
      std::make_shared<Place>(tensor.raw() + after * size_bytes(tensor.dtype()),
                              shape.elements() * size_bytes(tensor.dtype()), tensor.place());
  const Tensor rows = Tensor(place, 0, tensor.dtype(), shape).slice(1, 0, tensor.dim(-1));
  return tensor.ndim() == 1 ? rows.select(0, 0) : rows;
}

double float8_value(std::uint8_t code, Float8Format format) {
  const int fraction = format == Float8Format::kE4M3 ? 3 : 2;
  const int bias = format == Float8Format::kE4M3 ? 7 : 15;
  if ((code & 127) == 127) return std::nan("");
  const int exponent = (code & 127) >> fraction;
  const int bits = code & ((1 << fraction) - 1);
  const double size = exponent == 0
                          ? std::ldexp(bits, 1 - bias - fraction)
                          : std::ldexp((1 << fraction) + bits, exponent - bias - fraction);
  return code < 128 ? size : -size;
}

// The numbers of a factor, row by row.
std::vector<double> numbers(const Float8Factor& factor) {
  const std::int64_t rows = factor.codes.dim(0);
  const std::int64_t depth = factor.codes.dim(1);
  const auto* codes = factor.codes.data<std::uint8_t>();
  const auto* inverses = factor.inverses.data<float>();
  const std::int64_t stride = factor.inverses.dim(-1);
  std::vector<double> all;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const double inverse = factor.scales == Float8Scales::kWhole ? inverses[0]
                             : factor.scales == Float8Scales::kRows
                                 ? inverses[k / 128 * stride + row]
                                 : inverses[row / 128 * stride + k / 128];
      all.push_back(inverse * float8_value(codes[row * depth + k], factor.format));
    }
  }
  return all;
}

void multiply_now(const Float8Product& product) {
  const std::vector<double> left = numbers(product.left);
  const std::vector<double> right = numbers(product.right);
  const std::int64_t m = product.y.dim(0);
  const std::int64_t n = product.y.dim(1);
  const std::int64_t k = product.left.codes.dim(1);
  PITON_ASSERT(m == product.left.codes.dim(0) && n == product.right.codes.dim(0) &&
                   k == product.right.codes.dim(1) && m % 16 == 0 && n % 16 == 0 && k % 16 == 0,
               "cuda: sizes of a product in FP8: {} x {} x {}", m, n, k);
  PITON_ASSERT(
      product.left.format == Float8Format::kE4M3 || product.right.format == Float8Format::kE4M3,
      "cuda: a product of E5M2 with E5M2");
  PITON_ASSERT((product.left.scales == Float8Scales::kWhole) ==
                       (product.right.scales == Float8Scales::kWhole) &&
                   product.left.scales != Float8Scales::kSquares,
               "cuda: scales of a product in FP8");
  auto* y = product.y.data<float>();
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float& result = y[row * product.y.stride(0) + column];
      double sum = product.adds ? result : 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += left[static_cast<std::size_t>(row * k + i)] *
               right[static_cast<std::size_t>(column * k + i)];
      }
      result = static_cast<float>(sum);
    }
    emulator::host_writes(y + row * product.y.stride(0), static_cast<std::size_t>(n) * 4);
  }
}

}  // namespace

void Products::multiply(const Float8Product& product, const CallContext& context) {
  if (context.only_counts()) return;
  Float8Product later = product;
  for (Tensor* tensor : {&later.y, &later.left.codes, &later.left.inverses, &later.right.codes,
                         &later.right.inverses})
    *tensor = borrowed(*tensor);
  emulator::run_or_record(context.stream, [later] { multiply_now(later); });
}

void Products::multiply(const Product& product, const CallContext& context) {
  if (context.only_counts()) return;
  PITON_ASSERT(product.parts.count == 1 ||
                   (!product.addend.defined() && !product.bias.defined() && !product.activates),
               "cuda: more than products of several parts");
  std::vector<Product> parts(static_cast<std::size_t>(product.parts.count), product);
  std::int64_t i = 0;
  for (Product& part : parts) {
    part.y = borrowed(product.y, i * product.parts.y);
    part.left = borrowed(product.left, i * product.parts.left);
    part.right = borrowed(product.right, i * product.parts.right);
    for (Tensor* tensor : {&part.addend, &part.bias, &part.preactivation})
      *tensor = borrowed(*tensor);
    ++i;
  }
  emulator::run_or_record(context.stream, [parts] {
    for (const Product& part : parts) multiply_now(part);
  });
}

}  // namespace piton::cuda
