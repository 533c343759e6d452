// Round trips between layouts, and the messages for checkpoints that do not fit.
#include "checkpoint/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

using test::run_ranks;
using test::SmallRun;
using test::state_of;
using test::TestLayout;
using testing::HasSubstr;

namespace fs = std::filesystem;

const std::vector<TestLayout> kLayouts = {
    {.tensor = 1},
    {.tensor = 2},
    {.tensor = 4},
    {.pipeline = 2},
    {.data = 2},
    {.data = 3, .shards = true},
    {.tensor = 2, .pipeline = 2},
    {.tensor = 2, .data = 2, .shards = true},
    {.pipeline = 2, .data = 2, .shards = true},
};

std::string text_of(const TestLayout& layout) {
  return fmt::format("tensor {} pipeline {} data {}{}", layout.tensor, layout.pipeline, layout.data,
                     layout.shards ? " sharded" : "");
}

fs::path saved_at(const fs::path& dir, const TestLayout& layout, int salt,
                  const test::ModelVariant& variant = {}, const SaveOptions& options = {}) {
  run_ranks(layout.ranks(), [&](World& world) {
    SmallRun run(world, layout, variant);
    run.fill(salt);
    save_checkpoint(run.stored(), run.context(), {dir, state_of(salt), "lr = 0.1\n", options});
  });
  return dir / iteration_folder(salt);
}

TEST(Store, GivesEveryLayoutTheSameBytesAndEveryLayoutLoadsThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const test::ModelVariant variant{.dtype = dtype};
    std::string weights, moments, model_bytes;
    std::size_t next_first = 0;
    for (const TestLayout& saved : kLayouts) {
      const TempFolder dir;
      const fs::path folder = saved_at(dir.path(), saved, 100, variant);
      if (weights.empty()) {
        weights = weights_hash(folder);
        moments = optimizer_hash(folder);
        model_bytes = read_text_file(folder / "model-00001.safetensors");
      }
      EXPECT_EQ(weights_hash(folder), weights) << text_of(saved);
      EXPECT_EQ(optimizer_hash(folder), moments) << text_of(saved);
      EXPECT_EQ(read_text_file(folder / "model-00001.safetensors"), model_bytes) << text_of(saved);
      // By day another sixth for each layout that saved.
      for (const TestLayout& loaded : test::sampled(kLayouts, 6, next_first++)) {
        run_ranks(loaded.ranks(), [&](World& world) {
          SmallRun run(world, loaded, variant);
          const TrainState state =
              load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context());
          EXPECT_EQ(run.differences(100), 0) << text_of(saved) << " into " << text_of(loaded);
          EXPECT_EQ(state.iteration, 100);
        });
      }
    }
  }
}

TEST(Store, WritesCanonicalTensorsThatTheEcosystemsFormatDescribes) {
  const TempFolder dir;
  const fs::path folder =
      saved_at(dir.path(), {.tensor = 2, .pipeline = 2}, 7, {.dtype = DType::kBF16});
  const SafetensorsFile model(folder / "model-00001.safetensors");
  EXPECT_EQ(model.entries().size(), 1U + 2 * 11U);
  const Tensor embedding = model.tensor("embedding.weight");
  EXPECT_EQ(to_string(embedding), "bf16 [257, 24]");
  const Tensor key = model.tensor("layers.1.key.weight");
  EXPECT_EQ(to_string(key), "bf16 [12, 24]");
  for (std::int64_t i = 0; i < key.elements(); ++i) {
    ASSERT_EQ(test::value_at(key, i), test::element("layers.1.key.weight", i, 7));
  }
  const SafetensorsFile optimizer(folder / "optimizer-00001.safetensors");
  EXPECT_EQ(optimizer.entries().size(), 3 * model.entries().size());
  for (const char* prefix : {"main.", "exp_avg.", "exp_avg_sq."}) {
    EXPECT_EQ(to_string(optimizer.tensor(std::string(prefix) + "layers.0.down.weight")),
              "fp32 [24, 20]");
  }
  const Manifest manifest = read_manifest(folder);
  EXPECT_EQ(read_config(folder, manifest), "lr = 0.1\n");
  EXPECT_EQ(latest_iteration(dir.path()), 7);
  EXPECT_EQ(read_text_file(dir / kTrackerName), "7\n");
}

TEST(Store, DividesTensorsIntoFilesOfTheSizeAskedFor) {
  const TempFolder dir;
  const fs::path whole = saved_at(dir / "whole", {}, 3);
  const fs::path parts =
      saved_at(dir / "parts", {.tensor = 2}, 3, {}, {.file_bytes = 9000, .hook = {}});
  EXPECT_TRUE(fs::exists(parts / "model-00002.safetensors"));
  for (const StoredFile& file : read_manifest(parts).files) {
    // One tensor larger than the size has a separate file.
    if (file.name.ends_with(".safetensors") &&
        SafetensorsFile(parts / file.name).entries().size() > 1) {
      EXPECT_LE(file.bytes - file.hashed_bytes, 9000) << file.name;
    }
  }
  EXPECT_EQ(weights_hash(parts), weights_hash(whole));
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    load_checkpoint(parts, run.stored(), run.context());
    EXPECT_EQ(run.differences(3), 0);
  });
}

TEST(TrainState, SurvivesTheRoundTripWithEveryField) {
  TrainState state = state_of(12);
  state.optimizer_steps = 11;
  state.skipped_steps = 1;
  EXPECT_EQ(parse_train_state(to_json(state), "x"), state);
  state.scheduled_samples = 44;
  state.loss_scale = 65536;
  state.good_updates = 7;
  state.hysteresis_left = -2;
  state.spike_history = {3, 0.1, 1.0 / 3, 2e-17};
  EXPECT_EQ(parse_train_state(to_json(state), "x"), state);
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json json = read_json<nlohmann::json>(to_json(state));
    json[key] = value;
    return message_of(Fault::kData, [&] { parse_train_state(json.dump(), "s"); });
  };
  EXPECT_THAT(refused("loss_scale", 0), HasSubstr("\"loss_scale\" is 0, wanted a number above 0"));
  EXPECT_THAT(refused("good_updates", -1), HasSubstr("\"good_updates\" is -1"));
  EXPECT_THAT(refused("hysteresis_left", 0.5), HasSubstr("\"hysteresis_left\" is 0.5"));
  EXPECT_THAT(refused("spike_history", {-1, 2}), HasSubstr("begins with no count"));
  EXPECT_THAT(refused("spike_history", {1, "x"}), HasSubstr("holds what is no number"));
  EXPECT_THAT(refused("scheduled_samples", "x"), HasSubstr("\"scheduled_samples\""));
  state.lm_loss = std::nan("");
  EXPECT_TRUE(std::isnan(parse_train_state(to_json(state), "x").lm_loss));
  EXPECT_THAT(
      message_of(Fault::kData, [] { parse_train_state("{\"iteration\": -1}", "state.json"); }),
      HasSubstr("state.json: \"iteration\" is -1, wanted a whole number"));
  EXPECT_THAT(message_of(Fault::kData, [] { parse_train_state("{\"iteration\": 1}", "s"); }),
              HasSubstr("\"consumed_samples\" is missing"));
}

TEST(Store, LoadsWeightsAloneAndConvertsTheirType) {
  const TempFolder dir;
  const fs::path folder = saved_at(dir.path(), {}, 5, {.dtype = DType::kBF16});
  run_ranks(2, [&](World& world) {
    SmallRun run(world, {.tensor = 2});  // fp32
    const auto versions = run.model.list().all()[0]->version;
    load_checkpoint(folder, run.stored(false), run.context());
    EXPECT_EQ(run.differences(5, false), 0);
    EXPECT_GT(run.model.list().all()[0]->version, versions);
  });
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    EXPECT_THAT(
        message_of(Fault::kData, [&] { load_checkpoint(folder, run.stored(), run.context()); }),
        HasSubstr("embedding.weight is bf16, this model has fp32"));
  });
}

TEST(Store, SavesWeightsAloneAndSaysSoWhenARunWouldContinueFromThem) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    run.fill(4);
    const fs::path folder =
        save_checkpoint(run.stored(false), run.context(), {dir.path(), state_of(4), "", {}});
    EXPECT_FALSE(fs::exists(folder / "optimizer-00001.safetensors"));
    EXPECT_EQ(optimizer_hash(folder), "");
    EXPECT_THAT(
        message_of(Fault::kData, [&] { load_checkpoint(folder, run.stored(), run.context()); }),
        HasSubstr("it holds no optimizer state"));
    load_checkpoint(folder, run.stored(false), run.context());
  });
}

TEST(Store, ListsTensorsOfAnotherShapeMissingOnesAndUnknownOnes) {
  const TempFolder dir;
  const fs::path folder = saved_at(dir.path(), {.tensor = 2}, 1);
  run_ranks(1, [&](World& world) {
    SmallRun wider(world, {}, {.ffn = 28});
    wider.fill(9);
    EXPECT_EQ(
        message_of(Fault::kData,
                   [&] { load_checkpoint(folder, wider.stored(false), wider.context()); }),
        "checkpoint: " + folder.string() +
            ": layers.0.down.weight is [24, 20], this model has [24, 28], layers.0.gate.weight is "
            "[20, 24], this model has [28, 24], layers.0.up.weight is [20, 24], this model has "
            "[28, 24], "
            "layers.1.down.weight is [24, 20], this model has [24, 28], layers.1.gate.weight is "
            "[20, 24], "
            "this model has [28, 24], layers.1.up.weight is [20, 24], this model has [28, 24]; is "
            "the "
            "checkpoint from another size of this model?");
    EXPECT_EQ(wider.differences(9), 0)
        << "nothing may be loaded from a checkpoint that does not fit";
    SmallRun bare(world, {}, {.biases = false});
    EXPECT_THAT(
        message_of(Fault::kData,
                   [&] { load_checkpoint(folder, bare.stored(false), bare.context()); }),
        HasSubstr("6 tensors are not of this model: layers.0.key.bias, layers.0.query.bias, "));
  });
  const fs::path without = saved_at(dir / "bare", {}, 1, {.biases = false});
  run_ranks(2, [&](World& world) {
    SmallRun run(world, {.pipeline = 2});
    EXPECT_THAT(
        message_of(Fault::kData, [&] { load_checkpoint(without, run.stored(), run.context()); }),
        HasSubstr(
            "6 tensors are missing: layers.0.key.bias, layers.0.query.bias, layers.0.value.bias, "
            "layers.1.key.bias"));
  });
}

TEST(Store, KeepsAsManyCheckpointsAsAskedFor) {
  const TempFolder dir;
  for (int salt : {1, 2, 3, 4}) saved_at(dir.path(), {}, salt, {}, {.keep = 2, .hook = {}});
  EXPECT_FALSE(fs::exists(dir / "iter_0000001"));
  EXPECT_FALSE(fs::exists(dir / "iter_0000002"));
  EXPECT_TRUE(fs::exists(dir / "iter_0000003"));
  EXPECT_TRUE(fs::exists(dir / "iter_0000004"));
}

TEST(Store, KeepsMultiplesOfTheRetainedInterval) {
  const TempFolder dir;
  const SaveOptions options{.keep = 1, .retain_interval = 2, .hook = {}};
  for (int salt : {1, 2, 3, 4, 5}) saved_at(dir.path(), {}, salt, {}, options);
  for (const int iteration : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(fs::exists(dir / iteration_folder(iteration)), iteration != 1 && iteration != 3);
  }
}

TEST(Store, ReplacesACheckpointOfTheSameIteration) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    for (int salt : {20, 30}) {
      run.fill(salt);
      save_checkpoint(run.stored(), run.context(), {dir.path(), state_of(5), "", {}});
    }
    run.fill(1);
    load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context());
    EXPECT_EQ(run.differences(30), 0);
    EXPECT_FALSE(fs::exists(dir / "iter_0000005.tmp"));
  });
}

TEST(FindCheckpoint, TakesAFolderOfCheckpointsOrOneOfThem) {
  const TempFolder dir;
  EXPECT_EQ(latest_iteration(dir.path()), std::nullopt);
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("no checkpoint"));
  write_text_file(dir / "file", "");
  EXPECT_EQ(message_of(Fault::kData, [&] { find_checkpoint(dir / "file"); }),
            (dir / "file").string() + ": is a file, wanted the folder of a run or of a model");
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir / "absent"); }),
              HasSubstr("there is no such folder"));
  write_text_file(dir / "latest_checkpointed_iteration.txt", "release");
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("names release, and no checkpoint of Megatron is there"));
  write_text_file(dir / "latest_checkpointed_iteration.txt", "5x\nmore");
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("got \"5x\", wanted the number of an iteration"));
  fs::remove(dir / "latest_checkpointed_iteration.txt");
  if (::geteuid() != 0) {
    fs::create_directory(dir / "closed");
    fs::permissions(dir / "closed", fs::perms::none);
    EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir / "closed"); }),
                HasSubstr("closed: cannot open: Permission denied"));
  }
  const fs::path folder = saved_at(dir.path(), {}, 6);
  EXPECT_EQ(find_checkpoint(dir.path()), folder);
  EXPECT_EQ(find_checkpoint(folder), folder);
  // Left by a save that was cut off while it replaced this very iteration.
  fs::rename(folder, dir / "iter_0000006.replaced");
  EXPECT_EQ(find_checkpoint(dir.path()), dir / "iter_0000006.replaced");
  saved_at(dir.path(), {}, 8);
  EXPECT_TRUE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(dir / "iter_0000006.replaced"));
  fs::remove_all(dir / "iter_0000008");
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("names iteration 8, but there is no iter_0000008"));
  std::ofstream(dir / kTrackerName) << "release\n";
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("names release, and no checkpoint"));
}

TEST(Store, MakesPrivateFilesWhateverTheUmask) {
  for (const mode_t mask : {0000, 0022, 0027, 0077}) {
    const TempFolder dir;
    const mode_t before = ::umask(mask);
    saved_at(dir / "new/dir", {}, 2);
    ::umask(before);
    int files = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(dir.path())) {
      const bool is_file = entry.is_regular_file();
      files += is_file ? 1 : 0;
      EXPECT_EQ(static_cast<int>(entry.status().permissions()), is_file ? 0640 : 0750)
          << entry.path() << " under umask " << mask;
    }
    EXPECT_GE(files, 6);
  }
}

}  // namespace
}  // namespace piton
