// Checks and operation counts of mixtures of experts.
#include "kernels/experts.h"

#include <algorithm>
#include <utility>

#include "kernels/expect.h"

namespace piton {
namespace {

// n tokens with k choices each.
struct Choices {
  std::int64_t n = 0;
  std::int64_t k = 0;
};

Choices expect_choices(std::string_view call, std::string_view name, const Tensor& tensor) {
  const Operand operand{call, name, tensor};
  operand.given();
  operand.shape({tensor.dim(0), tensor.dim(-1)}).contiguous();
  PITON_ASSERT(tensor.dim(1) > 0, "{}: no choices", call);
  return {tensor.dim(0), tensor.dim(1)};
}

void expect_integers(std::string_view call, std::string_view name, const Tensor& tensor,
                     const Shape& shape) {
  Operand{call, name, tensor}.shape(shape).dtype(DType::kI32).contiguous();
}

void expect_logits(std::string_view call, const Tensor& logits, const Choices& of) {
  PITON_ASSERT(logits.dtype() == DType::kF32 || logits.dtype() == DType::kF64, "{}: logits are {}",
               call, name(logits.dtype()));
  Operand{call, "logits", logits}.shape({of.n, logits.dim(-1)}).contiguous();
  PITON_ASSERT(of.k <= logits.dim(1), "{}: {} choices of {} experts", call, of.k, logits.dim(1));
}

// Of all experts, or of those that are here.
void expect_rows(std::string_view call, const Tensor& rows, const Choices& of) {
  Operand{call, "rows", rows}.floating().contiguous();
  Operand{call, "rows", rows}.shape({rows.dim(0), rows.dim(-1)});
  PITON_ASSERT(rows.dim(0) <= of.n * of.k, "{}: {} rows of {} tokens with {} choices", call,
               rows.dim(0), of.n, of.k);
}

double combined_flops(const Tensor& rows) { return 2.0 * static_cast<double>(rows.elements()); }

}  // namespace

void RouteTokens::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  expect_logits(kName, logits, of);
  expect_integers(kName, "choices", choices, {of.n, of.k});
  Operand{kName, "weights", weights}.shape({of.n, of.k}).dtype(logits.dtype()).contiguous();
  if (bias.defined())
    Operand{kName, "bias", bias}.shape({logits.dim(1)}).dtype(logits.dtype()).contiguous();
  const std::int64_t size = logits.dim(1) / std::max<std::int64_t>(groups.count, 1);
  PITON_ASSERT(groups.count > 0 && groups.count <= ExpertGroups::kMost &&
                   groups.count * size == logits.dim(1) && groups.chosen > 0 &&
                   groups.chosen <= groups.count && groups.largest > 0 && groups.largest <= size &&
                   of.k <= groups.chosen * size,
               "{}: {} choices in {} of {} groups, with the {} largest of each of {} experts",
               kName, of.k, groups.chosen, groups.count, groups.largest, logits.dim(1));
  if (counts.defined()) expect_integers(kName, "counts", counts, {logits.dim(1)});
  if (!balance.defined()) return;
  PITON_ASSERT(counts.defined(), "{}: a balance without counts", kName);
  Operand{kName, "balance", balance}.shape({1}).dtype(DType::kF64);
}

void RouteBackward::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  expect_logits(kName, logits, of);
  expect_integers(kName, "choices", choices, {of.n, of.k});
  if (counts.defined()) expect_integers(kName, "counts", counts, {logits.dim(1)});
  Operand{kName, "dlogits", dlogits}.shape(logits.shape()).dtype(logits.dtype()).contiguous();
  if (dweights.defined())
    Operand{kName, "dweights", dweights}.shape({of.n, of.k}).dtype(logits.dtype()).contiguous();
  PITON_ASSERT(balance_factor == 0 || (scale.defined() && counts.defined()),
               "{}: a factor of the balance without scale or counts", kName);
  if (scale.defined()) Operand{kName, "scale", scale}.shape({1}).dtype(logits.dtype());
}

void RouterZLoss::check() const {
  expect_one_place(*this);
  expect_logits(kName, logits, {.n = logits.dim(0)});
  Operand{kName, "sum", sum}.shape({1}).dtype(DType::kF64);
}

void RouterZLossBackward::check() const {
  expect_one_place(*this);
  expect_logits(kName, logits, {.n = logits.dim(0)});
  Operand{kName, "dlogits", dlogits}.shape(logits.shape()).dtype(logits.dtype()).contiguous();
  Operand{kName, "scale", scale}.shape({1}).dtype(logits.dtype());
}

void LimitChoices::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  expect_integers(kName, "choices", choices, {of.n, of.k});
  expect_integers(kName, "kept", kept, {of.n, of.k});
  if (weights.defined()) {
    PITON_ASSERT(weights.dtype() == DType::kF32 || weights.dtype() == DType::kF64,
                 "{}: weights are {}", kName, name(weights.dtype()));
    Operand{kName, "weights", weights}.shape({of.n, of.k}).contiguous();
  }
  PITON_ASSERT(experts >= of.k && capacity > 0, "{}: {} experts that take {} tokens", kName,
               experts, capacity);
  const std::int64_t parts = rows.samples * (rows.ranks == 1 ? 1 : 2 * rows.ranks);
  PITON_ASSERT(rows.samples > 0 && rows.ranks > 0 && of.n % parts == 0,
               "{}: {} rows of {} samples on {} ranks", kName, of.n, rows.samples, rows.ranks);
}

void ExcessChoices::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  expect_integers(kName, "choices", choices, {of.n, of.k});
  Operand{kName, "excess", excess}.given();
  PITON_ASSERT(excess.dtype() == DType::kF32 || excess.dtype() == DType::kF64, "{}: excess is {}",
               kName, name(excess.dtype()));
  Operand{kName, "excess", excess}.shape({excess.dim(0)}).contiguous();
}

void SortByExpert::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  expect_integers(kName, "choices", choices, {of.n, of.k});
  Operand{kName, "first rows", rows.first_rows}.given();
  const std::int64_t experts = rows.first_rows.dim(0) - 1;
  PITON_ASSERT(experts > 0 && first >= 0, "{}: {} experts from {} on", kName, experts, first);
  expect_integers(kName, "first rows", rows.first_rows, {experts + 1});
  expect_integers(kName, "sources", rows.sources, {rows.sources.dim(0)});
  PITON_ASSERT(rows.sources.dim(0) <= of.n * std::min(of.k, experts),
               "{}: {} rows of {} tokens with {} choices of {} experts", kName, rows.sources.dim(0),
               of.n, of.k, experts);
  expect_integers(kName, "places", rows.places, {of.n, of.k});
}

void SortByRank::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "choices", choices);
  const Choices places_of = expect_choices(kName, "places", places);
  const std::int64_t n = places_of.n, ranks = places_of.k;
  expect_integers(kName, "choices", choices, {ranks * n, of.k});
  expect_integers(kName, "places", places, {n, ranks});
  expect_integers(kName, "counts", counts, {ranks + 1, ranks});
  expect_integers(kName, "sent", sent, {1});
  for (const auto& [name, tensor] : {std::pair{"sources", &sources}, {"received", &received}})
    Operand{kName, name, *tensor}.given();
  expect_integers(kName, "sources", sources, {sources.dim(0)});
  expect_integers(kName, "received", received, {received.dim(0), of.k});
  PITON_ASSERT(sources.dim(0) <= n * std::min(of.k, ranks) && received.dim(0) <= ranks * n,
               "{}: {} rows to send and {} to receive, of {} tokens of each of {} ranks", kName,
               sources.dim(0), received.dim(0), n, ranks);
  PITON_ASSERT(experts > 0 && rank >= 0 && rank < ranks, "{}: {} experts of rank {} of {}", kName,
               experts, rank, ranks);
}

void CombineExperts::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "places", places);
  expect_integers(kName, "places", places, {of.n, of.k});
  expect_rows(kName, rows, of);
  Operand{kName, "y", y}.shape({of.n, rows.dim(1)}).dtype(rows.dtype()).contiguous();
  if (weights.defined()) {
    Operand{kName, "weights", weights}
        .shape({of.n, of.k})
        .dtype(sum_dtype(rows.dtype()))
        .contiguous();
  }
}

double CombineExperts::flops() const { return combined_flops(rows); }

void CombineExpertsBackward::check() const {
  expect_one_place(*this);
  const Choices of = expect_choices(kName, "places", places);
  expect_integers(kName, "places", places, {of.n, of.k});
  expect_rows(kName, rows, of);
  Operand{kName, "drows", drows}.shape(rows.shape()).dtype(rows.dtype()).contiguous();
  Operand{kName, "dy", dy}.shape({of.n, rows.dim(1)}).dtype(rows.dtype()).contiguous();
  for (const auto& [name, tensor] : {std::pair{"weights", &weights}, {"dweights", &dweights}}) {
    Operand{kName, name, *tensor}.shape({of.n, of.k}).dtype(sum_dtype(rows.dtype())).contiguous();
  }
}

double CombineExpertsBackward::flops() const { return 2 * combined_flops(rows); }

namespace {

Tensor rows_of_part(const Tensor& tensor, const PartOfExpert& part) {
  return tensor.defined() ? tensor.slice(0, part.begin, part.size) : tensor;
}

// One of `matrices` parts of equal size, along the rows.
Tensor share_of(const Tensor& tensor, std::int64_t index, std::int64_t matrices) {
  if (!tensor.defined()) return tensor;
  const std::int64_t size = tensor.dim(0) / matrices;
  return tensor.slice(0, index * size, size);
}

WeightView matrix_of(const WeightView& weight, std::int64_t index) {
  WeightView one = weight;
  one.matrices = 1;
  one.tensor = share_of(weight.tensor, index, weight.matrices);
  WeightCodes::tensors(one.codes, [&](const char*, Tensor& tensor, Access) {
    tensor = share_of(tensor, index, weight.matrices);
  });
  return one;
}

}  // namespace

LinearForward part_of(const LinearForward& call, const PartOfExpert& part) {
  LinearForward one = call;
  one.y = rows_of_part(call.y, part);
  one.x = rows_of_part(call.x, part);
  one.residual = rows_of_part(call.residual, part);
  one.preactivation = rows_of_part(call.preactivation, part);
  one.weight = matrix_of(call.weight, part.expert);
  one.bias = share_of(call.bias, part.expert, call.weight.matrices);
  one.first_rows = {};
  return one;
}

LinearBackwardInput part_of(const LinearBackwardInput& call, const PartOfExpert& part) {
  LinearBackwardInput one = call;
  one.dx = rows_of_part(call.dx, part);
  one.dy = rows_of_part(call.dy, part);
  one.residual = rows_of_part(call.residual, part);
  one.weight = matrix_of(call.weight, part.expert);
  one.first_rows = {};
  return one;
}

LinearBackwardWeight part_of(const LinearBackwardWeight& call, const PartOfExpert& part) {
  LinearBackwardWeight one = call;
  one.dweight = share_of(call.dweight, part.expert, call.first_rows.dim(0) - 1);
  one.dbias = share_of(call.dbias, part.expert, call.first_rows.dim(0) - 1);
  one.dy = rows_of_part(call.dy, part);
  one.x = rows_of_part(call.x, part);
  one.first_rows = {};
  return one;
}

}  // namespace piton
