#include "model_files/native_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "checkpoint/store.h"
#include "checkpoint/write_source.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/temp_folder.h"
#include "train/run/resume_rules.h"

namespace piton {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// A checkpoint in `run` with this config.toml.
fs::path checkpoint_with(const fs::path& run, const std::string& config) {
  HfSource source(test::golden_folder("llama"));
  write_checkpoint(run, source, {}, config);
  return find_checkpoint(run);
}

TEST(NativeConfig, HasTheModelAndTheTokenizerOfARun) {
  const TempFolder folder;
  PretrainOptions options;
  options.model = ModelOptions::of(HfSource(test::golden_folder("llama")).model());
  options.model.bf16 = true;
  options.loop.save = "elsewhere";
  options.optimizer.average_decay = 0.9;
  options.tokenizer.vocab_file = "/gone/vocab.txt";
  options.tokenizer.make_vocab_size_divisible_by = 7;
  const fs::path checkpoint = checkpoint_with(folder / "run", configuration_of(options));
  const NativeConfig config = read_native_config(checkpoint);
  EXPECT_EQ(resolve_model(config.model, config.tokenizer, std::nullopt),
            options.resolve_model(std::nullopt));
  EXPECT_EQ(config.tokenizer.vocab_file, "/gone/vocab.txt");
  EXPECT_EQ(config.tokenizer.make_vocab_size_divisible_by, 7);
  // The copy that the run keeps.
  fs::create_directories(folder / "run/tokenizer");
  EXPECT_EQ(read_native_config(checkpoint).tokenizer.vocab_file,
            folder.path() / "run/tokenizer/vocab.txt");
}

TEST(NativeConfig, CountsTheEndOfDocumentsOfNullTokenizer) {
  ModelOptions model = ModelOptions::of(HfSource(test::golden_folder("llama")).model());
  model.vocabulary = 100;
  EXPECT_EQ(resolve_model(model, {}, std::nullopt).vocabulary, 100);
  EXPECT_EQ(resolve_model(model, {.type = "NullTokenizer"}, std::nullopt).vocabulary, 101);
}

TEST(NativeConfig, OfALaterVersionMayHaveOtherOptionsButOfTheModel) {
  const TempFolder folder;
  const std::string later = "[learning-rate]\nlr-of-tomorrow = 1\n\n[days]\nhours = [1, 2]\n";
  const fs::path checkpoint = checkpoint_with(folder / "run", later + "[model]\nnum-layers = 3\n");
  EXPECT_EQ(read_native_config(checkpoint).model.layers, 3);
  for (const std::string table : {"[model]", "[tokenizer]"}) {
    const fs::path other =
        checkpoint_with(folder / table, later + table + "\nof-tomorrow = true\n[data]\nx = 1\n");
    EXPECT_THAT(message_of(Fault::kUsage, [&] { read_native_config(other); }),
                HasSubstr("config.toml:7: unknown option \"of-tomorrow\""));
  }
}

TEST(NativeConfig, ThatWasChangedIsRefused) {
  const TempFolder folder;
  const fs::path checkpoint = checkpoint_with(folder / "run", "[model]\nnum-layers = 2\n");
  write_text_file(checkpoint / kConfigName, "[model]\nnum-layers = 3\n");
  EXPECT_THAT(message_of(Fault::kData, [&] { read_native_config(checkpoint); }),
              HasSubstr(kConfigName));
}

}  // namespace
}  // namespace piton
