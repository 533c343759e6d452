// Sizes within a block of 128, of one block, and of several with a smaller last one; numbers of
// different sizes, so that scales differ from block to block, and zeros alone.
#include "float8_cases.h"

#include <cmath>

#include "support/tensors.h"

namespace piton::test {
namespace {

struct ProductSize {
  std::int64_t n, out, in;
};

class Float8Cases {
 public:
  explicit Float8Cases(const CaseOptions& options) : source_(0xF8, options.awkward) {}

  std::vector<CallCase> take() { return std::move(cases_); }

  void add_products(const Float8Products& float8, const ProductSize& size) {
    float8_ = float8;
    detail_ =
        fmt::format("recipe {} gradients {} n {} out {} in {}", static_cast<int>(float8.recipe),
                    static_cast<int>(float8.gradients), size.n, size.out, size.in);
    add_forward(size);
    LinearBackwardInput call{.dx = source_.unwritten_rows(DType::kBF16, {size.n, size.in}),
                             .dy = factor(size.n, size.out),
                             .weight = weight(size)};
    if (size.n % 2 == 0) call.residual = source_.normal_rows(DType::kBF16, {size.n, size.in});
    add("", size.out, call);
    const Shape shape{size.out, size.in};
    const bool overwrites = size.n % 2 == 1;
    add("", size.n,
        LinearBackwardWeight{.dweight = overwrites ? source_.unwritten(DType::kF32, shape)
                                                   : source_.normal(DType::kF32, shape),
                             .dbias = source_.normal(DType::kF32, {size.out}),
                             .dy = factor(size.n, size.out),
                             .x = factor(size.n, size.in),
                             .overwrites = overwrites});
  }

 private:
  void add_forward(const ProductSize& size) {
    const auto call = [&](DType outside) {
      return LinearForward{.y = source_.unwritten_rows(outside, {size.n, size.out}),
                           .x = factor(size.n, size.in),
                           .weight = weight(size)};
    };
    add("", size.in, call(DType::kBF16));
    LinearForward wide = call(DType::kF32);
    wide.bias = source_.normal(DType::kBF16, {size.out});
    wide.residual = source_.normal_rows(DType::kF32, {size.n, size.out});
    add(", wide, residual", size.in, wide);
    LinearForward activated = call(DType::kBF16);
    activated.bias = wide.bias;
    activated.activation = ActivationKind::kGeluTanh;
    activated.preactivation = source_.unwritten_rows(DType::kBF16, {size.n, size.out});
    add(", activation", size.in, activated);
  }

  // Rows and columns of sizes 1/4, 1/2 and 1, and one of zeros.
  Tensor factor(std::int64_t rows, std::int64_t columns) {
    const Tensor tensor = source_.normal_rows(DType::kBF16, {rows, columns});
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::int64_t offset = i * tensor.stride(0) + j;
        const double size = std::ldexp(1.0, -static_cast<int>((i + j / 40) % 3));
        set_value(tensor, offset, i == 3 ? 0 : value_at(tensor, offset) * size);
      }
    }
    return tensor;
  }

  WeightView weight(const ProductSize& size) {
    return {
        .tensor = factor(size.out, size.in), .out = size.out, .in = size.in, .dtype = DType::kBF16};
  }

  template <typename Call>
  void add(const char* end, std::int64_t terms, Call call) {
    call.float8 = float8_;
    cases_.push_back({.name = fmt::format("{}, FP8, {}{}", Call::kName, detail_, end),
                      .call = std::move(call),
                      .terms = terms});
  }

  TensorSource source_;
  Float8Products float8_;
  std::string detail_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> float8_cases(const CaseOptions& options) {
  if (options.dtype != DType::kBF16) return {};
  Float8Cases list(options);
  const Float8Products whole{Float8Recipe::kTensorwise, Float8Format::kE5M2};
  for (const ProductSize& size : {ProductSize{0, 7, 5}, {1, 1, 1}, {5, 33, 48}, {48, 130, 131}})
    list.add_products(whole, size);
  list.add_products({Float8Recipe::kTensorwise, Float8Format::kE4M3}, {16, 32, 64});
  const Float8Products blocks{Float8Recipe::kBlockwise, Float8Format::kE4M3};
  for (const ProductSize& size : {ProductSize{0, 7, 5}, {1, 1, 1}, {5, 33, 48}, {130, 130, 131}})
    list.add_products(blocks, size);
  list.add_products({Float8Recipe::kBlockwise, Float8Format::kE5M2}, {33, 16, 144});
  return list.take();
}

}  // namespace piton::test
