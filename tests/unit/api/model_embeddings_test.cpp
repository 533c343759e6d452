// Vectors of texts are the hidden states of Transformers: tests/golden/embeddings.jsonl, made by
// tools/oracle/embeddings.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "api/model.h"
#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"

namespace piton {
namespace {

TEST(ModelEmbeddings, AreThoseOfTransformers) {
  std::istringstream golden(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/embeddings.jsonl"));
  std::string line;
  std::getline(golden, line);  // the provenance
  test::HostMachine machine;
  int rows = 0;
  while (std::getline(golden, line)) {
    const auto row = read_json<nlohmann::json>(line);
    const auto model =
        Model::load(machine.machine, test::golden_folder(row["model"].get<std::string>()), {});
    const std::vector<std::int32_t> ids = row["ids"];
    for (const char* pooling : {"mean", "last"}) {
      const std::vector<float> wanted = row[pooling];
      const std::vector<float> got = model->embedding(
          ids, std::string(pooling) == "mean" ? EmbeddingPooling::kMean : EmbeddingPooling::kLast);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], wanted[i], 1e-4) << row["model"] << ", " << pooling << ", " << i;
    }
    ++rows;
  }
  EXPECT_EQ(rows, 9);
}

TEST(ModelEmbeddings, OfIdsThatAreNoneAreRefused) {
  test::HostMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("gpt2"), {});
  EXPECT_THAT(
      message_of(
          Fault::kUsage,
          [&] { model->embedding(std::vector<std::int32_t>{100'000}, EmbeddingPooling::kMean); }),
      testing::HasSubstr("id 100000 is outside of the vocabulary"));
}

}  // namespace
}  // namespace piton
