// Samples of masked words equal those of Megatron-core 0.16.1; the first lines of the golden file
// say how they were made.
#include "data/masked/masked_sets.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cctype>
#include <fstream>
#include <sstream>

#include "data/masked/describe_masked.h"
#include "masked_corpora.h"
#include "support/errors.h"

namespace piton {
namespace {

// "case TASK | WORDS | SPLIT | s decoder | seed | train valid test | mask_prob short_prob pairs |
// VOCABULARY"
DataSets open_case(std::istringstream words, Log& log) {
  std::string task, word, vocabulary;
  MaskedSettings settings;
  DataOptions data;
  SampleCounts counts;
  std::int64_t decoder = 0;
  int pairs = 0;
  words >> task >> word;
  while (words >> word && word != "|") {
    data.data_path.push_back(std::isdigit(word[0]) != 0 ? word : kMaskedFolder + word);
  }
  words >> data.split >> word >> settings.sequence >> decoder >> word >> settings.seed >> word;
  words >> counts.train >> counts.valid >> counts.test >> word;
  words >> settings.masking.mask_probability >> settings.masking.short_sequence_probability;
  words >> pairs >> word >> vocabulary;
  settings.task = *masked_task(task);
  settings.pairs = pairs != 0;
  if (decoder > 0) settings.decoder_sequence = decoder;
  const auto tokenizer = masked_tokenizer(decoder > 0 ? 100 : 0, vocabulary);
  SampleSettings wanted{.sequence = settings.sequence, .seed = settings.seed, .counts = counts};
  wanted.of_documents = masked_samples(settings, data, tokenizer.get(), log);
  return open_data_sets(data, wanted, log);
}

TEST(MaskedSamples, EqualMegatronsForEveryTaskSplitBlendSeedAndIdOfPadding) {
  std::ifstream file(kMaskedFolder + "samples.txt");
  SilentLog log;
  DataSets sets;
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind;
    if (kind == "case") sets = open_case(std::move(words), log);
    if (kind != "set") continue;
    std::int64_t size = 0;
    std::uint32_t wanted = 0;
    words >> name >> size >> wanted;
    const SampleSource& source =
        *(name == "train" ? sets.train : (name == "valid" ? sets.valid : sets.test).at(0).source);
    ASSERT_EQ(source.size(), size) << line;
    std::string first, last;
    std::getline(file, first);
    std::getline(file, last);
    Sample sample;
    uLong crc = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      source.sample(i, sample);
      const std::string shown = masked_to_json(sample, i);
      if (i == 0) {
        EXPECT_EQ(shown, first + "\n");
      }
      if (i == size - 1) {
        EXPECT_EQ(shown, last + "\n");
      }
      crc = ::crc32(crc, reinterpret_cast<const Bytef*>(shown.data()),
                    static_cast<uInt>(shown.size()));
    }
    EXPECT_EQ(crc, wanted) << line;
    ++compared;
  }
  EXPECT_GE(compared, 60);
}

MaskedSettings small(MaskedTask task) {
  MaskedSettings settings{.task = task, .sequence = 64};
  if (task == MaskedTask::kT5) settings.decoder_sequence = 64;
  return settings;
}

TEST(MaskedSamples, RefuseOptionsThatDoNotFit) {
  SilentLog log;
  const auto tokenizer = masked_tokenizer(100);
  const auto refusal = [&](const auto& change, MaskedTask task = MaskedTask::kBert) {
    MaskedSettings settings = small(task);
    DataOptions data;
    change(settings, data);
    return message_of(Fault::kUsage, [&] { masked_samples(settings, data, tokenizer.get(), log); });
  };
  EXPECT_EQ(refusal([](auto& s, auto&) { s.masking.mask_probability = 1; }),
            "--mask-prob: got 1, wanted 0 < p < 1");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.masking.short_sequence_probability = 1.5; }),
            "--short-seq-prob: got 1.5, wanted 0, or 1e-9 <= p <= 1");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.sequence = 4; }),
            "--seq-length: got 4, wanted 5 to 2147483647");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.seed = 0; }),
            "--seed: got 0, wanted 1 to 2147483647 for samples of --model-family bert");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.decoder_sequence = 8; }),
            "--decoder-seq-length: is for --model-family t5; leave it out");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.pairs = false; }, MaskedTask::kT5),
            "--bert-no-binary-head: is for --model-family bert; leave it out");
  EXPECT_EQ(refusal([](auto& s, auto&) { s.decoder_sequence.reset(); }, MaskedTask::kT5),
            "--decoder-seq-length: is not given; wanted the tokens that the decoder of T5 reads, "
            "such as 128 for --encoder-seq-length 512");
  EXPECT_EQ(refusal([](auto&, auto& data) { data.eod_mask_loss = true; }),
            "--eod-mask-loss: is not for samples of --model-family bert; leave it out");
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] { masked_samples(small(MaskedTask::kBert), {}, nullptr, log); }),
            "--model-family bert: masking needs the words of the vocabulary; give --tokenizer-type "
            "and --vocab-file, or --tokenizer-name-or-path");
}

TEST(MaskedSamples, AreMadeForBertAndT5Alone) {
  EXPECT_EQ(masked_task("bert"), MaskedTask::kBert);
  EXPECT_EQ(masked_task("t5"), MaskedTask::kT5);
  EXPECT_EQ(masked_task("gpt2"), std::nullopt);
}

}  // namespace
}  // namespace piton
