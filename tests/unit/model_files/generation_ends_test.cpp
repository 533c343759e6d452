// The ids that end texts: of a model's files, and of its tokenizer.
#include "model_files/generation_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "gguf/gguf_file.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/huggingface/hf_folder.h"

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

// As Transformers does.
TEST(GenerationEnds, AreThoseOfTheModelWhereTheSettingsNameNone) {
  const TempFolder folder;
  write_text_file(folder.path() / "config.json", R"({"eos_token_id": [2, 9]})");
  EXPECT_THAT(generation_ends(folder.path()), ElementsAre(2, 9));
  write_text_file(folder.path() / "generation_config.json", R"({"do_sample": true})");
  EXPECT_THAT(generation_ends(folder.path()), ElementsAre(2, 9));
  write_text_file(folder.path() / "generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_THAT(generation_ends(folder.path()), ElementsAre(7));
  write_text_file(folder.path() / "generation_config.json", "{}");
  write_text_file(folder.path() / "config.json", "[1, 2]");  // of another program
  EXPECT_THAT(generation_ends(folder.path()), IsEmpty());
  write_text_file(folder.path() / "config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_THAT(message_of(Fault::kData, [&] { generation_ends(folder.path()); }),
              HasSubstr("/config.json: eos_token_id is \"</s>\""));
}

// Of a model in another format than a folder of Hugging Face, as far as its origin is known.
TEST(GenerationEnds, AreKeptWithTheOriginOfAModel) {
  const test::HfFolder folder("llama");
  OpenedModel model = open_model({.path = folder.path()});
  EXPECT_THAT(generation_ends(model), ElementsAre(2));
  model.tokenizer.folder.clear();
  EXPECT_THAT(generation_ends(model), ElementsAre(2));
  model.facts[kOtherTokenizerFact] = "true";
  EXPECT_THAT(generation_ends(model), IsEmpty());
}

// As files of llama.cpp have it for models that end a turn otherwise than a text.
TEST(GenerationEnds, OfAGgufFileAreThoseOfTurnsAndMessages) {
  const TempFolder folder;
  const GgufFile golden(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/gguf/llama.gguf");
  GgufHeader header = golden.header();
  std::string data(static_cast<std::size_t>(golden.file().size_bytes() - header.data_begin), '\0');
  golden.file().read_at(header.data_begin, std::as_writable_bytes(std::span(data)));
  header.entries.push_back({"tokenizer.ggml.eot_token_id", GgufValue::u32(107)});
  header.entries.push_back({"tokenizer.ggml.eom_token_id", GgufValue::u32(108)});
  write_text_file(folder / "m.gguf", make_gguf_header(header) + data);
  EXPECT_THAT(generation_ends(open_model({.path = folder / "m.gguf"})), ElementsAre(107, 108));
  EXPECT_THAT(generation_ends(open_model({.path = golden.where()})), IsEmpty());
}

class Ends final : public Tokenizer {
 public:
  Ends(std::optional<std::int32_t> eos, std::optional<std::int32_t> eod) {
    special_.eos = eos;
    special_.eod = eod;
  }
  void encode(std::string_view, EncodeOptions, std::vector<std::int32_t>&) const override {}
  std::string decode(std::span<const std::int32_t>, DecodeOptions) const override { return ""; }
  std::string piece(std::int32_t) const override { return ""; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return std::nullopt; }
  std::int64_t vocabulary_size() const override { return 10; }
  bool is_special(std::int32_t) const override { return true; }
};

TEST(TextEnds, AreAllOfThemOnce) {
  const Ends both(4, 5);
  EXPECT_THAT(text_ends({7, 4, 7}, &both), ElementsAre(7, 4, 5));
  const Ends document({}, 5);
  EXPECT_THAT(text_ends({}, &document), ElementsAre(5));
  EXPECT_THAT(text_ends({3}, nullptr), ElementsAre(3));
}

TEST(GenerationEnds, AreNoneWhereThereIsNoFile) {
  const TempFolder folder;
  EXPECT_THAT(generation_ends(folder.path()), IsEmpty());
  EXPECT_THAT(generation_ends(""), IsEmpty());
}

}  // namespace
}  // namespace piton
