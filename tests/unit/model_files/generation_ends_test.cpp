// The ids that end texts, from generation_config.json.
#include "model_files/generation_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(GenerationEnds, AreOneIdOrSeveral) {
  const TempFolder folder;
  const auto ends = [&](const std::string& text) {
    write_text_file(folder.path() / "generation_config.json", text);
    return generation_ends(folder.path());
  };
  EXPECT_THAT(ends(R"({"eos_token_id": 7, "do_sample": true})"), ElementsAre(7));
  EXPECT_THAT(ends(R"({"eos_token_id": [151645, 151643]})"), ElementsAre(151645, 151643));
  EXPECT_THAT(ends(R"({"eos_token_id": null})"), IsEmpty());
  EXPECT_THAT(ends("{}"), IsEmpty());
  for (const char* bad : {"\"</s>\"", "[1, null]", "-1", "4294967296", "1.5"}) {
    EXPECT_THAT(
        message_of(Fault::kData, [&] { ends(fmt::format(R"({{"eos_token_id": {}}})", bad)); }),
        HasSubstr("generation_config.json: eos_token_id is "))
        << bad;
  }
  EXPECT_THAT(message_of(Fault::kData, [&] { ends("[1"); }), HasSubstr("not a JSON object"));
}

TEST(GenerationEnds, AreNoneWhereThereIsNoFile) {
  const TempFolder folder;
  EXPECT_THAT(generation_ends(folder.path()), IsEmpty());
  EXPECT_THAT(generation_ends(""), IsEmpty());
}

}  // namespace
}  // namespace piton
