// The corpora of a run: checks when they are opened, and detection of changes.
#include "train/run/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/samples/instruction_dataset.h"
#include "device/host_device.h"
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

TEST_F(RunDataTest, RefusesCorporaThatEndBeforeTheRun) {
  const std::string other = (folder_ / "other").string();
  test::write_small_corpus(other, 60, 1);
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--data-path", prefix().string(), other});
    return message_of(Fault::kData, [&] { open(more); });
  };
  EXPECT_THAT(refusal({"--train-iters", "1000"}),
              HasSubstr("--data-path: several corpora without weights are read once, which gives"));
  EXPECT_THAT(refusal({"--train-iters", "1", "--eval-iters", "1000"}),
              HasSubstr("--eval-iters: several corpora without weights are read once"));
  for (const std::vector<std::string>& fits :
       {std::vector<std::string>{"--data-path", prefix().string(), other, "--train-iters", "1000",
                                 "--dataloader-type", "cyclic", "--eval-iters", "0"},
        {"--data-path", "1", prefix().string(), "1", other, "--train-iters", "1000"},
        {"--data-path", prefix().string(), other, "--train-iters", "2", "--eval-iters", "0"}}) {
    EXPECT_NO_THROW(open(fits)) << fits.at(1);
  }
}

// `samples` samples of 2 + index mod 7 ids in three files.
void write_instructions(const std::string& prefix, std::int32_t samples) {
  const auto names = InstructionFiles::prefixes(prefix);
  for (std::size_t part = 0; part < names.size(); ++part) {
    IndexedWriter writer(names[part], IdType::kInt32);
    for (std::int32_t i = 0; i < samples; ++i) {
      writer.add_sequence(
          std::vector<std::int32_t>(static_cast<std::size_t>(2 + i % 7), part == 1 ? 1 : i));
      writer.end_document();
    }
    writer.finish();
  }
}

TEST_F(RunDataTest, RowsOfAVariableLengthCanBeDividedOverTensorRanks) {
  write_instructions((folder_ / "talk").string(), 40);
  PretrainOptions options = test::small_options(
      folder_ / "talk",
      {"--is-instruction-dataset", "--variable-seq-lengths", "--pad-to-multiple-of", "3"});
  options.parallel.tensor = 2;
  RunData data(options, make_run_plan(options, 2, 0), nullptr, log_);
  EXPECT_EQ(data.row_length(), options.loop.sequence) << "none was read";
  MeshSizes sizes;
  HostDevice device;
  const auto world = make_single_world(device);
  const auto batches = data.training_batch(Mesh(*world, sizes), 0);
  EXPECT_EQ(data.row_length(), 6) << "at most 7 tokens, in rows of a multiple of 6";
  EXPECT_EQ(batches.front().sequence, 6);
  EXPECT_EQ(data.facts().size(), 3U) << "of each file";
}

TEST_F(RunDataTest, TakesSamplesOfAProgramForTrainingAndValidation) {
  struct Ones final : SampleSource {
    explicit Ones(const SampleSettings& settings) : sequence_(settings.sequence) {}
    std::int64_t size() const override { return 64; }
    std::int64_t sequence() const override { return sequence_; }
    void sample(std::int64_t, Sample& sample) const override {
      sample = {{1}, {kNoLabel}, {0}, {}, 1};
      pad_sample(0, sequence_, sample);
    }
    std::int64_t sequence_;
  };
  PretrainOptions options = test::small_options(prefix());
  options.data = {};
  const OwnSamples::Make make = [](const SampleSettings& settings) {
    return std::make_shared<Ones>(settings);
  };
  const RunPlan plan = make_run_plan(options, 1, 0);
  RunData data(options, plan, nullptr, log_, {.own = {"ones", make, make}});
  EXPECT_TRUE(data.has(HeldOutSet::kValidation));
  EXPECT_THAT(
      message_of(
          Fault::kUsage,
          [&] { RunData(options, plan, nullptr, log_, {.own = {.name = "ones", .make = make}}); }),
      HasSubstr("--eval-iters: got"));
}

TEST_F(RunDataTest, RefusesWhatCannotBeTrainedOn) {
  EXPECT_TRUE(open()->has(HeldOutSet::kValidation));
  EXPECT_FALSE(open({"--eval-iters", "0"})->has(HeldOutSet::kValidation));
  // As Megatron-LM; nothing that reads the losses may ask for them.
  EXPECT_FALSE(open({"--split", "100,0,0"})->has(HeldOutSet::kValidation));
  for (const char* reader : {"--full-validation", "--skip-train"}) {
    EXPECT_THAT(message_of(Fault::kData,
                           [&] {
                             open({"--split", "100,0,0", reader});
                           }),
                HasSubstr("the validation split has no samples"));
  }
  PretrainOptions none = test::small_options(prefix());
  none.data = {};
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { RunData data(none, make_run_plan(none, 1, 0), nullptr, log_); }),
              HasSubstr("--data-path: no training data is named"));
}

}  // namespace
}  // namespace piton
