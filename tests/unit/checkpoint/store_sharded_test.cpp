// A run over real shards: stopped, saved, loaded and continued is the run that never stopped, for
// every ZeRO stage, and its checkpoint is the same for all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/store.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

using test::run_ranks;
using test::TestLayout;

// One rank of a run under ShardedParameters. The norm's blocks are the real ones, so parameters
// here have several of them.
struct ShardedRun {
  ShardedRun(World& world, const TestLayout& layout, int zero_stage, DType dtype,
             const OptimizerOptions& options = {})
      : mesh(world, layout.sizes()) {
    const int t = layout.tensor;
    const int i = mesh.coordinate(Axis::kTensor);
    Parameter down;  // split by columns: [96, 600/t]
    down.name = "down.weight";
    down.shape = {96, 600 / t};
    down.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 1, false};
    down.pieces = {piece("down.weight", {96, 600}, {0, 600 / t * i}, {96, 600 / t}, true)};
    Parameter norm;
    norm.name = "norm.weight";
    norm.shape = {96};
    norm.pieces = {piece("norm.weight", {96}, {0}, {96}, false)};
    Parameter frozen;
    frozen.name = "frozen.weight";
    frozen.shape = {40, 1000};
    frozen.pieces = {piece("frozen.weight", {40, 1000}, {0, 0}, {40, 1000}, true)};
    frozen.trainable = false;
    for (Parameter* parameter : {&down, &norm, &frozen}) {
      parameter->dtype = dtype;
      parameter->contributions = parameter->trainable ? 1 : 0;
      parameter->placement[Axis::kData].gradient_is_partial = true;
      list.add(*parameter);
    }
    sharded =
        ShardedParameters::make(zero_stage, list.all(), mesh, *kernels, device, arena, *stream);
    set_values(1);
    optimizer = std::make_unique<Optimizer>(options, update_spans(sharded->owned()), kNormBlock,
                                            mesh, *kernels, device, arena, *stream);
    optimizer->reset_main(*stream);
  }

  static Piece piece(const std::string& name, Shape global, Shape start, Shape extent,
                     bool decays) {
    Piece piece;
    piece.name = name;
    piece.global = global;
    piece.start = start;
    piece.extent = extent;
    piece.decays = decays;
    return piece;
  }

  void set_values(int salt) {
    for (Parameter* parameter : list.all()) {
      const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
      test::for_each_element(*parameter,
                             [&](std::int64_t local, const std::string& name, std::int64_t index) {
                               test::set_value(rows, local, test::element(name, index, salt));
                             });
      sharded->set_value(*parameter, rows, *stream);
    }
    sharded->publish_values(*stream);
  }

  // Gradients that depend on the step and on the value, so that an error goes on growing.
  void step(int number) {
    sharded->begin_step(1, *stream);
    for (Parameter* parameter : list.all()) {
      if (!parameter->trainable) continue;
      const Tensor value = sharded->whole_value(*parameter, *stream);
      const Tensor gradient = sharded->gradient(*parameter, *stream);
      test::for_each_element(*parameter, [&](std::int64_t local, const std::string& name,
                                             std::int64_t index) {
        // Rank 0 alone has data: the sum over ranks is exact.
        const double g = test::element(name, index, 100 + number) + test::value_at(value, local);
        test::set_value(gradient, local, mesh.coordinate(Axis::kData) == 0 ? g : 0);
      });
      sharded->contribute(*parameter, *stream);
    }
    sharded->finish_gradients(*stream);
    optimizer->step(0.01 / number, *stream);
    sharded->publish_values(*stream);
    optimizer->result(*stream);
  }

  StoredModel stored() { return {list.all(), sharded.get(), optimizer.get()}; }
  StoreContext context() { return {mesh, device, arena, *stream}; }

  HostDevice device;
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<Kernels> kernels = make_reference_kernels();
  Mesh mesh;
  ParameterList list;
  std::unique_ptr<ShardedParameters> sharded;
  std::unique_ptr<Optimizer> optimizer;
};

TEST(Resume, IsBitExactForEveryZeroStageAndFromEveryOther) {
  const OptimizerOptions adam;
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd};
  const OptimizerOptions plain{.kind = OptimizerKind::kSgd, .sgd_momentum = 0};
  for (const auto& [options, dtype] : {std::pair{&adam, DType::kF32},
                                       {&adam, DType::kBF16},
                                       {&sgd, DType::kF32},
                                       {&sgd, DType::kBF16},
                                       {&plain, DType::kF32},
                                       {&plain, DType::kBF16}}) {
    const TempFolder dir;
    std::string weights, moments;
    const auto check = [&](const std::filesystem::path& folder, int stage, const char* what) {
      if (weights.empty()) {
        weights = weights_hash(folder);
        moments = optimizer_hash(folder);
      }
      EXPECT_EQ(weights_hash(folder), weights) << what << ", ZeRO stage " << stage;
      EXPECT_EQ(optimizer_hash(folder), moments) << what << ", ZeRO stage " << stage;
    };
    const TestLayout layout{.data = 3};
    for (const int stage : {0, 1, 2, 3}) {
      const std::string name = "straight" + std::to_string(stage);
      run_ranks(layout.ranks(), [&](World& world) {
        ShardedRun run(world, layout, stage, dtype, *options);
        for (int number = 1; number <= 4; ++number) {
          run.step(number);
          if (number % 2 == 0) {
            save_checkpoint(dir / name, run.stored(), run.context(), test::state_of(number), "");
          }
        }
      });
      check(dir / name / "iter_0000004", stage, "never stopped");
    }
    for (const int stage : {0, 1, 2, 3}) {
      // From the checkpoint of another stage.
      const std::filesystem::path from =
          dir / ("straight" + std::to_string((stage + 1) % 4)) / "iter_0000002";
      const std::string name = "resumed" + std::to_string(stage);
      run_ranks(layout.ranks(), [&](World& world) {
        ShardedRun run(world, layout, stage, dtype, *options);
        run.set_values(77);
        load_checkpoint(from, run.stored(), run.context());
        for (int number = 3; number <= 4; ++number) run.step(number);
        save_checkpoint(dir / name, run.stored(), run.context(), test::state_of(4), "");
      });
      check(dir / name / "iter_0000004", stage, "stopped and continued");
    }
  }
}

TEST(Resume, NamesAnOptimizerThatIsAnother) {
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd};
  const OptimizerOptions plain{.kind = OptimizerKind::kSgd, .sgd_momentum = 0};
  const TempFolder dir;
  const auto refusal = [&](const char* name, const OptimizerOptions& saved,
                           const OptimizerOptions& loaded) {
    std::string message;
    run_ranks(1, [&](World& world) {
      ShardedRun from(world, {}, 0, DType::kF32, saved);
      from.step(1);
      const auto folder =
          save_checkpoint(dir / name, from.stored(), from.context(), test::state_of(1), "");
      ShardedRun to(world, {}, 0, DType::kF32, loaded);
      message =
          message_of(Fault::kData, [&] { load_checkpoint(folder, to.stored(), to.context()); });
    });
    return message;
  };
  EXPECT_THAT(refusal("a", {}, sgd),
              testing::HasSubstr("got the state of another optimizer (exp_avg, exp_avg_sq), "
                                 "wanted momentum_buffer"));
  EXPECT_THAT(refusal("b", sgd, {}),
              testing::HasSubstr("(momentum_buffer), wanted exp_avg, exp_avg_sq"));
  EXPECT_THAT(refusal("c", sgd, plain), testing::HasSubstr("wanted nothing but weights"));
}

TEST(Resume, ContinuesOnAnotherNumberOfRanksFromTheSameNumbers) {
  const TempFolder dir;
  run_ranks(4, [&](World& world) {
    ShardedRun run(world, {.tensor = 2, .data = 2}, 3, DType::kBF16);
    run.step(1);
    save_checkpoint(dir / "a", run.stored(), run.context(), test::state_of(1), "");
  });
  const auto from = find_checkpoint(dir / "a");
  for (const TestLayout& layout : {TestLayout{.tensor = 4}, TestLayout{.data = 3}, TestLayout{}}) {
    const std::string name = std::to_string(layout.tensor) + std::to_string(layout.data);
    run_ranks(layout.ranks(), [&](World& world) {
      ShardedRun run(world, layout, 1, DType::kBF16);
      load_checkpoint(from, run.stored(), run.context());
      EXPECT_EQ(run.optimizer->steps(), 1);
      save_checkpoint(dir / name, run.stored(), run.context(), test::state_of(1), "");
    });
    EXPECT_EQ(weights_hash(dir / name / "iter_0000001"), weights_hash(from));
    EXPECT_EQ(optimizer_hash(dir / name / "iter_0000001"), optimizer_hash(from));
  }
}

}  // namespace
}  // namespace piton
