// Penalties of runs against llama.cpp, and breakers found in a vocabulary.
#include "generate/repeated_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

// tools/oracle/llama_samplers.cpp: texts of a few ids, with breakers of one to three.
TEST(RunPenalties, AreThoseOfLlamaCpp) {
  std::istringstream lines(read_text_file(std::filesystem::path(PITON_SOURCE_DIR) /
                                          "tests/golden/sampling/llama_samplers.jsonl"));
  int compared = 0;
  int penalized = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = read_json<nlohmann::json>(line);
    if (!golden.contains("text")) continue;
    SCOPED_TRACE(line);
    auto breakers = std::make_shared<RunBreakers>();
    for (const auto& one : golden["breakers"]) {
      const auto ids = one.get<std::vector<std::int32_t>>();
      breakers->runs.emplace(ids.front(), std::vector<std::int32_t>(ids.begin() + 1, ids.end()));
    }
    const auto found =
        run_penalties(golden["text"].get<std::vector<std::int32_t>>(),
                      {.multiplier = golden["multiplier"].get<double>(),
                       .base = golden["base"].get<double>(),
                       .allowed_length = golden["allowed_length"].get<std::int64_t>(),
                       .last_tokens = golden["last_n"].get<std::int64_t>(),
                       .breakers = breakers});
    const auto wanted = golden["penalties"].get<std::vector<double>>();
    for (std::int32_t id = 0; id < std::ssize(wanted); ++id) {
      const auto one = found.find(id);
      const double loss = one == found.end() ? 0 : one->second;
      const double expected = std::min(wanted[static_cast<std::size_t>(id)], kMostRunPenalty);
      EXPECT_NEAR(loss, expected, 1e-5 * expected) << "id " << id;
      penalized += loss > 0 ? 1 : 0;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 120);
  EXPECT_GT(penalized, 100);
}

TEST(RunPenalties, GrowNoFurtherThanALimit) {
  const std::vector<std::int32_t> text(3000, 7);
  EXPECT_THAT(run_penalties(text, {.multiplier = 1}),
              testing::ElementsAre(testing::Pair(7, kMostRunPenalty)));
  EXPECT_TRUE(run_penalties(text, {.multiplier = 1, .last_tokens = 0}).empty());
  EXPECT_TRUE(run_penalties({}, {.multiplier = 1, .allowed_length = 0}).empty());
}

}  // namespace
}  // namespace piton
