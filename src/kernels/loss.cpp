// check() of the calls that read logits: cross entropy, distillation, and drawing tokens.
#include "kernels/loss.h"

#include "kernels/expect.h"
#include "kernels/sampling.h"

namespace piton {
namespace {

void expect_logits(std::string_view call, const Tensor& logits, const Tensor& labels,
                   std::int64_t valid) {
  const Operand operand{call, "logits", logits};
  operand.floating().contiguous().dtype(sum_dtype(logits.dtype()));
  operand.shape({logits.dim(0), logits.dim(-1)});
  Operand{call, "labels", labels}.shape({logits.dim(0)}).dtype(DType::kI32).contiguous();
  PITON_ASSERT(valid >= 0 && valid <= logits.dim(1), "{}: {} valid columns of {}", call, valid,
               logits.dim(1));
}

// `valid` columns from label `begin` on.
void expect_sets(std::string_view call, const Tensor& sets, std::int64_t begin,
                 std::int64_t valid) {
  Operand{call, "sets", sets}.dtype(DType::kU8).contiguous();
  PITON_ASSERT(sets.ndim() == 2 && sets.dim(1) > 0 && (valid == 0 || begin + valid <= sets.dim(1)),
               "{}: sets are {}, and {} columns begin at label {}", call, to_string(sets), valid,
               begin);
}

void expect_mix(std::string_view call, double temperature, double weight) {
  PITON_ASSERT(temperature > 0 && weight >= 0 && weight <= 1, "{}: temperature {}, weight {}", call,
               temperature, weight);
}

void expect_parts(std::string_view call, const Tensor& logits, std::int64_t vocabulary) {
  Operand{call, "logits", logits}.floating().contiguous().dtype(sum_dtype(logits.dtype()));
  PITON_ASSERT(logits.ndim() == 3 && vocabulary > 0 && logits.dim(0) * logits.dim(2) >= vocabulary,
               "{}: logits are {}, and the vocabulary {}", call, to_string(logits), vocabulary);
}

}  // namespace

void LossStatistics::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, labels, valid);
  Operand{kName, "statistics", statistics}
      .shape({logits.dim(0), 3})
      .dtype(logits.dtype())
      .contiguous();
}

void LargestLogits::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, ids, valid);
}

void LossCombine::check() const {
  expect_one_place(*this);
  Operand{kName, "statistics", statistics}.floating().contiguous();
  const DType sums = statistics.dtype();
  PITON_ASSERT(statistics.ndim() == 3 && statistics.dim(2) == 3 && statistics.dim(0) > 0 &&
                   sums == sum_dtype(sums),
               "{}: statistics are {}", kName, to_string(statistics));
  const Shape rows{statistics.dim(1)};
  Operand{kName, "loss", loss}.shape(rows).dtype(sums).contiguous();
  Operand{kName, "lse", lse}.shape(rows).dtype(sums).contiguous();
  Operand{kName, "sum", sum}.shape({1}).dtype(DType::kF64);
  Operand{kName, "labels", labels}.shape(rows).dtype(DType::kI32).contiguous();
  Operand{kName, "mask", mask}.shape(rows).dtype(DType::kF32).contiguous();
}

void SquaredLoss::check() const {
  expect_one_place(*this);
  Operand{kName, "loss", loss}.floating().contiguous();
  PITON_ASSERT(loss.ndim() == 1 && loss.dtype() == sum_dtype(loss.dtype()), "{}: loss is {}", kName,
               to_string(loss));
  const Shape rows{loss.dim(0)};
  Operand{kName, "weights", weights}.shape(rows).dtype(DType::kF32).contiguous();
  Operand{kName, "sum", sum}.shape({1}).dtype(DType::kF64);
  Operand{kName, "targets", targets}.shape(rows).dtype(DType::kF32).contiguous();
  Operand{kName, "mask", mask}.shape(rows).dtype(DType::kF32).contiguous();
}

void BinaryLossStatistics::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, labels, valid);
  expect_sets(kName, sets, vocabulary_begin, valid);
  Operand{kName, "statistics", statistics}
      .shape({logits.dim(0), 3})
      .dtype(logits.dtype())
      .contiguous();
}

void BinaryLossBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, labels, valid);
  expect_sets(kName, sets, vocabulary_begin, valid);
  Operand{kName, "dlogits", dlogits}.shape(logits.shape()).floating().contiguous();
  PITON_ASSERT(!dlogits.overlaps(logits) || dlogits.dtype() == logits.dtype(),
               "{}: dlogits {} over logits {}", kName, to_string(dlogits), to_string(logits));
  Operand{kName, "mask", mask}.shape({logits.dim(0)}).dtype(DType::kF32).contiguous();
  Operand{kName, "scale", scale}.shape({1}).dtype(logits.dtype());
}

void LossBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, labels, valid);
  const Shape rows{logits.dim(0)};
  Operand{kName, "dlogits", dlogits}.shape(logits.shape()).floating().contiguous();
  PITON_ASSERT(!dlogits.overlaps(logits) || dlogits.dtype() == logits.dtype(),
               "{}: dlogits {} over logits {}", kName, to_string(dlogits), to_string(logits));
  Operand{kName, "lse", lse}.shape(rows).dtype(logits.dtype()).contiguous();
  Operand{kName, "mask", mask}.shape(rows).dtype(DType::kF32).contiguous();
  Operand{kName, "scale", scale}.shape({1}).dtype(logits.dtype());
}

void TeacherStatistics::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.floating().contiguous().dtype(sum_dtype(logits.dtype()));
  Operand{kName, "teacher", teacher}.shape(logits.shape()).dtype(logits.dtype()).contiguous();
  Operand{kName, "statistics", statistics}
      .shape({logits.dim(0), 5})
      .dtype(logits.dtype())
      .contiguous();
  PITON_ASSERT(valid >= 0 && valid <= logits.dim(1), "{}: {} valid columns of {}", kName, valid,
               logits.dim(1));
  expect_mix(kName, temperature, 0);
}

void TeacherCombine::check() const {
  expect_one_place(*this);
  Operand{kName, "statistics", statistics}.floating().contiguous();
  const DType sums = statistics.dtype();
  PITON_ASSERT(statistics.ndim() == 3 && statistics.dim(2) == 5 && statistics.dim(0) > 0,
               "{}: statistics are {}", kName, to_string(statistics));
  const std::int64_t n = statistics.dim(1);
  Operand{kName, "loss", loss}.shape({n}).dtype(sums).contiguous();
  Operand{kName, "lse", lse}.shape({n, 2}).dtype(sums).contiguous();
  Operand{kName, "sum", sum}.shape({1}).dtype(DType::kF64);
  Operand{kName, "divergence", divergence}.shape({1}).dtype(DType::kF64);
  Operand{kName, "labels", labels}.shape({n}).dtype(DType::kI32).contiguous();
  Operand{kName, "mask", mask}.shape({n}).dtype(DType::kF32).contiguous();
  expect_mix(kName, temperature, weight);
}

void TeacherBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_logits(kName, logits, labels, valid);
  const std::int64_t n = logits.dim(0);
  Operand{kName, "teacher", teacher}.shape(logits.shape()).dtype(logits.dtype()).contiguous();
  Operand{kName, "dlogits", dlogits}.shape(logits.shape()).floating().contiguous();
  PITON_ASSERT(!dlogits.overlaps(logits) || dlogits.dtype() == logits.dtype(),
               "{}: dlogits {} over logits {}", kName, to_string(dlogits), to_string(logits));
  Operand{kName, "lse", lse}.shape({n}).dtype(logits.dtype()).contiguous();
  Operand{kName, "lse at temperature", lse_at_temperature}
      .shape({n, 2})
      .dtype(logits.dtype())
      .contiguous();
  Operand{kName, "mask", mask}.shape({n}).dtype(DType::kF32).contiguous();
  Operand{kName, "scale", scale}.shape({1}).dtype(logits.dtype());
  expect_mix(kName, temperature, weight);
}

void ChangeLogits::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_parts(kName, logits, vocabulary);
  const std::int64_t n = logits.dim(1);
  if (seen.defined()) {
    Operand{kName, "seen", seen}.shape({seen.dim(0), 3}).dtype(DType::kI32).contiguous();
    Operand{kName, "penalties", penalties}.shape({n, 3}).dtype(DType::kF64).contiguous();
  }
  if (allowed.defined()) {
    const std::int64_t bytes = (vocabulary + 7) / 8;
    Operand{kName, "allowed", allowed}.shape({n, bytes}).dtype(DType::kU8).contiguous();
  }
}

void DrawTokens::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_parts(kName, logits, vocabulary);
  const std::int64_t n = logits.dim(1);
  Operand{kName, "ids", ids}.shape({n}).dtype(DType::kI32).contiguous();
  Operand{kName, "shares", shares}.shape({n}).dtype(DType::kF64).contiguous();
  Operand{kName, "filters", filters}.shape({n, kDrawFilters}).dtype(DType::kF64).contiguous();
  Operand{kName, "places", places}.shape({n, 5}).dtype(DType::kI32).contiguous();
}

}  // namespace piton
