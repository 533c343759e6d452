// The updates of a step in a few launches, with the bits of one launch for each span.
#include <gtest/gtest.h>

#include <deque>

#include "comm/mesh.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "optim/optimizer.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

// Chains call by call.
class OneByOne final : public ForwardingKernels {
 public:
  using ForwardingKernels::ForwardingKernels;

 private:
  void submit(const KernelCall& call, Stream& stream) override { inner_.run(call, stream); }
};

struct AfterSteps {
  std::vector<std::vector<std::byte>> tensors;
  std::vector<double> norms;
  std::uint32_t launches = 0;  // of the last step
};

std::vector<std::byte> bytes_of(const Tensor& tensor, Device& device, Stream& stream) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  device.download(tensor, bytes.data(), stream);
  return bytes;
}

// Parameters of many sizes, some of which begin at no multiple of 16 bytes, in two dtypes.
std::deque<Parameter> parameters(int count, bool signs) {
  constexpr std::int64_t kRows[] = {1, 3, 2, 5, 1};
  constexpr std::int64_t kColumns[] = {1, 5, 256, 411, 2048};
  std::deque<Parameter> all;
  for (int i = 0; i < count; ++i) {
    const Shape shape{kRows[i % 5], kColumns[i % 5]};
    Parameter& one = all.emplace_back();
    one.name = fmt::format("p{:03}", i);
    one.dtype = i % 3 == 0 ? DType::kF32 : DType::kBF16;
    one.shape = shape;
    one.pieces = {{.name = one.name,
                   .global = shape,
                   .start = {0, 0},
                   .extent = shape,
                   .local_row = 0,
                   .initialization = {},
                   .decays = i % 2 == 0}};
    if (signs && i == 3) one.sign_rate = 0.01;
  }
  return all;
}

// Two updates, and one that is skipped.
AfterSteps update(Kernels& kernels, Device& device, const OptimizerOptions& options) {
  constexpr int kCount = 110;  // more than a table has
  Arena arena(device);
  const auto stream = device.make_stream();
  const auto world = make_single_world(device);
  Mesh mesh(*world, MeshSizes());
  std::deque<Parameter> all = parameters(kCount, options.kind == OptimizerKind::kAdam);
  std::vector<UpdateSpan> spans;
  test::TensorSource source(5);
  const auto on_device = [&](DType dtype, std::int64_t n, std::int64_t gap) {
    const Tensor host = source.normal(dtype, {n});
    const Tensor memory = arena.allocate(dtype, {n + gap}, MemoryKind::kWorkspace);
    const Tensor part = memory.slice(0, gap, n);
    device.upload(host.raw(), part, *stream);
    return part;
  };
  for (int i = 0; i < kCount; ++i) {
    Parameter& parameter = all[static_cast<std::size_t>(i)];
    if (parameter.sign_rate) parameter.dtype = DType::kF32;
    const std::int64_t n = parameter.elements();
    spans.push_back({.parameter = &parameter,
                     .offset = 0,
                     .gradient = on_device(DType::kF32, n, i % 4 == 1 ? 1 : 0),
                     .value = on_device(parameter.dtype, n, i % 7 == 2 ? 1 : 0)});
  }
  Optimizer optimizer(options, spans, mesh, {kernels, device, arena, *stream},
                      {.norm_block = 1024});
  optimizer.reset_main(*stream);
  AfterSteps after;
  for (int step = 0; step < 3; ++step) {
    if (step == 2) {
      const float infinite = std::numeric_limits<float>::infinity();
      device.upload(&infinite, spans[2].gradient.slice(0, 7, 1), *stream);
    }
    const std::uint32_t before = emulator::running_thread.moment.launch;
    optimizer.step({.learning_rate = 0.01 * (step + 1), .weight_decay = 0.1}, *stream);
    after.launches = emulator::running_thread.moment.launch - before;
    const StepResult result = optimizer.result(*stream);
    EXPECT_EQ(result.skipped, step == 2);
    after.norms.push_back(step == 2 ? 0 : result.grad_norm);
    for (const UpdateSpan& span : spans) {
      after.tensors.push_back(bytes_of(span.value, device, *stream));
    }
  }
  for (const OptimizerState& state : optimizer.state()) {
    after.tensors.push_back(bytes_of(state.main, device, *stream));
    for (const Moment& moment : state.moments) {
      after.tensors.push_back(bytes_of(moment.values, device, *stream));
    }
  }
  return after;
}

// At most `most` launches for the 110 spans of a step.
void expect_few_launches(const OptimizerOptions& options, std::uint32_t most) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  OneByOne one_by_one(*kernels);
  emulator::GuardedKernels guarded(*kernels);
  const AfterSteps wanted = update(one_by_one, *device, options);
  const AfterSteps got = update(guarded, *device, options);
  EXPECT_EQ(got.norms, wanted.norms);
  EXPECT_TRUE(got.tensors == wanted.tensors);
  EXPECT_LE(got.launches, most);
  EXPECT_GT(wanted.launches, 200);
}

TEST(EmulatedSpans, OfAdamwTakeFewLaunches) {
  // Squares 2, the beginning 1, AdamW 3 for each dtype at most, signs 1, averages 3.
  expect_few_launches({.kind = OptimizerKind::kAdam, .average_decay = 0.9}, 12);
}

TEST(EmulatedSpans, OfSgdTakeFewLaunches) {
  expect_few_launches({.kind = OptimizerKind::kSgd}, 8);
  expect_few_launches({.kind = OptimizerKind::kSgd, .sgd_momentum = 0}, 8);
}

TEST(EmulatedSpans, OfCadamTakeFewLaunches) {
  expect_few_launches({.kind = OptimizerKind::kCadam}, 16);
}

}  // namespace
}  // namespace piton::cuda
