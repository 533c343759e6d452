// Which files of a downloaded data set are read.
#include "data/records/data_set_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "data/records/front_matter.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using Names = std::vector<std::string>;

// As of a page of the Hub, with keys before and behind it.
constexpr const char* kPage = R"(---
language:
- en
dataset_info:
- config_name: en   # a comment
  features:
  - name: text
    dtype: string
configs:
- config_name: en
  data_files:
  - split: train
    path: "en/train-*"
  - split: test
    path:
    - en/test.jsonl
    - 'en/more''s/*.jsonl'
- config_name: de
  default: true
  data_files: [de/a.jsonl, "de/b.jsonl"]
- config_name: flow
  data_files: [{split: train, path: en/**}, {split: dev, path: "**/{a,b}.jsonl"}]
tags: [text]
---
# The data
configs: not this
)";

const Names kFiles = {"en/train-00001.jsonl", "en/train-00000.jsonl", "en/test.jsonl",
                      "en/more's/x.jsonl",    "de/a.jsonl",           "de/b.jsonl"};

TEST(FrontMatter, HasTheListsAndMapsOfAPage) {
  const auto configs = front_matter_value(kPage, "configs", "README.md");
  ASSERT_TRUE(configs);
  EXPECT_EQ(*configs, read_json<nlohmann::json>(R"([{"config_name": "en", "data_files": [
        {"split": "train", "path": "en/train-*"},
        {"split": "test", "path": ["en/test.jsonl", "en/more's/*.jsonl"]}]},
        {"config_name": "de", "default": "true", "data_files": ["de/a.jsonl", "de/b.jsonl"]},
        {"config_name": "flow", "data_files": [{"split": "train", "path": "en/**"},
                                               {"split": "dev", "path": "**/{a,b}.jsonl"}]}])"));
  EXPECT_EQ(front_matter_value(kPage, "tags", "README.md"), nlohmann::json({"text"}));
  EXPECT_EQ(front_matter_value(kPage, "license", "README.md"), std::nullopt);
  EXPECT_EQ(front_matter_value("# The data\n---\nconfigs: x\n---\n", "configs", "README.md"),
            std::nullopt);
  EXPECT_EQ(front_matter_value("---\nconfigs: # none\n---\n", "configs", "README.md"),
            nlohmann::json(nullptr));
  EXPECT_EQ(front_matter_value("---\r\nconfigs:\r\n  - \"a # b\"\r\n  -\r\n    c: d#e\r\n---\r\n",
                               "configs", "README.md"),
            read_json<nlohmann::json>(R"(["a # b", {"c": "d#e"}])"));
}

TEST(FrontMatter, RefusesWhatItDoesNotReadWithItsLine) {
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"configs:\n- a: |\n    x\n", "README.md:3: \"|\" is not understood"},
           {"configs:\n- a: [x,\n  y]\n", "README.md:3: a bracket is not closed on its line"},
           {"configs:\n- a: x\n    b: y\n", "README.md:4: indented too far"},
           {"configs:\n- a: x\n  y\n", "README.md:4: neither a key nor an item of a list"},
           {"configs:\n    - a\n  - b\n", "README.md:4: indented less than what it belongs to"},
           {"configs:\n- \"a\n", "README.md:3: a quote that cannot be read"},
           {"configs: x\n  y: z\n", "README.md:3: "},
       }) {
    const auto read = [&, page = "---\n" + text + "---\n"] {
      front_matter_value(page, "configs", "README.md");
    };
    EXPECT_THAT(message_of(Fault::kData, read), testing::HasSubstr(said)) << text;
  }
  std::string deep = "---\nconfigs:\n";
  for (int i = 0; i < 1000; ++i) deep += "- ";
  EXPECT_THAT(message_of(Fault::kData,
                         [&] { front_matter_value(deep + "x\n---\n", "configs", "README.md"); }),
              testing::HasSubstr("nested too deeply"));
}

TEST(DataSetFolder, HasTheFilesThatItsPageNames) {
  const TempFolder folder;
  write_text_file(folder / "README.md", kPage);
  EXPECT_EQ(choose_files(folder.path(), kFiles, {}).files, (Names{"de/a.jsonl", "de/b.jsonl"}));
  const ChosenFiles train = choose_files(folder.path(), kFiles, {.config = "en"});
  EXPECT_EQ(train.files, (Names{"en/train-00000.jsonl", "en/train-00001.jsonl"}));
  EXPECT_THAT(train.note, testing::HasSubstr("en, split train, 2 files; --dataset-split has also "
                                             "test; --dataset-config has also de, flow"));
  EXPECT_EQ(choose_files(folder.path(), kFiles, {"en", "test"}).files,
            (Names{"en/test.jsonl", "en/more's/x.jsonl"}));
  EXPECT_EQ(choose_files(folder.path(), kFiles, {"flow", "dev"}).files,
            (Names{"de/a.jsonl", "de/b.jsonl"}));
  EXPECT_EQ(choose_files(folder.path(), kFiles, {"flow", ""}).files.size(), 4U);
}

TEST(DataSetFolder, RefusesWhatItDoesNotHave) {
  const TempFolder folder;
  const auto said = [&](const DataSetChoice& choice, Fault fault = Fault::kUsage) {
    return message_of(fault, [&] { choose_files(folder.path(), kFiles, choice); });
  };
  EXPECT_THAT(said({.config = "en"}), testing::HasSubstr("names no files of it"));
  write_text_file(folder / "README.md", kPage);
  EXPECT_THAT(said({.config = "fr"}), testing::HasSubstr("has en, de, flow; got \"fr\""));
  EXPECT_THAT(said({"en", "dev"}), testing::HasSubstr("has train, test; got \"dev\""));
  write_text_file(folder / "README.md", "---\nconfigs:\n- data_files: x/*.jsonl\n---\n");
  EXPECT_THAT(said({}), testing::HasSubstr("names \"x/*.jsonl\", and there is no such data file"));
  write_text_file(folder / "README.md", "---\nconfigs:\n- config_name: a\n- config_name: b\n---\n");
  EXPECT_THAT(said({}), testing::HasSubstr("has a, b; got none, and none of these is the default"));
  for (const char* bad :
       {"configs: x", "configs:", "configs:\n- x", "configs:\n- data_files:\n  - split: train",
        "configs:\n- data_files:\n    train: x"}) {
    write_text_file(folder / "README.md", "---\n" + std::string(bad) + "\n---\n");
    EXPECT_THAT(said({}, Fault::kData), testing::HasSubstr("README.md: ")) << bad;
  }
}

TEST(DataSetFolder, WithoutAPageHasTheSplitsThatItsNamesTell) {
  const TempFolder folder;
  const auto files = [&](const Names& all, const std::string& split = "") {
    return choose_files(folder.path(), all, {.config = "", .split = split}).files;
  };
  const Names shards = {"data/train-00000-of-00001-ab12.parquet", "data/val-00000-of-00001.parquet",
                        "data/train_sft-00000-of-00001.parquet", "test.parquet"};
  EXPECT_EQ(files(shards), (Names{shards[0]}));
  EXPECT_EQ(files(shards, "train_sft"), (Names{shards[2]}));
  EXPECT_EQ(files({"a/train/x.txt", "a/dev/y.txt", "test.txt"}), (Names{"a/train/x.txt"}));
  EXPECT_EQ(files({"a/train/x.txt", "a/dev/y.txt"}, "validation"), (Names{"a/dev/y.txt"}));
  EXPECT_EQ(files({"my_train_1.txt", "training.txt", "eval.txt", "brain.txt"}),
            (Names{"my_train_1.txt", "training.txt"}));
  // Names that tell one split or none divide nothing.
  EXPECT_EQ(files({"train.txt", "other.txt"}), (Names{"other.txt", "train.txt"}));
  EXPECT_EQ(files({"train.txt", "other.txt"}, "train"), (Names{"train.txt"}));
  EXPECT_EQ(files({"latest.txt", "strain.txt"}), (Names{"latest.txt", "strain.txt"}));
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           files({"dev.txt", "test.txt"});
                         }),
              testing::HasSubstr("has test, validation; got none, and there is no train"));
}

TEST(DataSetFolder, PatternsMatchAsOfTheHub) {
  EXPECT_TRUE(matches_pattern("data/train-*", "data/train-0.parquet"));
  EXPECT_FALSE(matches_pattern("data/*", "data/a/b"));
  EXPECT_TRUE(matches_pattern("**", "data/a/b"));
  EXPECT_TRUE(matches_pattern("**/b", "b"));
  EXPECT_TRUE(matches_pattern("**/b", "data/a/b"));
  EXPECT_FALSE(matches_pattern("**/b", "data/ab"));
  EXPECT_TRUE(matches_pattern("data/**/b", "data/b"));
  EXPECT_TRUE(matches_pattern("[a-c]?[!x].txt", "b1y.txt"));
  EXPECT_FALSE(matches_pattern("[a-c]?[!x].txt", "b1x.txt"));
  EXPECT_FALSE(matches_pattern("a?b", "a/b"));
  EXPECT_TRUE(matches_pattern("[a", "[a"));
  EXPECT_TRUE(matches_pattern("{en,de}/{a,b}.txt", "de/a.txt"));
  EXPECT_FALSE(matches_pattern("{en,de}/a.txt", "fr/a.txt"));
}

}  // namespace
}  // namespace piton
