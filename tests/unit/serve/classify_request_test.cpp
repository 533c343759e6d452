#include "serve/classify_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Classify : public test::Service {
 protected:
  std::string refused(const Json& body, const std::string& path = "/v1/classify") {
    return post(path, body, 400)["error"]["message"].get<std::string>();
  }
};

// The scripted logits are 0, 0 and the number of tokens.
TEST_F(Classify, GivesTheProbabilitiesOfEachLabel) {
  model_.names_of_labels = {"low", "middle", "high"};
  begin();
  const Json json = post("/v1/classify", {{"input", {"abc", "x"}}});
  ASSERT_EQ(json["data"].size(), 2U);
  for (const std::size_t i : {0U, 1U}) {
    const Json& one = json["data"][i];
    const double share = std::exp(i == 0 ? 3.0 : 1.0);
    EXPECT_EQ(one["index"], i);
    EXPECT_EQ(one["label"], "high");
    EXPECT_EQ(one["num_classes"], 3);
    EXPECT_NEAR(one["probs"][2].get<double>(), share / (share + 2), 1e-12);
    EXPECT_NEAR(one["probs"][0].get<double>(), 1 / (share + 2), 1e-12);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 4);
  EXPECT_THAT(json["id"].get<std::string>(), testing::StartsWith("classify-"));
  EXPECT_EQ(post("/classify", {{"input", "abc"}})["data"][0], json["data"][0]);
}

// Each label has its own, where a text may have several; one label is enough then.
TEST_F(Classify, GivesSigmoidsOfSeveralLabels) {
  model_.names_of_labels = {"low", "middle", "high"};
  model_.has_several_labels = true;
  begin();
  const Json one = post("/v1/classify", {{"input", "abc"}})["data"][0];
  EXPECT_EQ(one["label"], "high");
  EXPECT_NEAR(one["probs"][0].get<double>(), 0.5, 1e-12);
  EXPECT_NEAR(one["probs"][2].get<double>(), 1 / (1 + std::exp(-3.0)), 1e-12);
}

// More texts than are computed together, of all lengths.
TEST_F(Classify, AnswersInTheOrderOfTheTexts) {
  model_.names_of_labels = {"low", "high"};
  begin();
  Json texts = Json::array();
  for (std::size_t i = 0; i < 150; ++i) texts.push_back(std::string(1 + i * 7 % 11, 'a'));
  const Json data = post("/v1/classify", {{"input", texts}})["data"];
  ASSERT_EQ(data.size(), texts.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    const double share = std::exp(1.0 + static_cast<double>(i * 7 % 11));
    EXPECT_NEAR(data[i]["probs"][1].get<double>(), share / (share + 1), 1e-12) << i;
  }
}

TEST_F(Classify, RefusesWhatIsNoText) {
  model_.names_of_labels = {"low", "high"};
  begin();
  EXPECT_THAT(refused(Json::object()), HasSubstr("input: got nothing"));
  EXPECT_THAT(refused({{"input", Json::array()}}), HasSubstr("a list of 1 to 2048 strings"));
  EXPECT_THAT(refused({{"input", {"a", 3}}}), HasSubstr("input: got"));
  EXPECT_EQ(refused({{"input", {"a", ""}}}), "input[1]: it has no tokens");
  EXPECT_THAT(refused({{"input", "a"}, {"tpyo", 1}}), HasSubstr("unknown field"));
}

TEST_F(Classify, IsForClassifiersAlone) {
  begin();
  EXPECT_THAT(refused({{"input", "a"}}), HasSubstr("start the server with a classifier"));
  model_.names_of_labels = {"low", "high"};
  for (const char* path : {"/v1/completions", "/v1/embeddings", "/v1/rerank"})
    EXPECT_THAT(refused(Json::object(), path), HasSubstr("it answers /v1/classify"));
}

}  // namespace
}  // namespace piton
