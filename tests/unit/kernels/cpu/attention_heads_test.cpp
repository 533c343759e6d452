// Heads that share keys may be computed together: each has the bits of its head alone.
#include <gtest/gtest.h>

#include "device/host_device.h"
#include "kernels/attention.h"
#include "kernels/cpu/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kGroups = 2;
constexpr std::int64_t kKeys = 150;
constexpr std::int64_t kChannels = 40;

class HeadsOfAGroup : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  HeadsOfAGroup() : stream_(device_.make_stream()) {}

  HostDevice device_;
  std::unique_ptr<Stream> stream_;
  TensorSource source_{11};
};

// 1 to 32 queries of six heads are two or more heads a part, 65 are more than a tile. Seven threads
// have fewer heads a part than one.
TEST_P(HeadsOfAGroup, HaveTheBitsOfEachHeadAlone) {
  const auto& [set, dtype] = GetParam();
  for (const int threads : {1, 7}) {
    ThreadPool pool(threads);
    std::unique_ptr<Kernels> kernels;
    try {
      kernels = make_cpu_kernels(pool, set);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    for (const std::int64_t queries : {1, 3, 10, 32, 65}) {
      const Tensor q = source_.normal(dtype, {kSamples, queries, kHeads, kChannels});
      const Tensor k = source_.normal(dtype, {kSamples, kKeys, kGroups, kChannels});
      const Tensor v = source_.normal(dtype, {kSamples, kKeys, kGroups, kChannels});
      const Tensor slopes = source_.normal(DType::kF32, {kHeads});
      const auto attend = [&](std::int64_t head, std::int64_t heads) {
        const bool all = heads == kHeads;
        const std::int64_t group = head / (kHeads / kGroups);
        const Tensor out = source_.unwritten(dtype, {kSamples, queries, heads, kChannels});
        const Tensor lse = source_.unwritten(DType::kF32, {kSamples, heads, queries});
        AttentionForward call{.out = out,
                              .lse = lse,
                              .q = q.slice(2, head, heads),
                              .k = all ? k : k.slice(2, group, 1),
                              .v = all ? v : v.slice(2, group, 1),
                              .mask = {.query_begin = kKeys - queries},
                              .scale = 0.2};
        call.mask.slopes = slopes.slice(0, head, heads);
        kernels->run(call, *stream_);
        return std::pair{out, lse};
      };
      const auto [out, lse] = attend(0, kHeads);
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const auto [out_alone, lse_alone] = attend(head, 1);
        EXPECT_EQ(values(out.slice(2, head, 1)), values(out_alone))
            << threads << " threads, " << queries << " queries, head " << head;
        EXPECT_EQ(values(lse.slice(1, head, 1)), values(lse_alone)) << queries << ", " << head;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, HeadsOfAGroup,
                         ::testing::Combine(::testing::ValuesIn(kInstructionSets),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         set_and_dtype);

}  // namespace
}  // namespace piton::test
