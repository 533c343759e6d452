#include "ops/split.h"

#include <gtest/gtest.h>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "ops/rotary.h"
#include "support/counting_kernels.h"
#include "support/tensors.h"

namespace piton {
namespace {

struct Bench {
  HostDevice device;
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<Kernels> reference = make_reference_kernels();
  CountingKernels kernels{*reference};
  ResidentWeights weights{kernels, arena};
  Tape tape;
  Context context{.kernels = kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape};

  Tensor filled(const Shape& shape, double first) {
    Tensor tensor = context.activation(DType::kF32, shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      test::set_value(tensor, i, first + static_cast<double>(i));
    return tensor;
  }
};

TEST(SplitColumns, GradientsOfPartsAreWrittenSideBySide) {
  Bench bench;
  const Value x = bench.tape.leaf(bench.filled({2, 5}, 0));
  const std::vector<Value> parts = split_columns(bench.context, x, {2, 2, 1});
  EXPECT_EQ(test::values(parts[1].tensor), (std::vector<double>{2, 3, 7, 8}));
  const Value end = bench.tape.output(bench.filled({1}, 0));
  bench.tape.record([&](Backward& backward) {
    backward.take(end.id);
    for (const Value& part : parts) {
      const Tensor place = backward.place(part.id, DType::kF32, part.tensor.shape());
      backward.context().kernels.run(Copy{.dst = place, .src = part.tensor}, *bench.stream);
      backward.give(part.id, place);
    }
  });
  bench.tape.seed(end, end.tensor);
  bench.kernels.counts().clear();
  bench.tape.backward(bench.context, Tape::Mode::kWhole);
  EXPECT_EQ(bench.kernels.counts().of(Copy::kName).calls, 3) << "the test's own";
  EXPECT_EQ(test::values(bench.tape.take_gradient(x, bench.context)), test::values(x.tensor));
}

TEST(SplitColumns, TakeGradientsThatWereWrittenElsewhereTwiceOrNotAtAll) {
  Bench bench;
  const Value x = bench.tape.leaf(bench.filled({2, 6}, 0));
  const std::vector<Value> parts = split_columns(bench.context, x, {2, 2, 2});
  const Value end = bench.tape.output(bench.filled({1}, 0));
  bench.tape.record([&](Backward& backward) {
    backward.take(end.id);
    const Tensor place = backward.place(parts[0].id, DType::kF32, {2, 2});
    bench.kernels.run(Copy{.dst = place, .src = bench.filled({2, 2}, 10)}, *bench.stream);
    backward.give(parts[0].id, place);
    backward.give(parts[0].id, bench.filled({2, 1, 2}, 100));  // in another shape
    backward.give(parts[2].id, bench.filled({2, 2}, 50));
  });
  bench.tape.seed(end, end.tensor);
  bench.tape.backward(bench.context, Tape::Mode::kWhole);
  EXPECT_EQ(test::values(bench.tape.take_gradient(x, bench.context)),
            (std::vector<double>{110, 112, 0, 0, 50, 51, 114, 116, 0, 0, 52, 53}));
}

// Turned in place, forward and back: the gradient of a part never leaves its columns.
TEST(Rotary, TurnsTheGradientOfAPartInItsPlace) {
  Bench bench;
  const Value x = bench.tape.leaf(bench.filled({2, 4}, 1));
  const std::vector<double> start = test::values(x.tensor);
  const std::vector<Value> parts = split_columns(bench.context, x, {2, 2});
  RotarySettings quarter{.cosine = bench.filled({1, 1}, 0),
                         .sine = bench.filled({1, 1}, 1),
                         .positions = host_tensor(DType::kI32, {2})};
  const Value turned =
      rotary(bench.context, {parts[1].tensor.split_dim(1, 2), parts[1].id}, quarter);
  EXPECT_EQ(test::values(x.tensor), (std::vector<double>{1, 2, -4, 3, 5, 6, -8, 7}));
  bench.tape.record([&](Backward& backward) {
    const Tensor place = backward.place(turned.id, DType::kF32, {2, 1, 2});
    bench.kernels.run(Copy{.dst = place, .src = turned.tensor}, *bench.stream);
    backward.give(turned.id, place);
  });
  bench.kernels.counts().clear();
  bench.tape.backward(bench.context, Tape::Mode::kWhole);
  EXPECT_EQ(bench.kernels.counts().of(Copy::kName).calls, 2) << "the test's own, and zeros";
  EXPECT_EQ(test::values(bench.tape.take_gradient(x, bench.context)),
            (std::vector<double>{0, 0, start[2], start[3], 0, 0, start[6], start[7]}));
}

// Several ranks that share the rows: tests/ranks/layouts_test.cpp, under sequence parallelism.
TEST(ChosenRows, HaveTheSumOfTheirGradients) {
  HostDevice device;
  Arena arena{device};
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Kernels> kernels = make_reference_kernels();
  const std::unique_ptr<World> world = make_single_world(device);
  const std::unique_ptr<Communicator> alone = make_group_of_all(*world, "alone");
  ResidentWeights weights{*kernels, arena};
  Tape tape;
  Context context{.kernels = *kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape};
  const Tensor rows = context.activation(DType::kF32, {6, 2});
  for (std::int64_t i = 0; i < 12; ++i) test::set_value(rows, i, static_cast<double>(i));
  const Value x = tape.leaf(rows);
  const Tensor ids = context.activation(DType::kI32, {3});
  for (std::int64_t i = 0; i < 3; ++i) test::set_value(ids, i, i == 1 ? 3 : 0);
  const Value y = chosen_rows(context, x, ids, {.group = *alone});
  EXPECT_EQ(test::values(y.tensor), (std::vector<double>{0, 1, 6, 7, 0, 1}));
  const Tensor dy = context.activation(DType::kF32, {3, 2});
  for (std::int64_t i = 0; i < 6; ++i) test::set_value(dy, i, static_cast<double>(i + 1));
  tape.seed(y, dy);
  tape.backward(context, Tape::Mode::kWhole);
  EXPECT_EQ(test::values(tape.take_gradient(x, context)),
            (std::vector<double>{6, 8, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace piton
