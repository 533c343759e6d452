// State that is elsewhere between updates: the same bits as on the device, for every rule, from a
// file and from the host memory of a device whose work runs late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "optim/optimizer.h"
#include "support/compare.h"
#include "support/delayed_device.h"
#include "support/delayed_kernels.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using testing::HasSubstr;

// Longer than two pieces of a transfer, and no multiple of one.
constexpr std::int64_t kLongVector = (std::int64_t{5} << 19) + 7;

Parameter parameter_of(const std::string& name, const Shape& shape, DType dtype) {
  Parameter parameter;
  parameter.name = name;
  parameter.dtype = dtype;
  parameter.shape = shape;
  Shape start = shape;
  for (int dim = 0; dim < shape.ndim(); ++dim) start[dim] = 0;
  parameter.pieces = {{.name = name,
                       .global = shape,
                       .start = start,
                       .extent = shape,
                       .local_row = 0,
                       .initialization = {},
                       .decays = shape.ndim() == 2}};
  return parameter;
}

// A model of three parameters, and an optimizer of it.
class Updated {
 public:
  Updated(const OptimizerOptions& options, DType dtype, std::int64_t long_vector, Device& device,
          Kernels& kernels, OffloadTarget* target)
      : device_(device),
        arena_(device, 1 << 20),
        stream_(device.make_stream()),
        world_(make_single_world(device)),
        mesh_(*world_, MeshSizes()) {
    parameters_.push_back(parameter_of("matrix", {6, 20}, dtype));
    parameters_.push_back(parameter_of("bias", {7}, dtype));
    parameters_.push_back(parameter_of("long", {long_vector}, dtype));
    test::TensorSource source(5);
    for (Parameter& parameter : parameters_) {
      const Shape flat{parameter.elements()};
      spans_.push_back({&parameter, 0, on_device(host_tensor(DType::kF32, flat)),
                        on_device(source.normal(dtype, flat))});
    }
    optimizer_ = std::make_unique<Optimizer>(options, spans_, mesh_,
                                             ComputeContext{kernels, device, arena_, *stream_},
                                             OptimizerSetup{.norm_block = 1000, .offload = target});
    optimizer_->reset_main(*stream_);
  }

  void step(int number) {
    test::TensorSource source(100 + number);
    for (const UpdateSpan& span : spans_) {
      const Tensor gradient = source.normal(DType::kF32, span.gradient.shape());
      device_.upload(gradient.raw(), span.gradient, *stream_);
    }
    optimizer_->step({.learning_rate = 0.01, .weight_decay = 0.1}, *stream_);
    optimizer_->result(*stream_);
  }

  // Values, main copies and moments.
  std::vector<Tensor> all() {
    std::vector<Tensor> tensors;
    for (const UpdateSpan& span : spans_) tensors.push_back(downloaded(span.value, device_));
    for (const OptimizerState& state : optimizer_->state()) {
      if (!state.main_is_value) tensors.push_back(of_state(state.main));
      for (const Moment& moment : state.moments) tensors.push_back(of_state(moment.values));
    }
    return tensors;
  }

  std::int64_t state_bytes_here() const {
    return arena_.counts().peak_bytes[static_cast<int>(MemoryKind::kOptimizer)];
  }

 private:
  Tensor on_device(const Tensor& host) {
    Tensor tensor = arena_.allocate(host.dtype(), host.shape(), MemoryKind::kParameters);
    device_.upload(host.raw(), tensor, *stream_);
    return tensor;
  }
  Tensor of_state(const Tensor& tensor) {
    stream_->synchronize();
    return tensor.place().kind == DeviceKind::kHost
               ? tensor
               : downloaded(tensor, optimizer_->state_device());
  }
  Tensor downloaded(const Tensor& tensor, Device& from) {
    Tensor copy = host_tensor(tensor.dtype(), tensor.shape());
    from.download(tensor, copy.raw(), *stream_);
    return copy;
  }

  Device& device_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<World> world_;
  Mesh mesh_;
  std::deque<Parameter> parameters_;
  std::vector<UpdateSpan> spans_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<OptimizerOptions> every_rule() {
  return {{.kind = OptimizerKind::kAdam},
          {.kind = OptimizerKind::kSgd},
          {.kind = OptimizerKind::kSgd, .sgd_momentum = 0},
          {.kind = OptimizerKind::kMuon},
          {.kind = OptimizerKind::kAdam, .average_decay = 0.9},
          {.kind = OptimizerKind::kSgd, .sgd_momentum = 0, .average_decay = 0.9},
          {.kind = OptimizerKind::kMuon, .average_decay = 0.9},
          {.first_moment = DType::kBF16, .second_moment = DType::kBF16}};
}

void expect_same(Updated& offloaded, Updated& resident) {
  const std::vector<Tensor> got = offloaded.all();
  const std::vector<Tensor> wanted = resident.all();
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(test::bit_equal(got[i], wanted[i])) << "tensor " << i;
  }
}

TEST(OffloadedState, InAFileGivesTheSameBitsForEveryRule) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  int number = 0;
  for (const OptimizerOptions& options : every_rule()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("rule {} in {}", number++, name(dtype)));
      HostDevice host;
      const bool longer = test::nightly() ? number < 3 : number == 2;
      const std::int64_t size = longer ? kLongVector : 100;
      Updated resident(options, dtype, size, host, *kernels, nullptr);
      const auto target = OffloadTarget::file(host, dir.path());
      Updated offloaded(options, dtype, size, host, *kernels, target.get());
      expect_same(offloaded, resident);
      for (int step = 0; step < 3; ++step) {
        resident.step(step);
        offloaded.step(step);
      }
      expect_same(offloaded, resident);
      const bool has_state =
          options.average_decay || options.sgd_momentum > 0 || dtype == DType::kBF16;
      EXPECT_EQ(target->peak_bytes() > 0, has_state);
      EXPECT_LT(offloaded.state_bytes_here(), 64 << 10) << "block sums and scalars alone";
    }
  }
}

TEST(OffloadedState, BesideADeviceWhoseWorkRunsLateGivesTheSameBits) {
  const auto reference = make_reference_kernels();
  int number = 0;
  for (const OptimizerOptions& options : every_rule()) {
    SCOPED_TRACE(fmt::format("rule {}", number++));
    HostDevice host;
    Updated resident(options, DType::kBF16, 100, host, *reference, nullptr);
    DelayedDevice device(3, /*max_delay_us=*/100);
    DelayedKernels kernels(*reference, device);
    const auto target = OffloadTarget::host_memory(device);
    Updated offloaded(options, DType::kBF16, 100, device, kernels, target.get());
    for (int step = 0; step < 3; ++step) {
      resident.step(step);
      offloaded.step(step);
    }
    expect_same(offloaded, resident);
  }
}

TEST(OffloadedState, EndsAStepWhoseFileFails) {
  const TempFolder dir;
  const auto kernels = make_reference_kernels();
  for (const char* call : {"read", "write"}) {
    HostDevice host;
    bool broken = false;
    const auto target = OffloadTarget::file(
        host, dir.path(), [&](std::string_view made) { return broken && made == call ? EIO : 0; });
    Updated offloaded({}, DType::kBF16, 100, host, *kernels, target.get());
    offloaded.step(0);
    broken = true;
    const std::string message = message_of(Fault::kData, [&] { offloaded.step(1); });
    EXPECT_THAT(message, HasSubstr(fmt::format("cannot {} offloaded tensors: Input/output", call)));
  }
}

}  // namespace
}  // namespace piton
