// What the trainer does works for every family and type: a run that is interrupted and resumed, and
// one that computes its activations again, end with the bits of the run without; two ranks have the
// losses of one; text generated token by token is what each whole prompt gives. Daily each family
// in one of the types, with PITON_NIGHTLY in all.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "drills/tiny_run.h"
#include "support/family_folder.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

namespace fs = std::filesystem;

struct NumberType {
  const char* name;
  Words flags;
  double tolerance;  // of losses under another layout, relative: sums are rounded in another order
};

class EveryFamily : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    corpus_ = std::make_unique<TempFolder>();
    // The models have fewer ids than the end of a document.
    make_corpus(corpus_->path(), 400, Documents::kWhole);
  }
  static void TearDownTestSuite() { corpus_.reset(); }

  Words training(const Words& model, const NumberType& type) const {
    return Words{"pretrain"} + model +
           Words{"--data-path",
                 (corpus_->path() / "corpus_text_document").string(),
                 "--split",
                 "100,0,0",
                 "--tokenizer-type",
                 "NullTokenizer",
                 "--seq-length",
                 "32",
                 "--micro-batch-size",
                 "2",
                 "--global-batch-size",
                 "4",
                 "--train-iters",
                 "4",
                 "--lr",
                 "1e-3",
                 "--threads",
                 "1"} +
           type.flags;
  }

  void succeeds(const Words& words) const { expect_success(with_program(words)); }
  void expect_success(const Words& words) const {
    const fs::path out = dir_ / "out.txt";
    fs::remove(out);
    Process::Settings settings;
    settings.out = out;
    Process process(words, settings);
    const ProcessEnd end = process.wait(std::chrono::seconds(120)).value_or(ProcessEnd{});
    EXPECT_EQ(end, (ProcessEnd{.code = 0, .signal = 0})) << text_of(out);
  }

  static std::vector<double> losses(const fs::path& run) {
    std::ifstream file(run / "metrics.jsonl");
    std::vector<double> all;
    for (std::string line; std::getline(file, line);) {
      const auto one = read_json<nlohmann::json>(line);
      if (one.contains("lm_loss")) all.push_back(one["lm_loss"].get<double>());
    }
    return all;
  }

  std::vector<std::int32_t> generated(const std::vector<std::int32_t>& prompt, int count) const {
    const fs::path out = dir_ / "generated.txt";
    fs::remove(out);
    Process::Settings settings;
    settings.out = out;
    settings.error = dir_ / "errors.txt";
    const Words words{"generate",
                      "--load",
                      (dir_ / "whole").string(),
                      "--prompt-ids",
                      fmt::format("{}", fmt::join(prompt, ",")),
                      "--greedy",
                      "--max-new-tokens",
                      std::to_string(count),
                      "--json",
                      "--threads",
                      "1"};
    EXPECT_EQ(run(words, settings), (ProcessEnd{.code = 0, .signal = 0}))
        << text_of(settings.error);
    return read_json<nlohmann::json>(text_of(out))["ids"].get<std::vector<std::int32_t>>();
  }

  void trains(const fs::path& source, const NumberType& type) {
    for (const char* old : {"whole", "parts", "again", "ranks"}) fs::remove_all(dir_ / old);
    const auto save = [&](const char* name) { return Words{"--save", (dir_ / name).string()}; };
    const Words all = training({"--load", source.string()}, type);
    succeeds(all + save("whole"));
    const std::string hash = hash_of(dir_ / "whole");
    EXPECT_NE(hash, "");

    succeeds(all + save("parts") + Words{"--exit-interval", "2"});
    EXPECT_EQ(latest(dir_ / "parts"), 2);
    succeeds(Words{"pretrain", (dir_ / "parts/config.toml").string(), "--load",
                   (dir_ / "parts").string(), "--exit-interval", "4"} +
             save("parts"));
    EXPECT_EQ(latest(dir_ / "parts"), 4);
    EXPECT_EQ(hash_of(dir_ / "parts"), hash) << "2 + 2 steps are not 4";

    succeeds(all + save("again") +
             Words{"--recompute-granularity", "full", "--recompute-method", "uniform",
                   "--recompute-num-layers", "1"});
    EXPECT_EQ(hash_of(dir_ / "again"), hash) << "computed again";

    expect_success(Words{launcher(), "2"} + with_program(all) + save("ranks") +
                   Words{"--tensor-model-parallel-size", "2"});
    const std::vector<double> one = losses(dir_ / "whole");
    const std::vector<double> two = losses(dir_ / "ranks");
    ASSERT_EQ(one.size(), 4U);
    ASSERT_EQ(two.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(two[i], one[i], type.tolerance * one[i]) << "step " << i + 1;
    EXPECT_NE(one[0], one[3]);

    std::vector<std::int32_t> prompt{5, 6, 7};
    for (const std::int32_t id : generated(prompt, 6)) {
      EXPECT_EQ(generated(prompt, 1), std::vector<std::int32_t>{id})
          << "token " << prompt.size() << " behind the cache";
      prompt.push_back(id);
    }
  }

  inline static std::unique_ptr<TempFolder> corpus_;
  TempFolder dir_;
};

TEST_F(EveryFamily, TrainsResumesRecomputesIsDividedAndGenerates) {
  const std::vector<NumberType> types{
      {"fp32", {}, 2e-5}, {"bf16", {"--bf16"}, 1e-2}, {"fp16", {"--fp16"}, 2e-3}};
  const std::vector<std::string> families = test::golden_folders();
  EXPECT_GE(families.size(), 17U);
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (!whole() && i % 2 == 1) continue;  // these by night
    const fs::path source = dir_ / families[i];
    test::write_family_folder(source, families[i]);
    for (std::size_t type = 0; type < types.size(); ++type) {
      if (!whole() && type != i % types.size()) continue;
      SCOPED_TRACE(fmt::format("{} in {}", families[i], types[type].name));
      trains(source, types[type]);
    }
  }
}

}  // namespace
}  // namespace piton::drill
