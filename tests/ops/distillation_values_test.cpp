// Distillation against PyTorch (tests/golden/distillation.txt, made by tools/oracle/distillation.py
// in float64): losses, divergences and gradients, with the vocabulary on one rank and on two.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/golden_numbers.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

struct GoldenCase {
  double temperature = 1, weight = 0;
  std::int64_t rows = 0, columns = 0;
  std::vector<double> logits, teacher, labels, mask, loss, divergence, gradient;
};

std::vector<GoldenCase> golden() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/distillation.txt");
  std::string line;
  std::getline(file, line);
  std::vector<GoldenCase> cases;
  for (;;) {
    const std::vector<double> head = next_numbers(file);
    if (head.size() != 4) return cases;
    GoldenCase one{.temperature = head[0],
                   .weight = head[1],
                   .rows = static_cast<std::int64_t>(head[2]),
                   .columns = static_cast<std::int64_t>(head[3])};
    for (std::vector<double>* list : {&one.logits, &one.teacher, &one.labels, &one.mask, &one.loss,
                                      &one.divergence, &one.gradient})
      *list = next_numbers(file);
    cases.push_back(one);
  }
}

// Columns begin .. end - 1 of [rows, columns].
Tensor part_of(const GoldenCase& one, const std::vector<double>& all, std::int64_t begin,
               std::int64_t end) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < one.rows; ++row)
    values.insert(values.end(), all.begin() + row * one.columns + begin,
                  all.begin() + row * one.columns + end);
  return tensor_of(DType::kF64, {one.rows, end - begin}, values);
}

TEST(Distillation, HasTheLossesAndGradientsOfPyTorch) {
  HostDevice device;
  const auto kernels = make_reference_kernels();
  const auto stream = device.make_stream();
  const auto run = [&](const KernelCall& call) { kernels->run(call, *stream); };
  const std::vector<GoldenCase> cases = golden();
  ASSERT_EQ(cases.size(), 4U);
  for (const GoldenCase& one : cases) {
    for (const std::int64_t cut : {one.columns, one.columns / 2}) {
      SCOPED_TRACE(fmt::format("T {}, w {}, cut {}", one.temperature, one.weight, cut));
      const std::int64_t n = one.rows;
      const std::vector<std::int64_t> cuts = cut == one.columns
                                                 ? std::vector<std::int64_t>{0, cut}
                                                 : std::vector<std::int64_t>{0, cut, one.columns};
      const auto ranks = static_cast<std::int64_t>(cuts.size()) - 1;
      const Tensor labels = tensor_of(DType::kI32, {n}, one.labels);
      const Tensor mask = tensor_of(DType::kF32, {n}, one.mask);
      const Tensor own = host_tensor(DType::kF64, {ranks, n, 3});
      const Tensor both = host_tensor(DType::kF64, {ranks, n, 5});
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = cuts[rank];
        const std::int64_t end = cuts[rank + 1];
        const Tensor logits = part_of(one, one.logits, begin, end);
        run(LossStatistics{.statistics = own.select(0, rank),
                           .logits = logits,
                           .labels = labels,
                           .vocabulary_begin = begin,
                           .valid = end - begin});
        run(TeacherStatistics{.statistics = both.select(0, rank),
                              .logits = logits,
                              .teacher = part_of(one, one.teacher, begin, end),
                              .temperature = one.temperature,
                              .valid = end - begin});
      }
      const Tensor loss = host_tensor(DType::kF64, {n});
      const Tensor lse = host_tensor(DType::kF64, {n});
      const Tensor warm = host_tensor(DType::kF64, {n, 2});
      const auto zero = [] { return tensor_of(DType::kF64, {1}, std::vector{0.0}); };
      const Tensor sum = zero();
      const Tensor divergence = zero();
      run(LossCombine{.loss = loss,
                      .lse = lse,
                      .sum = zero(),
                      .statistics = own,
                      .labels = labels,
                      .mask = mask});
      run(TeacherCombine{.loss = loss,
                         .lse = warm,
                         .sum = sum,
                         .divergence = divergence,
                         .statistics = both,
                         .labels = labels,
                         .mask = mask,
                         .temperature = one.temperature,
                         .weight = one.weight});
      double wanted = 0;
      for (std::int64_t row = 0; row < n; ++row) {
        EXPECT_NEAR(value_at(loss, row), one.loss[row], 1e-12);
        wanted += value_at(mask, row) * one.loss[row];
      }
      EXPECT_NEAR(value_at(sum, 0), wanted, 1e-12);
      EXPECT_NEAR(value_at(divergence, 0), one.divergence[0], 1e-12);
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = cuts[rank];
        const std::int64_t end = cuts[rank + 1];
        const Tensor dlogits = host_tensor(DType::kF64, {n, end - begin});
        run(TeacherBackward{.dlogits = dlogits,
                            .logits = part_of(one, one.logits, begin, end),
                            .teacher = part_of(one, one.teacher, begin, end),
                            .lse = lse,
                            .lse_at_temperature = warm,
                            .labels = labels,
                            .mask = mask,
                            .scale = tensor_of(DType::kF64, {1}, std::vector{1.0}),
                            .temperature = one.temperature,
                            .weight = one.weight,
                            .vocabulary_begin = begin,
                            .valid = end - begin});
        const Tensor right = part_of(one, one.gradient, begin, end);
        for (std::int64_t i = 0; i < dlogits.elements(); ++i)
          EXPECT_NEAR(value_at(dlogits, i), value_at(right, i), 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace piton::test
