// Layouts of Megatron-core, with the numbers of tools/oracle/pipeline_layout.py, and what is no
// layout.
#include "cli/compatibility/pipeline_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(PipelineLayout, HasTheLayersThatMegatronGivesEachChunk) {
  const auto golden = read_json<nlohmann::json>(
      read_text_file(PITON_SOURCE_DIR "/tests/golden/pipeline_layouts.json"));
  EXPECT_GE(golden.at("layouts").size(), 8U);
  for (const auto& one : golden.at("layouts")) {
    EXPECT_EQ(layers_of_layout(one.at("layout").get<std::string>()),
              one.at("layers").get<std::vector<std::int64_t>>())
        << one;
  }
}

TEST(PipelineLayout, RefusesWhatIsNone) {
  const auto refusal = [](std::string_view layout) {
    return message_of(Fault::kUsage, [&] { layers_of_layout(layout); });
  };
  EXPECT_EQ(refusal("Et|xL"),
            "--pipeline-model-parallel-layout: got \"Et|xL\": wanted E, t, L, | and repetitions of "
            "them, not \"x\"");
  EXPECT_THAT(refusal(""), HasSubstr("wanted the embedding, E, once"));
  EXPECT_THAT(refusal("tt|tL"), HasSubstr("wanted the embedding, E, once"));
  EXPECT_THAT(refusal("EtE|tL"), HasSubstr("wanted the embedding, E, once"));
  EXPECT_THAT(refusal("Et|Lt"), HasSubstr("wanted the loss, L, once"));
  EXPECT_THAT(refusal("Ett|mL"), HasSubstr("predicts further tokens"));
  EXPECT_THAT(refusal("Ett|L"), HasSubstr("chunk 1 of 2 has no transformer layer"));
  EXPECT_THAT(refusal("E(t|"), HasSubstr("wanted (...)*N behind \"E\""));
  EXPECT_THAT(refusal("E(t|)tL"), HasSubstr("wanted (...)*N"));
  EXPECT_THAT(refusal("Et*|tL"), HasSubstr("wanted a number"));
  EXPECT_THAT(refusal("Et*99999999999999999999L"), HasSubstr("wanted a number"));
  EXPECT_THAT(refusal("E(tttt|)*60000tL"), HasSubstr("has more than 65536 letters"));
}

}  // namespace
}  // namespace piton::cli
