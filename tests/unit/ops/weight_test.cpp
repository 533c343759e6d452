// The forms of an acquired weight: plain rows, packed forms, and small integers with scales.
#include "ops/weight.h"

#include <gtest/gtest.h>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "ops/linear/linear.h"
#include "support/compare.h"
#include "support/counting_kernels.h"
#include "support/instruction_sets.h"

namespace piton {
namespace {

constexpr std::int64_t kOut = 24;
constexpr std::int64_t kIn = 40;
constexpr std::int64_t kGroup = 16;

// One frozen matrix, held as plain rows or as codes of the same values; on the back end that reads
// codes, or on the one that does not.
class Weight : public testing::TestWithParam<bool> {
 protected:
  Weight() {
    test::TensorSource source(11);
    const Tensor codes = source.integers({kOut, kIn}, 0, 255, DType::kU8);
    // Sixty-fourths: every value is exact in fp32, however it is computed.
    const Tensor scales =
        source.integers({kOut, (kIn + kGroup - 1) / kGroup}, -64, 64, DType::kF32);
    for (std::int64_t i = 0; i < scales.elements(); ++i) scales.data<float>()[i] /= 64;
    const Tensor rows = host_tensor(DType::kF32, {kOut, kIn});
    const WeightCodes stored{.group = kGroup, .codes = codes, .scales = scales};
    make_reference_kernels()->run(ExpandWeight{.rows = rows, .codes = stored}, *stream_);
    plain_.name = "plain";
    quantized_.name = "quantized";
    for (Parameter* parameter : {&plain_, &quantized_}) {
      parameter->shape = {kOut, kIn};
      parameter->trainable = false;
    }
    plain_.value = rows;
    quantized_.codes = stored;
    x_ = source.normal(DType::kF32, {5, kIn});
    dy_ = source.normal(DType::kF32, {5, kOut});
  }

  // y and dx of a linear with this weight.
  std::pair<Tensor, Tensor> outputs(Parameter& parameter) {
    Tape tape;
    Context context = context_.with_tape(&tape);
    const Value x = tape.leaf(x_);
    const Value y = column_linear(context, x, {parameter, *alone_, {}}, {});
    tape.seed(y, dy_);
    tape.backward(context, Tape::Mode::kWhole);
    return {y.tensor, tape.take_gradient(x, context)};
  }

  ThreadPool threads_{1};
  HostDevice device_;
  Arena arena_{device_, 1 << 20};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> back_end_ =
      GetParam() ? make_cpu_kernels(threads_, test::chosen_isa()) : make_reference_kernels();
  CountingKernels kernels_{*back_end_};
  ResidentWeights weights_{kernels_, arena_};
  Context context_{.kernels = kernels_,
                   .stream = *stream_,
                   .device = device_,
                   .arena = arena_,
                   .weights = weights_};
  std::unique_ptr<Communicator> alone_ = make_single_communicator(device_, "alone");
  Parameter plain_;
  Parameter quantized_;
  Tensor x_;
  Tensor dy_;
};

INSTANTIATE_TEST_SUITE_P(BackEnds, Weight, testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

TEST_P(Weight, HeldAsCodesGivesTheOutputsOfItsRows) {
  const auto [y, dx] = outputs(plain_);
  const auto [quantized_y, quantized_dx] = outputs(quantized_);
  EXPECT_TRUE(test::bit_equal(quantized_y, y));
  EXPECT_TRUE(test::bit_equal(quantized_dx, dx));
  EXPECT_FALSE(quantized_.value.defined());
}

TEST_P(Weight, HeldAsCodesIsMultipliedAsCodes) {
  for (int use = 0; use < 3; ++use) outputs(quantized_);
  EXPECT_EQ(kernels_.counts().of("expand weight").calls, 0);
  EXPECT_EQ(kernels_.counts().of("pack weight").calls, 0);
}

TEST_P(Weight, HeldAsCodesStillComesAsRowsWhereRowsAreAskedFor) {
  const WeightUse use = weights_.acquire(quantized_, WeightForm::kRows, *stream_);
  EXPECT_TRUE(test::bit_equal(use.rows(), plain_.value));
}

// What a training run holds of a frozen weight where the back end reads its rows as fast.
TEST(FrozenForms, AreRowsAloneWhereProductsReadThem) {
  ThreadPool threads(1);
  HostDevice device;
  Arena arena(device, 1 << 20);
  const auto stream = device.make_stream();
  std::unique_ptr<Kernels> kernels;
  try {
    kernels = make_cpu_kernels(threads, "x86-64-v3");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  PackedForms fewest(*kernels, arena, FrozenForms::kFewest);
  PackedForms packed(*kernels, arena, FrozenForms::kPacked);
  PackedForms in_rows(*kernels, arena, FrozenForms::kRows);
  const auto form_of = [&](PackedForms& forms, DType dtype, bool trainable, WeightForm form) {
    Parameter parameter;
    parameter.name = "weight";
    parameter.shape = {kOut, kIn};
    parameter.dtype = dtype;
    parameter.trainable = trainable;
    const Tensor rows = host_tensor(dtype, {kOut, kIn});
    const WeightView view = forms.get(parameter, rows, form, *stream);
    forms.drop(parameter, {});
    return view.form;
  };
  for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
    EXPECT_EQ(form_of(fewest, DType::kBF16, false, form), WeightForm::kRows);
    EXPECT_EQ(form_of(fewest, DType::kBF16, true, form), form);
    EXPECT_EQ(form_of(packed, DType::kBF16, false, form), form);
    EXPECT_EQ(form_of(fewest, DType::kF32, false, form), form);
    EXPECT_EQ(form_of(in_rows, DType::kF32, false, form), WeightForm::kRows);
    EXPECT_EQ(form_of(in_rows, DType::kF32, true, form), form);
  }
}

}  // namespace
}  // namespace piton
