// Texts with labels: records, their tokens, which are those of Transformers, and samples.
#include "data/labels/labeled_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "base/error.h"
#include "base/files/files.h"
#include "data/instruct/handlers.h"
#include "data/instruct/labeled_texts.h"
#include "data/samples/batch_source.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t U = kNoLabel;  // unlabeled

// The texts of a record and its label, joined.
std::string read_record(const std::string& json, const std::string& map_keys = "") {
  const Handler& handler = handler_named("TextLabelHandler");
  const Conversation found = read_conversation(handler, fields_of(handler, map_keys),
                                               read_json<nlohmann::ordered_json>(json));
  std::string all;
  for (const Message& message : found.messages) all += message.content + "|";
  return all + found.label.value_or("");
}

TEST(LabeledTexts, ReadsTheKeysOfKnownDataSets) {
  EXPECT_EQ(read_record(R"({"text": "a", "label": 1})"), "a|1");
  EXPECT_EQ(read_record(R"({"label": "glad", "text": "a", "text_pair": "b"})"), "a|b|glad");
  EXPECT_EQ(read_record(R"({"sentence": "a", "label": true, "idx": 3})"), "a|1");
  EXPECT_EQ(read_record(R"({"sentence1": "a", "sentence2": "b", "label": 0})"), "a|b|0");
  EXPECT_EQ(read_record(R"({"premise": "a", "hypothesis": "b", "label": 2.0})"), "a|b|2");
  EXPECT_EQ(read_record(R"({"question": "a", "sentence": "b", "label": 0})"), "a|b|0");
  EXPECT_EQ(read_record(R"({"sentence1": "a", "sentence2": "b", "score": 3.25})"), "a|b|3.25");
  EXPECT_EQ(read_record(R"({"question1": "a", "question2": "b", "label": 0})"), "a|b|0");
  EXPECT_EQ(
      read_record(R"({"review": "a", "stars": 4})", R"({"text": "review", "label": "stars"})"),
      "a|4");
  const auto refusal = [](const std::string& json) {
    return message_of(Fault::kData, [&] { read_record(json); });
  };
  EXPECT_THAT(refusal(R"({"title": "a", "label": 1})"),
              HasSubstr("no text: the record has title, label; wanted text, sentence, or both"));
  EXPECT_THAT(refusal(R"({"text": "a"})"), HasSubstr("no label: wanted \"label\""));
  EXPECT_THAT(refusal(R"({"text": "a", "label": [[1]]})"), HasSubstr("\"label\" is [1], wanted"));
}

TEST(LabeledTexts, KnowsLabelsByNameOrNumber) {
  const KnownLabels named{{"sad", "glad", "7"}, 3};
  EXPECT_EQ(named.number_of("glad"), 1);
  EXPECT_EQ(named.number_of("0"), 0);
  EXPECT_EQ(named.number_of("7"), 2);  // a name before a number
  EXPECT_EQ(KnownLabels{}.number_of("41"), 41);
  const auto refusal = [](const KnownLabels& known, const char* label) {
    return message_of(Fault::kData, [&] { known.number_of(label); });
  };
  EXPECT_EQ(refusal(named, "3"), "the label is \"3\", wanted one of sad, glad, 7");
  EXPECT_EQ(refusal({{}, 2}, "2"), "the label is \"2\", wanted a number from 0 to 1");
  EXPECT_EQ(refusal({{}, 2}, "-1"), "the label is \"-1\", wanted a number from 0 to 1");
  EXPECT_THAT(refusal({{}, 2}, "glad"), HasSubstr("--label-names gives names"));
  EXPECT_THAT(refusal({}, "glad"), HasSubstr("name the labels, in their order, by --label-names"));
}

TEST(LabeledTexts, KnowsNumbersOfRegression) {
  const KnownLabels numbers{{}, 1};
  EXPECT_EQ(KnownLabels::value_of("-2.5"), -2.5F);
  EXPECT_EQ(KnownLabels::value_of("1e-42"), 0.0F);
  EXPECT_THAT(numbers.stored({.label = "-2.5"}), ElementsAre(std::bit_cast<std::int32_t>(-2.5F)));
  EXPECT_THAT((KnownLabels{{}, 3}).stored({.label = "2"}), ElementsAre(2));
  for (const char* wrong : {"", "glad", "1.5x", "1e60", "nan"}) {
    EXPECT_THAT(message_of(Fault::kData, [&] { numbers.stored({.label = wrong}); }),
                HasSubstr("wanted a number"));
  }
}

TEST(LabeledTexts, KnowsListsOfLabels) {
  const auto lists = [](const std::string& record) {
    const Handler& handler = handler_named("TextLabelHandler");
    return read_conversation(handler, fields_of(handler, ""),
                             read_json<nlohmann::ordered_json>(record));
  };
  const KnownLabels several{{"sad", "so so", "glad"}, 3, true};
  const auto stored = [&](const std::string& record) { return several.stored(lists(record)); };
  EXPECT_THAT(stored(R"({"text": "a", "label": ["glad", "sad"]})"), ElementsAre(0, 2));
  EXPECT_THAT(stored(R"({"text": "a", "labels": [1]})"), ElementsAre(1));
  EXPECT_THAT(stored(R"({"text": "a", "labels": []})"), ElementsAre());
  EXPECT_THAT(stored(R"({"text": "a", "label": "glad"})"), ElementsAre(2));
  EXPECT_THAT((KnownLabels{{}, 1, true}).stored(lists(R"({"text": "a", "label": [0]})")),
              ElementsAre(0));
  const auto refused = [&](const KnownLabels& known, const std::string& record) {
    return message_of(Fault::kData, [&] { known.stored(lists(record)); });
  };
  EXPECT_THAT(refused(several, R"({"text": "a", "labels": [0.0, 1.0, 0.0]})"),
              HasSubstr("the labels have \"0\" twice; wanted a list of the labels that the text "
                        "has, each once"));
  EXPECT_THAT(refused(several, R"({"text": "a", "labels": ["glad", "mad"]})"),
              HasSubstr("the label is \"mad\", wanted one of sad, so so, glad"));
  EXPECT_THAT(refused({{}, 3}, R"({"text": "a", "labels": [1]})"),
              HasSubstr("the label is a list, wanted one label; a text has several labels with "
                        "--problem-type multi_label_classification"));
  EXPECT_THAT(refused({{}, 1}, R"({"text": "a", "labels": [1]})"), HasSubstr("wanted a number"));
  // Numbers that are names are no places.
  EXPECT_THAT(refused({{"1", "2", "3"}, 3}, R"({"text": "a", "label": 0})"),
              HasSubstr("the label is \"0\", wanted one of 1, 2, 3"));
}

// As the tokenizers of Transformers 5.24 cut with truncation=True.
TEST(LabeledTexts, CutsTheLongerTextFirst) {
  struct Case {
    std::int64_t first, second, most, kept_first, kept_second;
  };
  for (const Case& one :
       {Case{5, 3, 9, 3, 3}, Case{3, 5, 9, 3, 3}, Case{5, 5, 9, 3, 3}, Case{6, 2, 9, 4, 2},
        Case{2, 9, 9, 2, 4}, Case{4, 4, 7, 2, 2}, Case{7, 2, 8, 3, 2}, Case{3, 7, 12, 3, 6}}) {
    TaughtText text{{1}, {kPartSpecial}};
    const auto add = [&](std::int64_t count, std::int32_t from, std::int32_t part) {
      for (std::int64_t i = 0; i < count; ++i) {
        text.ids.push_back(from + static_cast<std::int32_t>(i));
        text.labels.push_back(part + kPartText);
      }
      text.ids.push_back(2);
      text.labels.push_back(part + kPartSpecial);
    };
    add(one.first, 10, 0);
    add(one.second, 50, kPartOfPair);
    EXPECT_TRUE(cut_labeled(text, one.most));
    Ids wanted{1};
    for (std::int32_t i = 0; i < one.kept_first; ++i) wanted.push_back(10 + i);
    wanted.push_back(2);
    for (std::int32_t i = 0; i < one.kept_second; ++i) wanted.push_back(50 + i);
    wanted.push_back(2);
    EXPECT_EQ(text.ids, wanted) << one.first << " and " << one.second;
    EXPECT_EQ(text.labels.size(), text.ids.size());
  }
  TaughtText special{{1, 2, 3}, {kPartSpecial, kPartSpecial, kPartText}};
  EXPECT_FALSE(cut_labeled(special, 1));
}

TEST(LabeledTexts, PutsSpecialTokensAroundPairs) {
  TempFolder folder;
  TokenizerOptions options;
  options.type = "BertWordPieceLowerCase";
  options.vocab_file = (folder.path() / "vocab.txt").string();
  write_text_file(options.vocab_file, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n");
  const auto tokenizer = open_tokenizer(options);
  const LabelPrompt prompt(*tokenizer);
  Conversation talk{.messages = {{MessageRole::kUser, "a b"}, {MessageRole::kUser, "c"}}};
  const TaughtText pair = prompt.encode(talk).front();
  EXPECT_THAT(pair.ids, ElementsAre(2, 5, 6, 3, 7, 3));
  EXPECT_THAT(pair.labels, ElementsAre(0, 1, 1, 0, 3, 2));
  talk.messages.pop_back();
  EXPECT_THAT(prompt.encode(talk).front().ids, ElementsAre(2, 5, 6, 3));
  options = {};
  options.type = "ByteTokenizer";
  const auto bytes = open_tokenizer(options);
  talk.messages = {{MessageRole::kUser, ""}};
  EXPECT_EQ(message_of(Fault::kData, [&] { LabelPrompt(*bytes).encode(talk); }),
            "the text is empty");
}

class LabelFolder {
 public:
  LabelFolder() {
    write("input_ids", {{2, 5, 6, 3, 7, 3}, {2, 5, 5, 5, 5, 5, 5, 3}});
    write("parts", {{0, 1, 1, 0, 3, 2}, {0, 1, 1, 1, 1, 1, 1, 0}});
    write("label", {{1}, {0}});
  }
  void write(const std::string& column, const std::vector<Ids>& rows) {
    IndexedWriter writer(prefix() + "_packed_" + column + "_document", IdType::kInt32);
    for (const Ids& row : rows) {
      writer.add_sequence(row);
      writer.end_document();
    }
    writer.finish();
  }
  std::shared_ptr<const SampleSource> open(LabelRules rules) {
    rules.sequence = 7;
    DataOptions options;
    options.is_instruction_dataset = options.no_shuffle = true;
    options.data_path = {prefix()};
    options.split = "1,0,0";
    return open_data_sets(options,
                          {.sequence = 7,
                           .counts = {.train = 2},
                           .documents = {.pad = 9},
                           .of_records = labeled_samples(rules, log_)},
                          log_)
        .train;
  }
  std::string prefix() const { return (folder_ / "texts").string(); }

 private:
  TempFolder folder_;
  SilentLog log_;
};

TEST(LabeledDataset, HasOneLabelInARow) {
  LabelFolder folder;
  const auto decoder = folder.open({.labels = 2});
  ASSERT_EQ(decoder->size(), 2);
  Sample sample;
  decoder->sample(0, sample);
  EXPECT_THAT(sample.tokens, ElementsAre(2, 5, 6, 3, 7, 3, 9));
  EXPECT_THAT(sample.labels, ElementsAre(U, U, U, U, U, 1, U));
  EXPECT_THAT(sample.segments, ElementsAre(0, 0, 0, 0, 0, 0, kPaddingSegment));
  EXPECT_TRUE(sample.types.empty());
  EXPECT_EQ(decoder->longest(0), 6);
  decoder->sample(1, sample);  // is cut
  EXPECT_THAT(sample.tokens, ElementsAre(2, 5, 5, 5, 5, 5, 3));
  EXPECT_THAT(sample.labels, ElementsAre(U, U, U, U, U, U, 0));
  const auto encoder = folder.open({.labels = 2, .at_first_token = true, .token_types = 2});
  encoder->sample(0, sample);
  EXPECT_THAT(sample.labels, ElementsAre(1, U, U, U, U, U, U));
  EXPECT_THAT(sample.types, ElementsAre(0, 0, 0, 0, 1, 1, 0));
}

TEST(LabeledDataset, HasANumberOfATextForRegression) {
  LabelFolder folder;
  folder.write("label", {{std::bit_cast<std::int32_t>(-2.5F)}, {0}});
  const auto samples = folder.open({.labels = 1, .regression = true});
  Sample sample;
  samples->sample(0, sample);
  EXPECT_EQ(sample.target, -2.5F);
  EXPECT_THAT(sample.labels, ElementsAre(U, U, U, U, U, kNumberLabel, U));
  folder.write("label", {{1}, {0}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 1, .regression = true}); }),
              HasSubstr("sample 0 has 1, which is a label, wanted the bits of a number"));
}

TEST(LabeledDataset, HasASetOfLabelsOfAText) {
  LabelFolder folder;
  folder.write("label", {{0, 2}, {}});
  const auto samples = folder.open({.labels = 3, .several = true});
  BatchSource batches(samples, {.vocabulary = 10});
  const MicroBatch batch = batches.micro_batch(std::vector<std::int64_t>{0, 1});
  EXPECT_THAT(batch.label_sets, ElementsAre(1, 0, 1, 0, 0, 0));
  EXPECT_THAT(batch.labels, ElementsAre(U, U, U, U, U, 0, U, U, U, U, U, U, U, 1));
  EXPECT_EQ(batch.loss_tokens(), 2);
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 2, .several = true}); }),
              HasSubstr("sample 0 has label 2, and the model has labels 0 to 1"));
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 3}); }),
              HasSubstr("sample 0 has 2 labels, wanted one; several of a text are learned with"));
  folder.write("label", {{1, 1}, {}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 3, .several = true}); }),
              HasSubstr("sample 0 has label 1 twice"));
}

TEST(LabeledDataset, RefusesLabelsThatTheModelHasNot) {
  LabelFolder folder;
  folder.write("label", {{1}, {4}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 3}); }),
              HasSubstr("_packed_label_document: sample 1 has label 4, and the model has labels 0 "
                        "to 2"));
  folder.write("label", {{1}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open({.labels = 3}); }),
              HasSubstr("the files of texts with labels belong together"));
  folder.write("parts", {{0, 1}, {0}});
  folder.write("label", {{1}, {0}});
  const auto samples = folder.open({.labels = 2});
  Sample sample;
  EXPECT_THAT(message_of(Fault::kData, [&] { samples->sample(0, sample); }),
              HasSubstr("sample 0 has 2 values"));
}

}  // namespace
}  // namespace piton
