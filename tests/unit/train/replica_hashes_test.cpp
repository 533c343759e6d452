// Weights of data-parallel ranks that differ in a bit.
#include "train/replica_hashes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PretrainOptions options_of(const TempFolder& folder, const std::vector<std::string>& more) {
  test::write_small_corpus(folder / "corpus");
  PretrainOptions options = test::small_options(folder / "corpus", more);
  options.loop.check_weight_hash_across_dp_replicas_interval = 2;
  return options;
}

// One bit of the second weight of rank 1, after the first comparison.
TEST(ReplicaHashes, EndTheRunAtTheWeightWithAnotherBit) {
  TempFolder folder;
  for (const char* stage : {"0", "1", "2"}) {
    const PretrainOptions options = options_of(folder, {"--zero-stage", stage});
    std::atomic<int> named = 0;
    test::run_ranks(2, [&](World& world) {
      test::SmallMachine own(world);
      Trainer trainer(own.machine(), options, {});
      trainer.step();
      EXPECT_NO_THROW(trainer.step()) << "ZeRO " << stage;
      Session& session = trainer.session();
      const Parameter& weight = *session.parameters()[1];
      const auto flip = [&] {
        std::vector<std::byte> bytes(static_cast<std::size_t>(weight.value.bytes()));
        own.machine().device.download(weight.value, bytes.data(), own.machine().stream);
        bytes[bytes.size() / 2] ^= std::byte{1};
        own.machine().device.upload(bytes.data(), weight.value, own.machine().stream);
      };
      check_replica_hashes(session, session.mesh(), own.machine(), 7);
      if (world.rank() == 1) flip();
      EXPECT_THAT(
          message_of(Fault::kData,
                     [&] { check_replica_hashes(session, session.mesh(), own.machine(), 7); }),
          AllOf(HasSubstr("iteration 7: " + weight.name +
                          " on rank 1 differs from that on "
                          "rank 0: "),
                HasSubstr("continue from an earlier checkpoint")));
      ++named;
    });
    EXPECT_EQ(named, 2) << "all ranks end with the same message";
  }
}

TEST(ReplicaHashes, AreNotForZero3) {
  TempFolder folder;
  const PretrainOptions options = options_of(folder, {"--zero-stage", "3"});
  EXPECT_THAT(message_of(Fault::kUsage, [&] { make_run_plan(options, 2, 0); }),
              HasSubstr("--check-weight-hash-across-dp-replicas-interval: under --zero-stage 3"));
}

}  // namespace
}  // namespace piton
