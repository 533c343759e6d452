// What will be read is announced to the system: the same ids as are read then, and nothing waits.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/batch_source.h"
#include "data/samples/blended_dataset.h"
#include "data/samples/gpt_dataset.h"
#include "data/samples/pretraining_samples.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kCorpus = PITON_SOURCE_DIR "/tests/golden/megatron/a";

// A corpus that reads what is announced at once, and keeps it.
class Watched final : public TokenSequences {
 public:
  const std::string& name() const override { return corpus_.name(); }
  std::int64_t sequences() const override { return corpus_.sequences(); }
  std::vector<std::int32_t> lengths(std::int64_t first, std::int64_t count) const override {
    return corpus_.lengths(first, count);
  }
  std::int64_t read_some(std::int64_t sequence, std::int64_t first,
                         std::span<std::int32_t> out) const override {
    return corpus_.read_some(sequence, first, out);
  }
  std::int64_t announce(std::int64_t sequence, std::int64_t first,
                        std::int64_t count) const override {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    const std::int64_t there = corpus_.read_some(sequence, first, ids);
    EXPECT_EQ(corpus_.announce(sequence, first, count), there);
    announced.insert(announced.end(), ids.begin(), ids.begin() + std::max<std::int64_t>(there, 0));
    return there;
  }
  std::string fingerprint() const override { return corpus_.fingerprint(); }

  mutable std::vector<std::int32_t> announced;

 private:
  IndexedDataset corpus_ = IndexedDataset::open(kCorpus);
};

TEST(Announce, IsOfTheIdsThatTheSampleHas) {
  const auto corpus = std::make_shared<Watched>();
  const auto samples = std::make_shared<GptDataset>(
      corpus, GptRequest{.end = corpus->sequences(), .sequence = 48, .samples = 100});
  const BlendedDataset blend(
      {{"a", std::make_shared<PretrainingSamples>(samples, DocumentRules()), 1.0}}, 50);
  std::vector<std::int32_t> ids(49);
  for (std::int64_t i = 0; i < 50; ++i) {
    samples->read(i, ids);
    corpus->announced.clear();
    samples->announce(i);
    EXPECT_EQ(corpus->announced, ids) << i;
    corpus->announced.clear();
    blend.announce(i);
    EXPECT_EQ(corpus->announced, ids) << i;
  }
}

// Remembers what was announced.
class Listening final : public SampleSource {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t sequence() const override { return 1; }
  void sample(std::int64_t, Sample& sample) const override { sample = {{1}, {1}, {0}, {}, 1}; }
  void announce(std::int64_t index) const override { announced.push_back(index); }
  mutable std::vector<std::int64_t> announced;
};

TEST(Announce, IsOfTheSamplesOfTheRankAndEndsWithThem) {
  const auto samples = std::make_shared<Listening>();
  BatchSource source(samples, {});
  BatchPlace place{
      .consumed_samples = 0, .global_batch = 8, .micro_batch = 2, .rank = 1, .ranks = 2};
  source.announce(place);
  EXPECT_THAT(samples->announced, ElementsAre(2, 3, 6, 7));
  samples->announced.clear();
  place.consumed_samples = 4;
  source.announce(place);
  EXPECT_THAT(samples->announced, ElementsAre(6, 7)) << "there are ten";
  samples->announced.clear();
  BatchSource cyclic(samples, {.order = DataloaderType::kCyclic});
  cyclic.announce(place);
  EXPECT_THAT(samples->announced, IsEmpty()) << "no order is known yet";
  cyclic.micro_batch(std::array<std::int64_t, 1>{0});
  cyclic.announce(place);
  EXPECT_EQ(samples->announced.size(), 2U) << "those of the next epoch are not known";
}

// Whether the bytes are in memory; nullopt: the system does not say.
std::optional<bool> cached(int file, std::int64_t offset) {
  char byte = 0;
  const iovec to{&byte, 1};
  if (::preadv2(file, &to, 1, offset, RWF_NOWAIT) == 1) return true;
  if (errno == EAGAIN) return false;
  return std::nullopt;
}

TEST(Announce, BringsTheBytesOfACorpusIntoMemory) {
  const TempFolder folder;
  {
    IndexedWriter writer(folder / "corpus", IdType::kInt32);
    writer.add_sequence(std::vector<std::int32_t>(1 << 20, 7));
    writer.end_document();
    writer.finish();
  }
  const IndexedDataset corpus = IndexedDataset::open(folder / "corpus");
  const int file = ::open((folder / "corpus.bin").c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  constexpr std::int64_t kFirst = 1 << 19;
  if (cached(file, 4 * kFirst) != false || cached(file, 4) != false) {
    ::close(file);
    GTEST_SKIP() << "this file system keeps pages in memory";
  }
  EXPECT_EQ(corpus.announce(0, kFirst, 4096), 4096);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cached(file, 4 * kFirst) == false && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(cached(file, 4 * kFirst), true);
  EXPECT_EQ(cached(file, 4), false) << "only what was announced";
  ::close(file);
}

}  // namespace
}  // namespace piton
