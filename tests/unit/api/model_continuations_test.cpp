// Continuations that are scored together have the scores that each has alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "api/model.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"

namespace piton {
namespace {

using test::HostMachine;
using ::testing::HasSubstr;

// By the logits of the whole text.
ContinuationScore score_alone(Model& model, const ContinuationRequest& request) {
  const std::span<const std::int32_t> ids(request.ids);
  const Tensor logits = model.logits(ids.first(ids.size() - 1));
  const auto vocabulary = static_cast<std::size_t>(model.config().vocabulary);
  ContinuationScore score{.greedy = true};
  for (std::size_t at = request.given; at < ids.size(); ++at) {
    const std::span<const float> row(logits.data<float>() + (at - 1) * vocabulary, vocabulary);
    score.log_likelihood += row[static_cast<std::size_t>(ids[at])] - log_sum_exp(row);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    score.greedy = score.greedy && best == ids[at];
  }
  return score;
}

std::vector<ContinuationRequest> various_requests(Model& model) {
  std::vector<ContinuationRequest> requests;
  const auto add = [&](std::vector<std::int32_t> context, const std::vector<std::int32_t>& more) {
    const std::size_t given = context.size();
    context.insert(context.end(), more.begin(), more.end());
    requests.push_back({.ids = std::move(context), .given = given});
  };
  const std::vector<std::int32_t> shared = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  // Choices after a context that is read once.
  add(shared, {7, 8, 9});
  add(shared, {2});
  add(shared, {2, 7});
  // Choices of one token after one context, and texts of other lengths.
  add({8, 1, 7}, {4});
  add({8, 1, 7}, {5});
  add({8, 1, 7}, {4, 4, 4, 4, 4});
  add({11}, {12});
  // What the model itself says: the greedy continuation.
  std::vector<std::int32_t> greedy;
  for (const GeneratedToken& token : model.generate(shared, {.max_new_tokens = 3, .greedy = true},
                                                    [](const auto&) { return true; }))
    greedy.push_back(token.id);
  add(shared, greedy);
  return requests;
}

TEST(ModelContinuations, ScoredTogetherAreAsEachAlone) {
  HostMachine machine;
  // Of phi3-longrope all angles change at 13 tokens: its texts are read one by one.
  for (const char* name : {"gpt2", "llama3", "phi3-longrope"}) {
    SCOPED_TRACE(name);
    const auto model = Model::load(machine.machine, test::golden_folder(name), {});
    const auto requests = various_requests(*model);
    const auto scores = model->score_continuations(requests);
    ASSERT_EQ(scores.size(), requests.size());
    int greedy = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      const ContinuationScore alone = score_alone(*model, requests[i]);
      EXPECT_NEAR(scores[i].log_likelihood, alone.log_likelihood, 1e-4);
      EXPECT_EQ(scores[i].greedy, alone.greedy);
      if (scores[i].greedy) ++greedy;
    }
    EXPECT_GE(greedy, 1);
    EXPECT_LT(greedy, 8);
  }
}

TEST(ModelContinuations, ThatDoNotFitAreRefused) {
  HostMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("gpt2"), {});
  const auto score = [&](const ContinuationRequest& request) {
    return [&model, request] { model->score_continuations(std::span(&request, 1)); };
  };
  EXPECT_THAT(message_of(Fault::kUsage, score({.ids = {1, 100'000}, .given = 1})),
              HasSubstr("id 100000 is outside of the vocabulary"));
  ContinuationRequest longer{.given = 1};
  longer.ids.assign(static_cast<std::size_t>(model->config().max_positions) + 2, 1);
  EXPECT_THAT(message_of(Fault::kUsage, score(longer)), HasSubstr("and the model takes"));
  EXPECT_TRUE(model->score_continuations({}).empty());
}

}  // namespace
}  // namespace piton
