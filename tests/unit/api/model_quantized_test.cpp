// Matrices of stories260K in 4 bits. GPTQ is calibrated with texts that the model writes; texts
// that it writes otherwise are as likely as with matrices that are rounded to nearest, or likelier.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/model.h"
#include "base/files/files.h"
#include "convert/convert.h"
#include "support/host_machine.h"
#include "support/sampled.h"
#include "support/stories_folder.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Sequences = std::vector<std::vector<std::int32_t>>;

// Each of `count` sampled texts, by its ids.
Sequences sampled(Model& model, const std::string& beginning, std::uint64_t seed, int count) {
  const std::vector<std::int32_t> prompt = model.require_tokenizer().encode(beginning);
  const Sequences prompts(static_cast<std::size_t>(count), prompt);
  std::vector<std::uint64_t> draws(prompts.size());
  std::iota(draws.begin(), draws.end(), 0);
  Sequences texts = prompts;
  model.generate_batch({.ids = prompts, .draws = draws, .ends = {}},
                       {.max_new_tokens = 160, .seed = seed},
                       [&](std::size_t text, const GeneratedToken& token) {
                         texts[text].push_back(token.id);
                         return true;
                       });
  return texts;
}

double perplexity(Model& model, const Sequences& texts) {
  double sum = 0;
  std::int64_t tokens = 0;
  for (const Model::Score& score : model.scores(texts)) {
    sum -= score.sum();
    tokens += std::ssize(score.log_likelihood);
  }
  return std::exp(sum / static_cast<double>(tokens));
}

TEST(QuantizedStories, AreBetterByGptqThanRoundedToNearest) {
  if (!fs::exists(test::stories_path())) GTEST_SKIP() << "no model at " << test::stories_path();
  const TempFolder folder;
  const fs::path stories = folder / "stories";
  fs::create_directories(stories);
  test::StoriesFile(test::stories_path() / "stories260K.bin").write_folder(stories);
  write_text_file(stories / "tokenizer.json",
                  read_text_file(fs::path(PITON_SOURCE_DIR) /
                                 "tests/golden/evaluation/stories_tokenizer.json"));
  write_text_file(stories / "tokenizer_config.json",
                  "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"unk_token\": \"<unk>\"}");
  test::HostMachine machine;
  const auto model = Model::load(machine.machine, stories, {});
  std::string calibration;
  for (const auto& text : sampled(*model, "Once upon a time", 1, 24))
    calibration += model->require_tokenizer().decode(text, {.skip_special_tokens = true}) + "\n";
  write_text_file(folder / "calibration.txt", calibration);
  const Sequences held_out = sampled(*model, "One day", 2, 24);
  const double whole = perplexity(*model, held_out);
  SilentProgress progress;
  for (const bool symmetric : {true, false}) {
    if (!symmetric && !test::nightly()) continue;
    SCOPED_TRACE(symmetric);
    const auto quantized = [&](bool gptq) {
      ConvertOptions options;
      options.load = stories.string();
      options.save = (folder / (gptq ? "gptq" : "rtn")).string();
      options.save_model_type = "hf";
      options.no_verify = true;
      options.coded = CodedWeights{.gptq = gptq,
                                   .calibration = (folder / "calibration.txt").string(),
                                   .samples = 64,
                                   .length = 128};
      options.coded->format.bits = 4;
      options.coded->format.symmetric = symmetric;
      convert(machine.machine, options, progress);
      const auto reader = Model::load(machine.machine, options.save, {});
      const double found = perplexity(*reader, held_out);
      fs::remove_all(options.save);
      return found;
    };
    const double rounded = quantized(false);
    const double by_gptq = quantized(true);
    EXPECT_GT(rounded, 1.05 * whole) << "4 bits cost nothing";
    EXPECT_LT(by_gptq, rounded);
    EXPECT_GT(by_gptq, whole);
  }
}

}  // namespace
}  // namespace piton
