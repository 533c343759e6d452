#include "data/samples/packed_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "data/samples/instruction_dataset.h"

namespace piton {
namespace {

// Sample i has `lengths[i]` tokens i, of which the first teaches nothing.
class Lengths final : public SampleSource {
 public:
  Lengths(std::vector<std::int64_t> lengths, std::int64_t sequence)
      : lengths_(std::move(lengths)), sequence_(sequence) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t sequence() const override { return sequence_; }
  std::int64_t longest(std::int64_t index) const override {
    return lengths_[static_cast<std::size_t>(index)];
  }
  void sample(std::int64_t index, Sample& sample) const override {
    const auto length = static_cast<std::size_t>(longest(index));
    const auto id = static_cast<std::int32_t>(index);
    sample = {.tokens = std::vector<std::int32_t>(length, id),
              .labels = std::vector<std::int32_t>(length, id),
              .positions = {},
              .segments = {},
              .length = longest(index)};
    sample.labels[0] = kNoLabel;
    for (std::size_t i = 0; i < length; ++i) {
      sample.positions.push_back(static_cast<std::int32_t>(i));
    }
    pad_sample(-7, sequence_, sample);
  }
  void announce(std::int64_t index) const override { announced.push_back(index); }
  mutable std::vector<std::int64_t> announced;

 private:
  std::vector<std::int64_t> lengths_;
  std::int64_t sequence_;
};

// Many short samples and a few long ones, as conversations are.
std::shared_ptr<const Lengths> conversations(std::int64_t sequence) {
  std::vector<std::int64_t> lengths;
  std::uint64_t state = 1;
  for (int i = 0; i < 400; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto draw = static_cast<std::int64_t>(state >> 40);
    lengths.push_back(std::min(sequence, 1 + draw % (i % 9 == 0 ? 2 * sequence : sequence / 4)));
  }
  return std::make_shared<Lengths>(lengths, sequence);
}

double waste(const PackedSamples& packed) {
  double tokens = 0;
  for (std::int64_t i = 0; i < packed.size(); ++i) {
    tokens += static_cast<double>(packed.longest(i));
  }
  return 1 - tokens / static_cast<double>(packed.size() * packed.sequence());
}

TEST(PackedSamples, EachEpochHasEverySampleWholeOnceAndHardlyAnyPadding) {
  const auto samples = conversations(256);
  const PackedSamples packed(samples, {.epochs = 3, .pad = -9});
  ASSERT_EQ(packed.size() % 3, 0);
  EXPECT_LT(waste(packed), 0.01);
  std::vector<std::vector<std::int32_t>> epochs(3);
  Sample window;
  for (std::int64_t i = 0; i < packed.size(); ++i) {
    packed.sample(i, window);
    ASSERT_EQ(window.tokens.size(), 256U);
    ASSERT_EQ(window.length, packed.longest(i));
    std::size_t at = 0;
    std::int32_t segment = 0;
    for (const std::int32_t member : packed.members(i)) {
      epochs[static_cast<std::size_t>(i / (packed.size() / 3))].push_back(member);
      for (std::int64_t k = 0; k < samples->longest(member); ++k, ++at) {
        ASSERT_EQ(window.tokens[at], member);
        ASSERT_EQ(window.labels[at], k == 0 ? kNoLabel : member);
        ASSERT_EQ(window.positions[at], k);
        ASSERT_EQ(window.segments[at], segment);
      }
      ++segment;
    }
    for (; at < 256; ++at) {
      ASSERT_EQ(window.tokens[at], -9);
      ASSERT_EQ(window.labels[at], kNoLabel);
      ASSERT_EQ(window.segments[at], kPaddingSegment);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(epoch.size(), 400U);
    EXPECT_EQ(std::set<std::int32_t>(epoch.begin(), epoch.end()).size(), 400U);
  }
}

TEST(PackedSamples, DependOnTheSeedAndMakeAsManyWindowsAsAreWanted) {
  const auto samples = conversations(64);
  const auto all = [&](std::uint32_t seed, std::int64_t windows) {
    const PackedSamples packed(samples, {.windows = windows, .seed = seed});
    EXPECT_GE(packed.size(), windows);
    std::vector<std::vector<std::int32_t>> members;
    for (std::int64_t i = 0; i < windows; ++i) {
      members.emplace_back(packed.members(i).begin(), packed.members(i).end());
    }
    return members;
  };
  const auto some = all(1, 100), more = all(1, 1000);
  EXPECT_EQ(some, all(1, 100));
  EXPECT_NE(some, all(2, 100));
  // A longer run starts in the same way.
  EXPECT_TRUE(std::equal(some.begin(), some.end(), more.begin()));
}

TEST(PackedSamples, KeepTheTextsOfASampleApart) {
  struct Two final : SampleSource {
    std::int64_t size() const override { return 2; }
    std::int64_t sequence() const override { return 12; }
    std::int64_t longest(std::int64_t) const override { return 5; }
    void sample(std::int64_t, Sample& sample) const override {
      sample = {{1, 2, 3, 4, 5}, {2, -100, 4, -100, -100}, {0, 1, 0, 1, 0}, {0, 0, 1, 1, -1}, 4};
      pad_sample(0, 12, sample);
    }
  };
  const PackedSamples packed(std::make_shared<Two>(), {.shuffle = false});
  Sample window;
  ASSERT_EQ(packed.size(), 1);
  packed.sample(0, window);
  EXPECT_EQ(window.length, 8);
  EXPECT_EQ(window.tokens, (std::vector<std::int32_t>{1, 2, 3, 4, 1, 2, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(window.segments, (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3, -1, -1, -1, -1}));
}

TEST(PackedSamples, AnnounceTheSamplesOfAWindow) {
  const auto samples = std::make_shared<Lengths>(std::vector<std::int64_t>{3, 4, 5, 1}, 8);
  const PackedSamples packed(samples, {.shuffle = false});
  ASSERT_EQ(packed.size(), 2);
  packed.announce(0);
  EXPECT_THAT(samples->announced, testing::ElementsAre(0, 2));
}

}  // namespace
}  // namespace piton
