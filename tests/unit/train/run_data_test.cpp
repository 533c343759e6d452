// The corpora of a run: checks when they are opened, and detection of changes.
#include "train/run/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::HasSubstr;

class RunDataTest : public testing::Test {
 protected:
  RunDataTest() { test::write_small_corpus(prefix()); }
  std::filesystem::path prefix() const { return folder_ / "corpus"; }
  std::unique_ptr<RunData> open(const std::vector<std::string>& more = {}) {
    const PretrainOptions options = test::small_options(prefix(), more);
    return std::make_unique<RunData>(options, make_run_plan(options, 1, 0), nullptr, log_);
  }

  TempFolder folder_;
  SilentLog log_;
};

TEST_F(RunDataTest, KnowsACorpusByItsContentAlone) {
  const auto data = open();
  const auto facts = data->facts();
  ASSERT_EQ(facts.size(), 1);
  const std::string key = facts.begin()->first;
  EXPECT_EQ(data->name_of_fact(key), "corpus " + prefix().string());
  EXPECT_EQ(data->name_of_fact("tokenizer"), "tokenizer");
  const std::filesystem::path ids = prefix().string() + ".bin";
  std::filesystem::last_write_time(ids, std::filesystem::file_time_type::clock::now());
  EXPECT_NO_THROW(data->check_unchanged()) << "touched, not changed";
  EXPECT_EQ(open()->facts(), facts);
  test::write_small_corpus(folder_ / "other", 60, 1);
  std::filesystem::copy_file(folder_ / "other.bin", ids,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(message_of(Fault::kData, [&] { data->check_unchanged(); }),
              HasSubstr(prefix().string() + ": changed while it was read"));
  EXPECT_NE(open()->facts(), facts);
}

TEST_F(RunDataTest, TellsOrdersOfSamplesApart) {
  const auto data = open();
  EXPECT_EQ(data->order_of_samples(40), open()->order_of_samples(40));
  EXPECT_NE(data->order_of_samples(40), data->order_of_samples(44));
  EXPECT_NE(data->order_of_samples(40), open({"--seed", "7"})->order_of_samples(40));
}

TEST_F(RunDataTest, RefusesWhatCannotBeTrainedOn) {
  EXPECT_TRUE(open()->has_validation());
  EXPECT_FALSE(open({"--eval-iters", "0"})->has_validation());
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           open({"--split", "100,0,0"});
                         }),
              HasSubstr("--eval-iters: the validation split has no samples"));
  PretrainOptions none = test::small_options(prefix());
  none.data = {};
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { RunData data(none, make_run_plan(none, 1, 0), nullptr, log_); }),
              HasSubstr("--data-path: no training data is named"));
}

}  // namespace
}  // namespace piton
