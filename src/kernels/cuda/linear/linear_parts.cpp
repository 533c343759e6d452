#include "kernels/cuda/linear/linear_parts.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/linear/few_row_product.h"
#include "kernels/cuda/product.h"

namespace piton::cuda {
namespace {

// As many as a grid has in its second dim, with room.
constexpr std::size_t kMostParts = 1 << 14;

template <typename Call>
using Parts = std::vector<const Call*>;

// The calls of the chains, if each is one of this kind; otherwise none.
template <typename Call>
Parts<Call> calls_of(std::span<const CallChain> chains) {
  Parts<Call> calls;
  for (const CallChain& chain : chains) {
    const Call* call = chain.size() == 1 ? std::get_if<Call>(&chain[0]) : nullptr;
    if (call == nullptr) return {};
    calls.push_back(call);
  }
  return calls;
}

bool is_plain(const LinearForward& call) {
  return !call.bias.defined() && !call.residual.defined() && !call.activation &&
         !call.preactivation.defined() && !call.first_rows.defined() && !call.float8.given() &&
         call.y.dtype() == call.x.dtype() && call.y.elements() > 0 && call.x.elements() > 0 &&
         (call.weight.form == WeightForm::kRows ||
          (call.weight.form == WeightForm::kCodes && has_few_rows(call)));
}

bool is_plain(const LinearBackwardInput& call) {
  return !call.residual.defined() && !call.first_rows.defined() && !call.float8.given() &&
         call.dy.dtype() == call.weight.dtype && call.dx.dtype() == call.dy.dtype() &&
         call.dx.elements() > 0 && call.dy.elements() > 0 && call.weight.form == WeightForm::kRows;
}

bool same_form(const Tensor& one, const Tensor& other) {
  return one.dtype() == other.dtype() && one.shape() == other.shape() &&
         (one.ndim() < 2 || one.stride(0) == other.stride(0));
}

// The bytes from the matrix of one call to that of the next, if all are alike.
template <typename Call, typename MatrixOf>
std::optional<std::int64_t> distance(const Parts<Call>& calls, const MatrixOf& matrix_of) {
  const Tensor first = matrix_of(*calls[0]);
  if (!first.defined()) {
    const bool none =
        std::ranges::none_of(calls, [&](const Call* call) { return matrix_of(*call).defined(); });
    return none ? std::optional<std::int64_t>(0) : std::nullopt;
  }
  std::optional<std::int64_t> found;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    const Tensor one = matrix_of(*calls[i]);
    if (!one.defined() || !same_form(first, one) || one.storage() != first.storage()) return {};
    const std::int64_t from_first = one.raw() - first.raw();
    if (!found) found = from_first;
    if (from_first != *found * static_cast<std::int64_t>(i)) return {};
  }
  return found;
}

// In elements of a dtype, if that is a multiple of 16 bytes: all matrices are aligned alike then.
std::optional<std::int64_t> in_elements(std::optional<std::int64_t> bytes, DType dtype) {
  constexpr std::int64_t kAlignment = 16;
  if (!bytes || *bytes <= 0 || *bytes % kAlignment != 0) return {};
  return *bytes / size_bytes(dtype);
}

// The rows of a weight in codes from one part to the next.
std::optional<std::int64_t> code_rows(const Parts<LinearForward>& calls) {
  const std::vector<Tensor WeightCodes::*> all{
      &WeightCodes::codes,  &WeightCodes::scales,       &WeightCodes::zeros,
      &WeightCodes::minima, &WeightCodes::block_scales, &WeightCodes::block_minima};
  std::optional<std::int64_t> rows;
  for (const auto member : all) {
    const auto matrix_of = [&](const LinearForward& call) { return call.weight.codes.*member; };
    const std::optional<std::int64_t> bytes = distance(calls, matrix_of);
    if (!bytes) return {};
    const Tensor first = matrix_of(*calls[0]);
    if (!first.defined()) continue;
    const std::int64_t row = first.stride(0) * size_bytes(first.dtype());
    if (*bytes <= 0 || *bytes % row != 0 || (rows && *rows != *bytes / row)) return {};
    rows = *bytes / row;
  }
  return rows;
}

std::optional<ProductParts> parts_of(const Parts<LinearForward>& calls) {
  const LinearForward& first = *calls[0];
  const bool few = has_few_rows(first);
  for (const LinearForward* call : calls) {
    if (!is_plain(*call) || has_few_rows(*call) != few || call->weight.form != first.weight.form)
      return {};
  }
  const DType dtype = first.x.dtype();
  const auto y = in_elements(distance(calls, [](const auto& call) { return call.y; }), dtype);
  const auto x = in_elements(distance(calls, [](const auto& call) { return call.x; }), dtype);
  const auto weight =
      first.weight.form == WeightForm::kCodes
          ? code_rows(calls)
          : in_elements(distance(calls, [](const auto& call) { return call.weight.tensor; }),
                        dtype);
  if (!y || !x || !weight) return {};
  // A product of few rows counts rows of the weight.
  if (few && first.weight.form == WeightForm::kRows && *weight % first.weight.tensor.stride(0) != 0)
    return {};
  return ProductParts{static_cast<std::int64_t>(calls.size()), *y, *x, *weight};
}

std::optional<ProductParts> parts_of(const Parts<LinearBackwardInput>& calls) {
  if (!std::ranges::all_of(calls, [](const auto* call) { return is_plain(*call); })) return {};
  const DType dtype = calls[0]->dy.dtype();
  const auto dx = in_elements(distance(calls, [](const auto& call) { return call.dx; }), dtype);
  const auto dy = in_elements(distance(calls, [](const auto& call) { return call.dy; }), dtype);
  const auto weight =
      in_elements(distance(calls, [](const auto& call) { return call.weight.tensor; }), dtype);
  if (!dx || !dy || !weight) return {};
  return ProductParts{static_cast<std::int64_t>(calls.size()), *dx, *dy, *weight};
}

}  // namespace

std::optional<ProductParts> linear_parts(std::span<const CallChain> chains) {
  if (chains.size() < 2 || chains.size() > kMostParts) return {};
  if (const auto calls = calls_of<LinearForward>(chains); !calls.empty()) return parts_of(calls);
  if (const auto calls = calls_of<LinearBackwardInput>(chains); !calls.empty())
    return parts_of(calls);
  return {};
}

void execute_linear_parts(std::span<const CallChain> chains, const ProductParts& parts,
                          const CallContext& context) {
  if (const auto* input = std::get_if<LinearBackwardInput>(&chains[0][0])) {
    context.products.multiply(
        {.y = input->dx, .left = input->dy, .right = input->weight.tensor, .parts = parts},
        context);
    return;
  }
  const auto& forward = std::get<LinearForward>(chains[0][0]);
  if (has_few_rows(forward)) {
    ProductParts in_rows = parts;
    if (forward.weight.form == WeightForm::kRows) in_rows.right /= forward.weight.tensor.stride(0);
    return multiply_few_rows(forward, in_rows, context.stream);
  }
  context.products.multiply({.y = forward.y,
                             .left = forward.x,
                             .right = forward.weight.tensor,
                             .right_transposed = true,
                             .parts = parts},
                            context);
}

}  // namespace piton::cuda
