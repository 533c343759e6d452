#include "model_files/model_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/model_files/small_vocabulary.h"

namespace piton {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

constexpr const char* kWords = "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nto\nbe\nor\nnot\n";

TEST(ModelTokenizer, IsThatOfItsFolderOrOfNamedFiles) {
  const TempFolder folder;
  EXPECT_TRUE(tokenizer_of_folder(folder.path()).empty());
  EXPECT_EQ(open_tokenizer(tokenizer_of_folder(folder.path()), "x"), nullptr);
  write_text_file(folder / "vocab.txt", kWords);
  const ModelTokenizer found = tokenizer_of_folder(folder.path());
  EXPECT_EQ(found.folder, folder.path());
  EXPECT_EQ(open_tokenizer(found, "x")->vocabulary_size(), 9);
  const ModelTokenizer named = tokenizer_of({.vocab_file = (folder / "vocab.txt").string()});
  EXPECT_EQ(named.folder, folder.path());
  EXPECT_TRUE(tokenizer_of({.type = "NullTokenizer"}).empty());
}

TEST(ModelTokenizer, IsKeptWithItsTemplatesButNotWithWeights) {
  const TempFolder folder;
  const fs::path model = folder / "model.v2";
  write_text_file(model / "vocab.txt", kWords);
  write_text_file(model / "generation_config.json", "{}");
  write_text_file(model / "chat_template.jinja", "{{ a }}");
  write_text_file(model / "chat_templates/rag.jinja", "{{ b }}");
  write_text_file(model / "chat_templates/rag.md", "about it");
  write_text_file(model / "model.safetensors", "weights");
  const ModelTokenizer tokenizer = tokenizer_of_folder(model);
  const auto opened = open_tokenizer(tokenizer, "x");
  const fs::path run = folder / "run";
  keep_tokenizer(tokenizer, *opened, run);
  std::vector<std::string> kept;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    if (entry.is_regular_file()) kept.push_back(entry.path().lexically_relative(run).string());
  }
  EXPECT_THAT(kept, UnorderedElementsAre("tokenizer/vocab.txt", "tokenizer/generation_config.json",
                                         "tokenizer/chat_template.jinja",
                                         "tokenizer/chat_templates/rag.jinja"));
  EXPECT_EQ(read_text_file(run / "tokenizer/chat_templates/rag.jinja"), "{{ b }}");
  const TokenizerOptions moved = kept_tokenizer(tokenizer.options, run / "iter_0000001");
  EXPECT_EQ(moved.name_or_path, run / "tokenizer");
  EXPECT_EQ(open_tokenizer(moved)->content_hash(), opened->content_hash());
}

// Programs differ in the file that they read first.
TEST(ModelTokenizer, KeepsOneTemplateInBothOfItsPlaces) {
  const TempFolder run;
  const fs::path kept = run / kTokenizerFolder;
  keep_chat_template("{{ first }}", run.path());
  EXPECT_FALSE(fs::exists(kept / "tokenizer_config.json"));
  write_text_file(kept / "tokenizer_config.json",
                  R"({"bos_token": "<s>", "chat_template": "{{ base }}"})");
  keep_chat_template("{{ tuned }}", run.path());
  EXPECT_EQ(read_text_file(kept / "chat_template.jinja"), "{{ tuned }}");
  EXPECT_EQ(read_text_file(kept / "tokenizer_config.json"),
            "{\n  \"bos_token\": \"<s>\",\n  \"chat_template\": \"{{ tuned }}\"\n}\n");
}

TEST(ModelTokenizer, InsideTheFileOfAModelIsKeptAsFiles) {
  const TempFolder folder;
  const ModelTokenizer tokenizer{.texts =
                                     files_of_vocabulary(test::small_vocabulary(20), "x.gguf")};
  EXPECT_FALSE(tokenizer.empty());
  const auto opened = open_tokenizer(tokenizer, "x.gguf");
  keep_tokenizer(tokenizer, *opened, folder.path());
  const auto kept = open_tokenizer({.name_or_path = (folder / "tokenizer").string()});
  EXPECT_EQ(kept->content_hash(), opened->content_hash());
  // The same is not written again.
  const fs::path file = folder / "tokenizer/tokenizer.model";
  const auto written = fs::last_write_time(file);
  keep_tokenizer(tokenizer, *opened, folder.path());
  EXPECT_EQ(fs::last_write_time(file), written);
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           open_tokenizer(ModelTokenizer{.texts = {{"a", "b"}}}, "x.gguf");
                         }),
              HasSubstr("x.gguf: no tokenizer in it"));
}

TEST(ModelTokenizer, OfAnotherModelIsNamedByItsFirstDifference) {
  const TempFolder folder;
  write_text_file(folder / "a/vocab.txt", kWords);
  write_text_file(folder / "b/vocab.txt", std::string(kWords) + "question\n");
  const ModelTokenizer own = tokenizer_of_folder(folder / "a");
  const auto same = open_tokenizer(own, "a");
  const auto other = open_tokenizer(tokenizer_of_folder(folder / "b"), "b");
  EXPECT_EQ(other_tokenizer_note(*same, own, "a"), "");
  EXPECT_THAT(other_tokenizer_note(*other, own, "a"),
              HasSubstr("a: the model has another tokenizer than the one that was named"));
  EXPECT_EQ(other_tokenizer_note(*other, {}, "a"), "") << "there is none";
  write_text_file(folder / "a/vocab.txt", "");
  EXPECT_EQ(other_tokenizer_note(*other, own, "a"), "") << "it cannot be read";
  ModelConfig model;
  model.vocabulary = 9;
  check_rows_for(*same, model, "a");
  EXPECT_THAT(message_of(Fault::kData, [&] { check_rows_for(*other, model, "a"); }),
              HasSubstr("a: the tokenizer has 10 ids, the model's table 9 rows"));
}

}  // namespace
}  // namespace piton
