#include "serve/rerank_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Rerank : public test::Service {
 protected:
  static Json body(const Json& more = Json::object()) {
    Json json = {{"query", "q"}, {"documents", {"bb", {{"text", "dddd"}}, "a", "cc"}}};
    json.update(more);
    return json;
  }
  std::string refused(const Json& body) {
    return post("/v1/rerank", body, 400)["error"]["message"].get<std::string>();
  }
};

// The scripted reward is the length of "user:q;assistant:DOCUMENT;".
TEST_F(Rerank, OrdersDocumentsByTheirRewards) {
  model_.is_reward_model = true;
  begin();
  const Json json = post("/v1/rerank", body());
  std::vector<std::size_t> order;
  for (const Json& one : json["results"]) order.push_back(one["index"]);
  EXPECT_THAT(order, testing::ElementsAre(1, 0, 3, 2));
  EXPECT_EQ(json["results"][0]["relevance_score"], 22.0);
  EXPECT_FALSE(json["results"][0].contains("document"));
  EXPECT_EQ(json["model"], "scripted");
  EXPECT_EQ(json["usage"]["total_tokens"], 22 + 20 + 20 + 19);
  EXPECT_EQ(post("/v2/rerank", body())["results"], json["results"]);
  const Json first = post("/rerank", body({{"top_n", 1}, {"return_documents", true}}))["results"];
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0]["document"]["text"], "dddd");
}

// The scripted number is that of the tokens of the document.
TEST_F(Rerank, OrdersDocumentsByTheNumbersOfPairs) {
  model_.names_of_labels = {"LABEL_0"};
  begin();
  const Json json = post("/v1/rerank", body());
  std::vector<std::size_t> order;
  for (const Json& one : json["results"]) order.push_back(one["index"]);
  EXPECT_THAT(order, testing::ElementsAre(1, 0, 3, 2));
  EXPECT_NEAR(json["results"][0]["relevance_score"].get<double>(), 1 / (1 + std::exp(-4.0)), 1e-12);
  EXPECT_EQ(json["usage"]["total_tokens"], 5 + 3 + 3 + 2);
  EXPECT_THAT(refused({{"query", ""}, {"documents", {"a"}}}),
              HasSubstr("documents[0]: it has no tokens"));
  for (const char* path : {"/v1/completions", "/v1/embeddings", "/v1/classify"})
    EXPECT_THAT(ask(path, "{}").body, HasSubstr("it answers /v1/rerank"));
}

TEST_F(Rerank, RefusesWhatHasNoOrder) {
  model_.is_reward_model = true;
  begin();
  EXPECT_EQ(refused({{"documents", {"a"}}}), "query: got nothing, wanted a string");
  EXPECT_THAT(refused({{"query", "q"}}), HasSubstr("documents: got nothing"));
  EXPECT_THAT(refused(body({{"documents", Json::array()}})), HasSubstr("a list of 1 to 2048"));
  EXPECT_THAT(refused(body({{"documents", {{{"title", "x"}}}}})), HasSubstr("documents: got"));
  EXPECT_THAT(refused(body({{"top_n", 0}})), HasSubstr("top_n: got 0"));
  EXPECT_THAT(refused(body({{"top_k", 1}})), HasSubstr("unknown field"));
  EXPECT_THAT(refused(body({{"documents", {"a", std::string(300, 'x')}}})),
              HasSubstr("documents[1]: with the query it has 318 tokens"));
}

TEST_F(Rerank, NeedsARewardModelWhichHasNothingElse) {
  begin();
  EXPECT_THAT(refused(body()), HasSubstr("start the server with a reward model"));
  model_.is_reward_model = true;
  for (const char* path : {"/v1/completions", "/v1/embeddings", "/v1/messages"})
    EXPECT_THAT(ask(path, "{}").body, HasSubstr("it answers /v1/rerank"));
  EXPECT_EQ(post("/tokenize", {{"prompt", "ab"}})["tokens"], Json({97, 98}));
}

}  // namespace
}  // namespace piton
