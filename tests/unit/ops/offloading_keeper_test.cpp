// What layers keep, elsewhere until its backward: the same gradients, in less memory, from the host
// memory of a device whose work runs late and from a file.
#include "ops/offloading_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/linear/linear.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/split.h"
#include "support/compare.h"
#include "support/delayed_device.h"
#include "support/delayed_kernels.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidth = 32;
constexpr int kBlocks = 6;

// A few blocks of attention, whose q, k and v are views of one buffer, and a gated MLP.
class BlocksOnADevice {
 public:
  BlocksOnADevice(Device& device, Kernels& kernels)
      : device_(device),
        arena_(device, 1 << 16),
        stream_(device.make_stream()),
        weights_(kernels, arena_),
        context_{.kernels = kernels,
                 .stream = *stream_,
                 .device = device_,
                 .arena = arena_,
                 .weights = weights_},
        alone_(make_single_communicator(device, "alone")) {
    test::TensorSource source(3);
    for (int block = 0; block < kBlocks; ++block) {
      const auto add = [&](const char* part, const Shape& shape) {
        Parameter& parameter =
            parameters_.add({.name = fmt::format("{}.{}", block, part), .shape = shape});
        parameter.value = on_device(source.normal(DType::kF32, shape, 0, 0.3));
        parameter.gradient = arena_.allocate(DType::kF32, shape, MemoryKind::kGradients);
        return &parameter;
      };
      layers_.push_back({add("gain", {kWidth}), add("qkv", {3 * kWidth, kWidth}),
                         add("out", {kWidth, kWidth}), add("up", {2 * kWidth, kWidth}),
                         add("down", {kWidth, kWidth})});
    }
    x_ = on_device(source.normal(DType::kF32, {kTokens, kWidth}));
    dy_ = on_device(source.normal(DType::kF32, {kTokens, kWidth}));
  }

  // Gradients after one forward and backward. `again`: blocks are computed again in backward.
  std::vector<Tensor> gradients(Keeper* keeper, Tape::Mode mode, bool again = false) {
    for (Parameter* parameter : parameters_.all()) device_.zero(parameter->gradient, *stream_);
    {
      Tape tape(keeper);
      Context context = context_.with_tape(&tape);
      Value y = tape.leaf(copy_of(x_));
      std::int64_t number = 0;
      for (const Layer& layer : layers_) {
        tape.begin_block(number++);
        const Segment block = [this, layer](Context& inner, const std::vector<Value>& inputs) {
          return std::vector<Value>{forward(inner, inputs[0], layer)};
        };
        y = (again ? recomputed(context, {y}, block) : block(context, {y}))[0];
      }
      tape.seed(y, dy_);
      y.tensor = {};
      tape.backward(context, mode);
      tape.run_weight_jobs(context);
    }
    std::vector<Tensor> all;
    for (Parameter* parameter : parameters_.all()) {
      all.push_back(host_tensor(DType::kF32, parameter->shape));
      device_.download(parameter->gradient, all.back().raw(), *stream_);
    }
    return all;
  }

  Arena& arena() { return arena_; }
  Stream& stream() { return *stream_; }
  std::int64_t activation_peak() const {
    return arena_.counts().peak_bytes[static_cast<int>(MemoryKind::kActivations)];
  }

 private:
  struct Layer {
    Parameter* gain;
    Parameter* qkv;
    Parameter* out;
    Parameter* up;
    Parameter* down;
  };

  Value forward(Context& context, const Value& x, const Layer& layer) {
    const Value normed = rms_norm(context, x, *layer.gain, {.eps = 1e-5});
    const auto wide = [&](const Value& rows, Parameter& weight) {
      return column_linear(context, rows, {weight, *alone_, {}}, {});
    };
    const std::vector<Value> parts =
        split_columns(context, wide(normed, *layer.qkv), {kWidth, kWidth, kWidth});
    const auto heads = [](const Value& part) {  // [4, 16, 2, 16]
      return Value{part.tensor.split_dim(1, 16).split_dim(0, 16), part.id};
    };
    const Value mixed =
        attend(context, {heads(parts[0]), heads(parts[1]), heads(parts[2])}, {}, {.scale = 0.25});
    const Value middle = row_linear(context, mixed, {*layer.out, *alone_, {}}, {.residual = &x});
    const Value active = gated_activation(context, wide(middle, *layer.up), ActivationKind::kSilu);
    return row_linear(context, active, {*layer.down, *alone_, {}}, {.residual = &middle});
  }

  Tensor copy_of(const Tensor& tensor) {
    Tensor copy = context_.activation(tensor.dtype(), tensor.shape());
    context_.kernels.run(Copy{.dst = copy, .src = tensor}, *stream_);
    return copy;
  }
  Tensor on_device(const Tensor& host) {
    Tensor tensor = arena_.allocate(host.dtype(), host.shape(), MemoryKind::kWorkspace);
    device_.upload(host.raw(), tensor, *stream_);
    return tensor;
  }

  Device& device_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  ResidentWeights weights_;
  Context context_;
  std::unique_ptr<Communicator> alone_;
  ParameterList parameters_;
  std::vector<Layer> layers_;
  Tensor x_;
  Tensor dy_;
};

void expect_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(test::bit_equal(got[i], wanted[i])) << "parameter " << i;
  }
}

TEST(OffloadingKeeper, BesideADeviceWhoseWorkRunsLateGivesTheSameGradients) {
  const auto reference = make_reference_kernels();
  for (const auto mode : {Tape::Mode::kWhole, Tape::Mode::kInputOnly}) {
    for (const bool again : {false, true}) {
      SCOPED_TRACE(again ? "computed again" : "kept");
      HostDevice host;
      BlocksOnADevice resident(host, *reference);
      DelayedDevice device(7, /*max_delay_us=*/60);
      DelayedKernels kernels(*reference, device);
      const auto target = OffloadTarget::host_memory(device);
      BlocksOnADevice away(device, kernels);
      OffloadLanes lanes(away.arena(), *target);
      for (int step = 0; step < 3; ++step) {
        OffloadingKeeper keeper(lanes, away.stream(), /*smallest=*/1);
        expect_equal(away.gradients(&keeper, mode, again),
                     resident.gradients(nullptr, mode, again));
      }
      EXPECT_GE(target->peak_bytes(), 4 * kTokens * kWidth * (kBlocks - 1));
    }
  }
}

TEST(OffloadingKeeper, InAFileTakesLessMemory) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  HostDevice host;
  BlocksOnADevice resident(host, *kernels);
  const std::vector<Tensor> wanted = resident.gradients(nullptr, Tape::Mode::kWhole);
  const auto target = OffloadTarget::file(host, dir.path());
  BlocksOnADevice away(host, *kernels);
  OffloadLanes lanes(away.arena(), *target);
  std::int64_t asked = 0;
  for (int step = 0; step < 5; ++step) {
    OffloadingKeeper keeper(lanes, away.stream(), /*smallest=*/1);
    expect_equal(away.gradients(&keeper, Tape::Mode::kWhole), wanted);
    if (step == 1) asked = target->arena().counts().system_allocations;
  }
  EXPECT_EQ(target->arena().counts().system_allocations, asked) << "its slots are used again";
  // Three blocks of six are here at a time: one at work, one on its way out, or one ahead.
  EXPECT_LT(away.activation_peak(), 0.7 * static_cast<double>(resident.activation_peak()));
}

TEST(OffloadingKeeper, LeavesSmallTensorsAndThoseOfTheLastBlock) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  HostDevice host;
  BlocksOnADevice blocks(host, *kernels);
  const auto target = OffloadTarget::file(host, dir.path());
  OffloadLanes lanes(blocks.arena(), *target);
  OffloadingKeeper keeper(lanes, blocks.stream());
  blocks.gradients(&keeper, Tape::Mode::kWhole);
  EXPECT_EQ(target->peak_bytes(), 0) << "none has 64 KiB";
}

TEST(OffloadingKeeper, MovesWhatTheFirstLayersKeep) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  HostDevice host;
  BlocksOnADevice resident(host, *kernels);
  const std::vector<Tensor> wanted = resident.gradients(nullptr, Tape::Mode::kWhole);
  std::vector<std::int64_t> moved;
  for (const std::int64_t layers : {0, 1, 3, 5, 6, 100}) {
    const auto target = OffloadTarget::file(host, dir.path());
    BlocksOnADevice away(host, *kernels);
    OffloadLanes lanes(away.arena(), *target);
    OffloadingKeeper keeper(lanes, away.stream(), /*smallest=*/1, layers);
    expect_equal(away.gradients(&keeper, Tape::Mode::kWhole), wanted);
    moved.push_back(target->peak_bytes());
  }
  EXPECT_LT(moved[0], 2 * 4 * kTokens * kWidth) << "no more than what was kept before them";
  EXPECT_GT(moved[1], moved[0]);
  EXPECT_NEAR(static_cast<double>(moved[2] - moved[1]), static_cast<double>(moved[3] - moved[2]),
              0.2 * static_cast<double>(moved[2]));
  EXPECT_EQ(moved[4], moved[5]);
  EXPECT_EQ(moved[3], moved[4]) << "what the last block keeps stays anyway";
}

TEST(OffloadingKeeper, SaysThatTheFileFails) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  for (const char* call : {"write", "read"}) {
    HostDevice host;
    BlocksOnADevice blocks(host, *kernels);
    const auto target = OffloadTarget::file(
        host, dir.path(), [&](std::string_view made) { return made == call ? EIO : 0; });
    OffloadLanes lanes(blocks.arena(), *target);
    OffloadingKeeper keeper(lanes, blocks.stream(), /*smallest=*/1);
    EXPECT_THAT(message_of(Fault::kData, [&] { blocks.gradients(&keeper, Tape::Mode::kWhole); }),
                HasSubstr(fmt::format("cannot {} offloaded tensors: Input/output error", call)));
  }
}

}  // namespace
}  // namespace piton
