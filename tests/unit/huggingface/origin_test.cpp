// What a checkpoint keeps of the folder that its weights come from.
#include "huggingface/files/origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(HfOrigin, IsReadAsItWasKept) {
  std::map<std::string, std::string> facts = {{"other", "1"}};
  EXPECT_TRUE(read_origin(facts, "state.json").is_null());  // of an earlier version
  keep_origin(origin_of_family(""), facts);
  EXPECT_EQ(facts.size(), 1U);
  const Json origin = {{"model_type", "llama"}, {"z", {1, 2.5, nullptr}}, {"a", 1e-6}};
  keep_origin(origin, facts);
  EXPECT_EQ(read_origin(facts, "state.json").dump(), origin.dump());  // in the order of the keys
  keep_origin(origin_of_family("baichuan"), facts);
  EXPECT_EQ(facts.at(kOriginFact), "{\"model_type\":\"baichuan\"}");
}

TEST(HfOrigin, ThatIsNoneIsRefused) {
  const auto message = [](const std::string& text) {
    return message_of(Fault::kData, [&] { read_origin({{kOriginFact, text}}, "run/state.json"); });
  };
  EXPECT_THAT(message("{\"model_type\""),
              HasSubstr("run/state.json: huggingface.config: got text that is not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("wanted a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("model_type: got nothing, wanted a word"));
  EXPECT_THAT(message("{\"model_type\": 7}"), HasSubstr("model_type: got 7, wanted a word"));
  EXPECT_THAT(message(std::string(5000, '[')), HasSubstr("run/state.json: huggingface.config"));
}

}  // namespace
}  // namespace piton
