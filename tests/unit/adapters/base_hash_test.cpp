// The hash of a source of weights: that of a checkpoint, on any number of ranks, and another one as
// soon as a value, a type or a name is another.
#include "adapters/base_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/native_source.h"
#include "checkpoint/store.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::run_ranks;
using test::SmallRun;

// Of the checkpoint `folder`, taken by `count` ranks.
std::string hash_on_ranks(const fs::path& folder, int count) {
  std::string hash;
  run_ranks(count, [&](World& world) {
    NativeSource source(folder, read_manifest(folder), false);
    source.check_headers();
    Mesh mesh(world, test::TestLayout{.data = count}.sizes());
    const std::string mine = weights_hash(source, mesh.group(kAllAxes));
    if (world.rank() == count - 1) hash = mine;
  });
  return hash;
}

// One tensor of more than a block, [3, 1 << 20] in fp32, of which one element may be changed.
class LargeSource final : public TensorSource {
 public:
  explicit LargeSource(std::string name, std::int64_t changed = -1)
      : name_(std::move(name)), changed_(changed) {}
  std::string where() const override { return "large"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    if (kind != TensorKind::kWeight) return {};
    return {{.name = name_, .dtype = DType::kF32, .shape = {3, 1 << 20}}};
  }
  void read(const std::string&, const TensorRun& run, DType dtype, std::byte* dst) override {
    ASSERT_EQ(dtype, DType::kF32);
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const float value = static_cast<float>(i % 977) + (i == changed_ ? 1.0F : 0.0F);
      std::memcpy(dst + (i - run.begin) * 4, &value, 4);
    }
  }

 private:
  std::string name_;
  std::int64_t changed_;
};

std::string hash_of(LargeSource source) {
  std::string hash;
  run_ranks(1, [&](World& world) {
    Mesh mesh(world, test::TestLayout{}.sizes());
    hash = weights_hash(source, mesh.group(kAllAxes));
  });
  return hash;
}

TEST(BaseHash, IsThatOfACheckpointOnAnyNumberOfRanks) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    run.fill(5);
    TrainState state;
    state.iteration = 5;
    save_checkpoint(run.stored(), run.context(), {dir.path(), state, "", {}});
  });
  const fs::path folder = find_checkpoint(dir.path());
  const std::string wanted = weights_hash(folder);
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(hash_on_ranks(folder, ranks), wanted) << ranks;
}

TEST(BaseHash, SeesEveryElementAndTheName) {
  const std::string hash = hash_of(LargeSource("a.weight"));
  EXPECT_EQ(hash_of(LargeSource("a.weight")), hash);
  EXPECT_NE(hash_of(LargeSource("b.weight")), hash);
  for (const std::int64_t element : {0, (1 << 20) - 1, 1 << 20, 3 * (1 << 20) - 1})
    EXPECT_NE(hash_of(LargeSource("a.weight", element)), hash) << element;
}

}  // namespace
}  // namespace piton
