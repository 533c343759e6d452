// stories260K, a small model that was really trained (llama2.c's format), gives the logits and the
// text that a float64 program computed from the same file. The file is not in the repository.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>

#include "api/model.h"
#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "support/host_machine.h"
#include "support/stories_folder.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

const fs::path kStories = test::stories_path();

// The words of tok512.bin: the longest word's length, then a score, a length and the bytes of each.
std::vector<std::string> words_of(const fs::path& path) {
  const std::string bytes = read_text_file(path);
  std::vector<std::string> words;
  for (std::size_t at = 4; at + 8 <= bytes.size();) {
    std::int32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    words.push_back(bytes.substr(at + 8, static_cast<std::size_t>(length)));
    at += 8 + static_cast<std::size_t>(length);
  }
  return words;
}

TEST(Stories260K, GivesItsGoldenLogitsAndText) {
  if (!fs::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
  const TempFolder folder;
  test::StoriesFile(kStories / "stories260K.bin").write_folder(folder.path());
  const std::vector<std::string> words = words_of(kStories / "tok512.bin");
  const auto golden =
      read_json<nlohmann::json>(read_text_file(kStories / "weights_golden_260K.json"));
  test::HostMachine machine;
  const auto model = Model::load(machine.machine, folder.path(), {});
  const auto& cases = golden["models"]["stories260K"]["cases"];
  EXPECT_EQ(cases.size(), 4U);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["prompt"].get<std::string>());
    const std::vector<std::int32_t> prompt = one["prompt_ids"];
    const std::vector<double> wanted = one["last_logits"];
    const std::vector<double> all = test::values(model->logits(prompt));
    ASSERT_EQ(all.size(), prompt.size() * wanted.size());
    const double* last = all.data() + (prompt.size() - 1) * wanted.size();
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(last[i], wanted[i], 1e-4) << i;

    const std::vector<std::int32_t> ids = one["greedy_ids"];
    std::vector<std::int32_t> got = prompt;
    for (const GeneratedToken& token : model->generate(
             prompt, {.max_new_tokens = std::ssize(ids) - std::ssize(prompt), .greedy = true},
             [](const GeneratedToken&) { return true; })) {
      got.push_back(token.id);
    }
    EXPECT_EQ(got, ids);
    std::string text;
    for (std::size_t i = 1; i < got.size() && got[i] > 2; ++i)  // from one <s> to the next
      text += words.at(static_cast<std::size_t>(got[i]));
    EXPECT_EQ(text, one["greedy_text"].get<std::string>());
  }
}

// Keys and values in 8 bits give the likelihoods of Transformers with rounded keys and values
// (tests/golden/stories_cache_codes.txt), which are near those of the model.
TEST(Stories260K, HasTheLikelihoodsOfRoundedKeysAndValues) {
  if (!fs::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
  const TempFolder folder;
  test::StoriesFile(kStories / "stories260K.bin").write_folder(folder.path());
  const auto golden =
      read_json<nlohmann::json>(read_text_file(kStories / "weights_golden_260K.json"));
  std::ifstream sums(fs::path(PITON_SOURCE_DIR) / "tests/golden/stories_cache_codes.txt");
  for (std::string comment; sums.peek() == '#';) std::getline(sums, comment);
  test::HostMachine machine;
  const auto full = Model::load(machine.machine, folder.path(), {});
  InferenceOptions options;
  options.kv_cache_dtype = CacheNumbers::kInt8;
  const auto coded = Model::load(machine.machine, folder.path(), {}, options);
  for (const auto& one : golden["models"]["stories260K"]["cases"]) {
    double wanted = 0;
    double wanted_coded = 0;
    ASSERT_TRUE(sums >> wanted >> wanted_coded);
    const std::vector<std::int32_t> ids = one["greedy_ids"];
    const Model::Score whole = full->score(ids);
    const Model::Score got = coded->score(ids);
    EXPECT_NEAR(whole.sum(), wanted, 1e-3);
    // Coding moves these sums by 0.17 to 1.3. Another order of sums moves some codes by one.
    EXPECT_NEAR(got.sum(), wanted_coded, 0.04);
    ASSERT_EQ(got.log_likelihood.size(), whole.log_likelihood.size());
    for (std::size_t i = 0; i < whole.log_likelihood.size(); ++i)
      EXPECT_NEAR(got.log_likelihood[i], whole.log_likelihood[i], 0.3) << i;
    EXPECT_NEAR(got.sum(), whole.sum(), 0.01 * static_cast<double>(ids.size()));
  }
}

}  // namespace
}  // namespace piton
