// Reading runs of tensors: gives the same elements as reading by index, reads no more of a source
// than the rank stores, and throws if a file cannot be read.
#include "checkpoint/tensor_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "base/files/files.h"
#include "base/hash.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/load_values.h"
#include "checkpoint/native_source.h"
#include "checkpoint/values.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_run.h"

namespace piton {
namespace {

using test::run_ranks;
using test::ShardedRun;
using test::SmallRun;
using test::TestLayout;
using testing::HasSubstr;

// Counts what is asked of another source, in bytes as they are stored.
class CountingSource final : public TensorSource {
 public:
  explicit CountingSource(TensorSource& inner) : inner_(inner) {
    for (const TensorKind kind : {TensorKind::kWeight, TensorKind::kOptimizer}) {
      for (const CanonicalTensor& one : inner.tensors(kind))
        widths_[one.name] = size_bytes(one.dtype);
    }
  }
  std::string where() const override { return inner_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return inner_.tensors(kind);
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    bytes[name] += run.size() * widths_.at(name);
    inner_.read(name, run, dtype, dst);
  }

  std::map<std::string, std::int64_t> bytes;  // by tensor

 private:
  TensorSource& inner_;
  std::map<std::string, std::int64_t> widths_;
};

TEST(FileTensor, GivesTheElementsOfAnyRunInAnyType) {
  // Gaps between the stretches of some columns: small ones are read over, large ones are not.
  const std::vector<Shape> shapes = {{700'001}, {37, 11}, {300, 5000}, {9, 4, 700}, {40, 3, 7}};
  const TempFolder dir;
  std::mt19937 random(3);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  test::TensorSource values(4);
  for (const Shape& shape : shapes) {
    for (const DType stored : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const Tensor tensor = values.normal(stored, shape);
      write_text_file(dir / "f",
                      "seven b" + std::string(reinterpret_cast<const char*>(tensor.raw()),
                                              static_cast<std::size_t>(tensor.bytes())));
      const RegularFile file(dir / "f");
      const FileTensor in_file{.file = file, .offset = 7, .dtype = stored, .shape = shape};
      for (int round = 0; round < 12 / test::one_of(3); ++round) {
        TensorRun run = whole_run(shape);
        for (int dim = 0; dim < std::min(shape.ndim(), 2); ++dim) {
          if (round == 0) break;
          run.start[dim] = below(shape[dim]);
          run.extent[dim] = 1 + below(shape[dim] - run.start[dim]);
        }
        run.begin = round < 2 ? 0 : below(run.extent.elements());
        run.end = round < 2 ? run.extent.elements()
                            : run.begin + below(run.extent.elements() - run.begin + 1);
        const DType wanted =
            round % 3 == 0 ? stored : std::array{DType::kF32, DType::kBF16}[round % 2];
        // By indices, one element at a time.
        std::vector<std::byte> expected(static_cast<std::size_t>(run.size() * size_bytes(wanted)));
        std::int64_t inner = 1;
        for (int dim = 1; dim < shape.ndim(); ++dim) inner *= shape[dim];
        std::int64_t columns = 1;
        for (int dim = 1; dim < shape.ndim(); ++dim) columns *= run.extent[dim];
        const std::int64_t last = shape.ndim() > 2 ? shape[2] : 1;
        const std::int64_t first = shape.ndim() > 1 ? run.start[1] * last : 0;
        for (std::int64_t i = run.begin; i < run.end; ++i) {
          const std::int64_t at = (run.start[0] + i / columns) * inner + first + i % columns;
          convert_values(tensor.raw() + at * size_bytes(stored), stored,
                         expected.data() + (i - run.begin) * size_bytes(wanted), wanted, 1);
        }
        std::vector<std::byte> got(expected.size());
        read_run(in_file, run, wanted, got.data());
        ASSERT_TRUE(got == expected) << to_string(shape) << " " << to_string(run.start) << " "
                                     << to_string(run.extent) << " " << run.begin << " " << run.end;
        if (wanted == stored) {
          EXPECT_EQ(hash_of_run(in_file, run), hash_bytes(expected));
        }
      }
    }
  }
}

TEST(Values, AreConvertedBetweenAllFloatingTypes) {
  const std::vector<double> exact = {0, -1, 0.5, 240, -0.0078125};
  for (const DType from : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType to : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const auto count = static_cast<std::int64_t>(exact.size());
      const Tensor src = host_tensor(from, {count});
      const Tensor dst = host_tensor(to, {count});
      for (std::int64_t i = 0; i < count; ++i)
        test::set_value(src, i, exact[static_cast<std::size_t>(i)]);
      convert_values(src.raw(), from, dst.raw(), to, count);
      for (std::int64_t i = 0; i < count; ++i)
        EXPECT_EQ(test::value_at(dst, i), exact[static_cast<std::size_t>(i)])
            << name(from) << " " << name(to);
    }
  }
  // To nearest even, once.
  const float middle = 1.00390625F;  // between 1 and 1 + 2^-7
  BFloat16 rounded;
  convert_values(reinterpret_cast<const std::byte*>(&middle), DType::kF32,
                 reinterpret_cast<std::byte*>(&rounded), DType::kBF16, 1);
  EXPECT_EQ(to_float(rounded), 1.0F);
}

// A checkpoint of run `layout`, stage 0, and what each rank of another run reads of it.
std::vector<std::map<std::string, std::int64_t>> bytes_of_ranks(const TestLayout& layout, int stage,
                                                                bool optimizer) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    ShardedRun run(world, {}, 0, DType::kBF16);
    run.step(1);
    save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
  });
  const auto folder = find_checkpoint(dir.path());
  std::vector<std::map<std::string, std::int64_t>> bytes(static_cast<std::size_t>(layout.ranks()));
  run_ranks(layout.ranks(), [&](World& world) {
    ShardedRun run(world, layout, stage, DType::kBF16);
    run.set_values(77);
    NativeSource stored(folder, read_manifest(folder), optimizer);
    CountingSource source(stored);
    StoredModel model = run.stored();
    if (!optimizer) model.optimizer = nullptr;
    load_values(source, model, run.context());
    bytes[static_cast<std::size_t>(world.rank())] = source.bytes;
    save_checkpoint({run.list.all(), run.sharded.get()}, run.context(),
                    {dir / "again", test::state_of(1), ""});
  });
  EXPECT_EQ(weights_hash(find_checkpoint(dir / "again")), weights_hash(folder));
  return bytes;
}

TEST(LoadValues, OfARankAreThoseThatItStoresUnderEveryZeroStage) {
  constexpr std::int64_t kDown = 96 * 600 * 2;  // trained, bf16, split by tensor
  constexpr std::int64_t kNorm = 96 * 2;        // trained, whole on each tensor rank
  constexpr std::int64_t kFrozen = 40 * 1000 * 2;
  constexpr std::int64_t kPart = kUnitAlignment * 2;  // by which parts of a unit may differ
  for (const TestLayout& layout :
       {TestLayout{.data = 2}, TestLayout{.data = 3}, TestLayout{.tensor = 2, .data = 2}}) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto ranks = bytes_of_ranks(layout, stage, false);
      std::map<std::string, std::int64_t> sum;
      for (const auto& bytes : ranks) {
        for (const auto& [name, count] : bytes) sum[name] += count;
      }
      // Every element of a trained parameter is read once by each tensor rank that holds it.
      const int copies = stage == 0 ? layout.data : 1;
      const int frozen_copies = stage < 3 ? layout.data : 1;
      EXPECT_EQ(sum["down.weight"], copies * kDown) << stage;
      EXPECT_EQ(sum["norm.weight"], copies * layout.tensor * kNorm) << stage;
      EXPECT_EQ(sum["frozen.weight"], frozen_copies * layout.tensor * kFrozen) << stage;
      // And no rank reads more than its share.
      const std::int64_t trained = kDown / layout.tensor + kNorm;
      for (auto bytes : ranks) {
        const std::int64_t own = bytes["down.weight"] + bytes["norm.weight"];
        if (stage == 0) {
          EXPECT_EQ(own, trained);
        } else if (stage == 3) {  // a unit for each parameter
          EXPECT_LE(own, trained / layout.data + 2 * layout.data * kPart);
        } else {
          EXPECT_LE(own, trained / layout.data + layout.data * kPart);
        }
        if (stage == 3) {
          EXPECT_LE(bytes["frozen.weight"], kFrozen / layout.data + layout.data * kPart);
        }
      }
    }
  }
}

TEST(LoadValues, OfOptimizerStateAreReadOnceByAllDataRanks) {
  for (const int stage : {1, 2, 3}) {
    std::map<std::string, std::int64_t> sum;
    for (const auto& bytes : bytes_of_ranks({.data = 3}, stage, true)) {
      for (const auto& [name, count] : bytes) sum[name] += count;
    }
    for (const char* prefix : {"main.", "exp_avg.", "exp_avg_sq."}) {
      EXPECT_EQ(sum[std::string(prefix) + "down.weight"], 96 * 600 * 4) << stage << prefix;
      EXPECT_EQ(sum[std::string(prefix) + "norm.weight"], 96 * 4) << stage << prefix;
    }
  }
}

TEST(LoadValues, OfATensorRankAndAStageAreItsOwn) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    run.fill(5);
    save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
  });
  const auto folder = find_checkpoint(dir.path());
  std::map<std::string, std::int64_t> whole;
  for (const StoredTensor& one : read_manifest(folder).tensors) whole[one.tensor.name] = one.bytes;
  const TestLayout layout{.tensor = 2, .pipeline = 2};
  std::vector<std::map<std::string, std::int64_t>> ranks(4);
  run_ranks(4, [&](World& world) {
    SmallRun run(world, layout);
    NativeSource stored(folder, read_manifest(folder), true);
    CountingSource source(stored);
    load_values(source, run.stored(), run.context());
    run.optimizer->set_progress(SmallRun::progress_of(5));
    EXPECT_EQ(run.differences(5), 0);
    ranks[static_cast<std::size_t>(world.rank())] = source.bytes;
  });
  for (const auto& [name, bytes] : whole) {
    const bool table = name.ends_with("embedding.weight");  // tied: on both stages
    const bool replicated = name.ends_with("norm.weight");
    for (int rank = 0; rank < 4; ++rank) {
      const int stage = rank / 2;
      const bool here = table || name.find("layers." + std::to_string(stage)) != name.npos;
      const std::int64_t got = ranks[static_cast<std::size_t>(rank)][name];
      if (table) continue;  // 257 rows in two parts
      EXPECT_EQ(got, !here ? 0 : replicated ? bytes : bytes / 2) << name;
    }
    if (table) {
      EXPECT_EQ(ranks[0][name] + ranks[1][name], bytes);
      EXPECT_EQ(ranks[2][name] + ranks[3][name], bytes);
    }
  }
}

// Bytes that this process has read so far, from files and caches alike.
std::int64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::int64_t bytes = 0;
  while (file >> key >> bytes && key != "rchar:") {
  }
  return bytes;
}

TEST(LoadCheckpoint, ReadsBytesOnceWhereARankReadsWholeTensors) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    ShardedRun run(world, {}, 0, DType::kBF16);
    run.step(1);
    save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
    const auto folder = find_checkpoint(dir.path());
    std::int64_t stored = 0;
    for (const StoredTensor& one : read_manifest(folder).tensors) stored += one.bytes;
    const std::int64_t before = bytes_read();
    load_checkpoint(folder, run.stored(), run.context());
    EXPECT_GE(bytes_read() - before, stored);
    EXPECT_LT(bytes_read() - before, 5 * stored / 4);
  });
}

// Another tensor each time: of one rank, which reads it whole, and of two, which read parts of it.
TEST(LoadCheckpoint, FindsAChangedByteWhoeverReadsIt) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    ShardedRun run(world, {}, 0, DType::kBF16);
    run.step(1);
    save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
  });
  const auto folder = find_checkpoint(dir.path());
  for (const StoredTensor& one : read_manifest(folder).tensors) {
    std::fstream file(folder / one.file, std::ios::in | std::ios::out | std::ios::binary);
    const std::int64_t place = one.offset + one.bytes / 2;
    file.seekg(place);
    const int right = file.get();
    const auto put = [&](int byte) {
      file.seekp(place);
      file.put(static_cast<char>(byte));
      file.flush();
    };
    put(right ^ 1);
    for (const int stage : {0, 3}) {
      for (const int ranks : {1, 2}) {
        SCOPED_TRACE(fmt::format("{}, stage {}, {} ranks", one.tensor.name, stage, ranks));
        std::vector<std::string> messages(static_cast<std::size_t>(ranks));
        run_ranks(ranks, [&](World& world) {
          ShardedRun run(world, {.data = ranks}, stage, DType::kBF16);
          messages[static_cast<std::size_t>(world.rank())] = message_of(
              Fault::kData, [&] { load_checkpoint(folder, run.stored(), run.context()); });
        });
        for (const std::string& message : messages)
          EXPECT_THAT(message, HasSubstr(one.tensor.name + ": its bytes were changed"));
      }
    }
    put(right);
  }
}

// In many files: whichever thread comes first, values and errors are the same.
TEST(LoadCheckpoint, ByManyThreadsSetsTheSameValuesAndNamesTheSameTensor) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    run.fill(5);
    save_checkpoint(run.stored(), run.context(),
                    {dir.path(), test::state_of(1), "", {.file_bytes = 4096}});
  });
  const auto folder = find_checkpoint(dir.path());
  const Manifest manifest = read_manifest(folder);
  ASSERT_GT(manifest.files.size(), 10U);
  // Loads on the ranks of a layout; the message of each, "" if it loaded.
  const auto load = [&](const TestLayout& layout) {
    std::vector<std::string> messages(static_cast<std::size_t>(layout.ranks()));
    run_ranks(layout.ranks(), [&](World& world) {
      SmallRun run(world, layout);
      ThreadPool pool(4);
      StoreContext context = run.context();
      context.threads = &pool;
      try {
        load_checkpoint(folder, run.stored(), context);
        EXPECT_EQ(run.differences(5), 0);
      } catch (const Error& error) {
        messages[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    return messages;
  };
  const TestLayout sharded{.tensor = 2, .data = 2, .shards = true};
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(load({}), testing::Each(""));
    EXPECT_THAT(load(sharded), testing::Each(""));
  }
  // Several are wrong at the same time.
  for (std::size_t i = 0; i < manifest.tensors.size(); i += 3) {
    const StoredTensor& one = manifest.tensors[i];
    std::fstream file(folder / one.file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(one.offset);
    const int right = file.get();
    file.seekp(one.offset);
    file.put(static_cast<char>(right ^ 1));
  }
  const std::vector<std::string> first = load({});
  EXPECT_THAT(first[0], HasSubstr(": its bytes were changed"));
  for (int round = 0; round < 10; ++round) EXPECT_EQ(load({}), first);
  EXPECT_THAT(load(sharded), testing::Each(HasSubstr(": its bytes were changed")));
}

TEST(LoadValues, OfAFileThatIsCutShortAfterItWasCheckedFailOnAllRanks) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    ShardedRun run(world, {}, 0, DType::kF32);
    save_checkpoint({run.list.all(), run.sharded.get()}, run.context(),
                    {dir.path(), test::state_of(1), ""});
  });
  const auto folder = find_checkpoint(dir.path());
  std::vector<std::string> messages(3);
  run_ranks(3, [&](World& world) {
    ShardedRun run(world, {.data = 3}, 3, DType::kF32);
    NativeSource source(folder, read_manifest(folder), false);
    source.check_headers();
    source.share_checks(world.rank(), 3);
    source.check_rest();
    run.mesh.group(kAllAxes).barrier();
    if (world.rank() == 0)
      std::filesystem::resize_file(folder / "model-00001.safetensors", 150'000);
    run.mesh.group(kAllAxes).barrier();
    messages[static_cast<std::size_t>(world.rank())] = message_of(Fault::kData, [&] {
      load_values(source, {run.list.all(), run.sharded.get()}, run.context());
    });
  });
  for (const std::string& message : messages)
    EXPECT_THAT(message,
                HasSubstr("model-00001.safetensors: cut short while it was in use: got 150000 "
                          "bytes, wanted those from "));
}

TEST(Save, SendsItsMessagesInAGroupOfItsOwn) {
  const TempFolder dir;
  test::ThreadWorldState state;
  std::set<std::string> groups;
  bool saving = false;
  state.observe = [&](const std::string& group, const std::string&) {
    if (saving) groups.insert(group);
  };
  run_ranks(
      2,
      [&](World& world) {
        ShardedRun run(world, {.data = 2}, 1, DType::kF32);
        run.step(1);
        run.mesh.group(kAllAxes).barrier();
        saving = true;
        check_room(dir.path(), run.stored(), run.context());
        save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
      },
      &state);
  EXPECT_THAT(groups, testing::ElementsAre("tensor+context+expert+data+pipeline save"));
}

}  // namespace
}  // namespace piton
