// Ops keep tensors for backward only as handles: with a keeper that moves every kept tensor
// elsewhere and drops the original, the gradients are the same.
#include "ops/kept.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/reference/kernels.h"
#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/linear/linear.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "support/compare.h"
#include "support/delayed_device.h"
#include "support/delayed_kernels.h"

namespace piton {
namespace {

// Copies each tensor to an arena of another place, in stream order, and brings it back for every
// use.
class Offloading final : public Keeper {
 public:
  Offloading(Arena& away, Context& home) : away_(away), home_(home) {}

  std::shared_ptr<KeptTensor> keep(const Tensor& tensor) override {
    ++kept;
    return std::make_shared<Away>(*this, tensor);
  }

  int kept = 0;
  int fetched = 0;

 private:
  void copy(const Tensor& dst, const Tensor& src) {
    home_.device.copy(dst, src, home_.stream);
    away_.hold(dst, home_.stream.record().fence());  // of the two, `away_` knows its own
    away_.hold(src, home_.stream.record().fence());
  }

  class Away final : public KeptTensor {
   public:
    Away(Offloading& keeper, const Tensor& tensor)
        : keeper_(keeper),
          stored_(keeper.away_.allocate(tensor.dtype(), tensor.shape(), MemoryKind::kActivations,
                                        keeper.home_.stream)) {
      keeper.copy(stored_, tensor);
    }
    Tensor get() override {
      ++keeper_.fetched;
      Tensor back = keeper_.home_.activation(stored_.dtype(), stored_.shape());
      keeper_.copy(back, stored_);
      return back;
    }

   private:
    Offloading& keeper_;
    Tensor stored_;
  };

  Arena& away_;
  Context& home_;
};

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kHidden = 16;

class Kept : public testing::Test {
 protected:
  Kept() {
    test::TensorSource source(3);
    const auto matrix = [&](const char* name, std::int64_t out, std::int64_t in) {
      return &add(name, source.normal(DType::kF32, {out, in}));
    };
    table_ = matrix("table", 20, kHidden);
    up_ = matrix("up", 2 * kHidden, kHidden);
    down_ = matrix("down", kHidden, kHidden);
    gain_ = &add("gain", source.normal(DType::kF32, {kHidden}));
    bias_ = &add("bias", source.normal(DType::kF32, {kHidden}));
    ids_ = on_device(source.integers({kRows}, 0, 19));
    dy_ = on_device(source.normal(DType::kF32, {kRows, kHidden}));
  }

  Parameter& add(const char* name, const Tensor& value) {
    Parameter& parameter = parameters_.add({.name = name, .shape = value.shape()});
    parameter.value = on_device(value);
    parameter.gradient = arena_.allocate(DType::kF32, value.shape(), MemoryKind::kGradients);
    return parameter;
  }

  Tensor on_device(const Tensor& host) {
    Tensor tensor = arena_.allocate(host.dtype(), host.shape(), MemoryKind::kWorkspace);
    device_.upload(host.raw(), tensor, *stream_);
    return tensor;
  }

  // Embedding, norm, gated linears in a recomputed segment, a residual and an activation.
  Value forward(Context& context) {
    const Value x = token_embedding(context, ids_, {.table = *table_, .group = *alone_});
    const Value normed = layer_norm(context, x, *gain_, bias_, {.eps = 1e-5});
    const std::vector<Value> branch =
        recomputed(context, {normed}, [this](Context& inner, const auto& inputs) {
          const Value both = column_linear(inner, inputs[0], {*up_, *alone_, {}}, {});
          return std::vector<Value>{gated_activation(inner, both, ActivationKind::kSilu)};
        });
    const Value sum = row_linear(context, branch[0], {*down_, *alone_, {}}, {.residual = &x});
    return activated(context, sum, sum.tensor, ActivationKind::kGeluTanh);
  }

  // All gradients after one forward and backward with `keeper`.
  std::vector<Tensor> gradients(Keeper* keeper, Tape::Mode mode) {
    for (Parameter* parameter : parameters_.all()) {
      device_.zero(parameter->gradient, *stream_);
    }
    Tape tape(keeper);
    Context context = context_.with_tape(&tape);
    const Value y = forward(context);
    tape.seed(y, dy_);
    tape.backward(context, mode);
    tape.run_weight_jobs(context);
    std::vector<Tensor> all;
    for (Parameter* parameter : parameters_.all()) {
      all.push_back(host_tensor(DType::kF32, parameter->shape));
      device_.download(parameter->gradient, all.back().raw(), *stream_);
    }
    return all;
  }

  // Home is a device whose memory the host cannot read and whose work runs late; away is the host.
  DelayedDevice device_{5, /*max_delay_us=*/50};
  Arena arena_{device_, 1 << 20};
  Arena away_{device_.host_memory(), 1 << 20};
  std::unique_ptr<Kernels> reference_ = make_reference_kernels();
  std::unique_ptr<Kernels> kernels_ = std::make_unique<DelayedKernels>(*reference_, device_);
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  ResidentWeights weights_{*kernels_, arena_};
  Context context_{.kernels = *kernels_,
                   .stream = *stream_,
                   .device = device_,
                   .arena = arena_,
                   .weights = weights_};
  std::unique_ptr<Communicator> alone_ = make_single_communicator(device_, "alone");
  ParameterList parameters_;
  Parameter* table_;
  Parameter* up_;
  Parameter* down_;
  Parameter* gain_;
  Parameter* bias_;
  Tensor ids_;
  Tensor dy_;
};

TEST_F(Kept, OnAnotherDeviceGivesTheSameGradients) {
  for (const Tape::Mode mode : {Tape::Mode::kWhole, Tape::Mode::kInputOnly}) {
    const std::vector<Tensor> resident = gradients(nullptr, mode);
    Offloading keeper(away_, context_);
    const std::vector<Tensor> offloaded = gradients(&keeper, mode);
    EXPECT_GE(keeper.kept, 6);
    EXPECT_GE(keeper.fetched, 6);
    for (std::size_t i = 0; i < resident.size(); ++i) {
      EXPECT_TRUE(test::bit_equal(offloaded[i], resident[i])) << parameters_.all()[i]->name;
    }
    EXPECT_GT(away_.counts().peak_total_bytes, 0);
    EXPECT_EQ(away_.counts().in_use_bytes[static_cast<int>(MemoryKind::kActivations)], 0);
  }
}

TEST_F(Kept, NothingIsAnEmptyTensor) {
  Tape tape;
  EXPECT_FALSE(tape.keep({}).defined());
  EXPECT_FALSE(tape.keep({}).get().defined());
}

TEST_F(Kept, MayBeOverwrittenOnceItsHandleIsGone) {
  Tape tape;
  const Tensor tensor = context_.activation(DType::kF32, {4, 8});
  {
    const piton::Kept kept = tape.keep(tensor.slice(0, 1, 1));
    tape.overwrite(tensor.slice(0, 2, 2));  // other rows
    EXPECT_DEATH(tape.overwrite(tensor), "writes to fp32 \\[4, 8\\] in place");
  }
  tape.overwrite(tensor);
}

}  // namespace
}  // namespace piton
