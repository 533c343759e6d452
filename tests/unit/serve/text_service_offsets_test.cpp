// Where the tokens of an answer are in its text.
#include <gtest/gtest.h>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using test::Service;

// A special token has no text, and a character of two tokens is one.
TEST_F(Service, GivesTheOffsetsOfTokensInTheText) {
  model_.engine_of_it.write = [](const std::string&, std::uint64_t) { return "éab STOP"; };
  begin();
  const Json body = {
      {"prompt", {'n', 256, 0xC3, 0xA9, 'm'}}, {"echo", true}, {"logprobs", 0}, {"stop", " STOP"}};
  const Json choice = post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "néméab");
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json({0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 6, 6, 6, 6}));
  Json streamed = body;
  streamed["stream"] = true;
  Json offsets = Json::array();
  for (const Json& event : stream("/v1/completions", streamed)) {
    const Json& parts = event["choices"][0]["logprobs"];
    if (parts.is_null()) continue;
    for (const Json& offset : parts["text_offset"]) offsets.push_back(offset);
  }
  // What may begin a stop word is not yet known to end the text.
  EXPECT_EQ(offsets, Json({0, 1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 6}));
}

}  // namespace
}  // namespace piton
