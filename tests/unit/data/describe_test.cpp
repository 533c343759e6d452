#include "data/samples/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"
#include "unit/data/small_corpora.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::int32_t kEnd = ByteTokenizer::kEndOfDocument;

// Sequences of 3, 2, 0 and 100 ids in four documents, of which one has no sequence.
std::string small_corpus(const TempFolder& folder) {
  const std::string prefix = folder / "small";
  write_corpus(prefix, IdType::kUint16,
               {{{'a', 'b', kEnd}, {'c', '\n'}}, {}, {{}}, {std::vector<std::int32_t>(100, 'z')}});
  return prefix;
}

TEST(DescribeCorpus, CountsWhatWasWritten) {
  const TempFolder folder;
  const CorpusDescription about = describe_corpus(small_corpus(folder), nullptr, 2, true);
  EXPECT_EQ(about.id_type, "uint16");
  EXPECT_EQ(about.documents, 4);
  EXPECT_EQ(about.empty_documents, 1);
  EXPECT_EQ(about.sequences, 4);
  EXPECT_EQ(about.tokens, 105);
  EXPECT_EQ(about.shortest, 0);
  EXPECT_EQ(about.longest, 100);
  EXPECT_DOUBLE_EQ(about.mean, 26.25);
  EXPECT_EQ(about.largest_id, 256);
  EXPECT_THAT(about.histogram, ElementsAre(1, 0, 2, 0, 0, 0, 0, 1));  // 0; 2..3; 64..127
  EXPECT_EQ(about.bytes, 105 * 2 + 34 + 4 * 12 + 5 * 8);
  ASSERT_EQ(about.first_ids.size(), 2U);
  EXPECT_THAT(about.first_ids[0], ElementsAre('a', 'b', kEnd));
  EXPECT_TRUE(about.first_texts.empty());
}

TEST(DescribeCorpus, CountsTheFirstSequence) {
  const TempFolder folder;
  write_corpus(folder / "one", IdType::kUint16, {{{4, 5, 6}}});
  EXPECT_EQ(describe_corpus(folder / "one", nullptr, 1, true).shortest, 3);
  write_corpus(folder / "two", IdType::kUint16, {{{4, 5}, {4, 5, 6}}});
  EXPECT_EQ(describe_corpus(folder / "two", nullptr, 1, true).shortest, 2);
}

TEST(DescribeCorpus, DecodesTheFirstSixtyFourIdsOfTheFirstSequences) {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  const CorpusDescription about = describe_corpus(small_corpus(folder), &tokenizer, 9, false);
  EXPECT_EQ(about.largest_id, -1);
  EXPECT_THAT(about.first_texts, ElementsAre("ab<|endoftext|>", "c\n", "", std::string(64, 'z')));
}

TEST(DescribeCorpus, OneThatWasCutOffIsRefused) {
  const TempFolder folder;
  const std::string prefix = small_corpus(folder);
  std::filesystem::resize_file(prefix + ".bin", 100);
  EXPECT_THROW(describe_corpus(prefix, nullptr, 1, false), Error);
  EXPECT_TRUE(is_corpus(prefix));
  EXPECT_FALSE(is_corpus(prefix + "x"));
}

TEST(DescribeCorpus, WordsAndJsonSayTheSame) {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  const CorpusDescription about = describe_corpus(small_corpus(folder), &tokenizer, 2, true);
  const std::string text = to_text(about);
  EXPECT_THAT(text, HasSubstr("4 documents (1 empty), 4 sequences, 105 tokens as uint16"));
  EXPECT_THAT(text, HasSubstr("largest id 256\ntokens a sequence: 0 to 100, mean 26.2"));
  EXPECT_THAT(
      text,
      HasSubstr("        2 .. 3                   2 ########################################\n"));
  EXPECT_THAT(text, HasSubstr("sequence 1: c\\n\n"));
  const Json json = Json::parse(to_json(about));
  EXPECT_EQ(json["tokens"], 105);
  EXPECT_EQ(json["largest_id"], 256);
  EXPECT_EQ(json["first_texts"][1], "c\n");
}

TEST(DescribeCorpus, AnEmptyOneHasNoLengths) {
  const TempFolder folder;
  write_corpus(folder / "none", IdType::kInt32, {});
  const CorpusDescription about = describe_corpus(folder / "none", nullptr, 3, true);
  EXPECT_EQ(about.tokens, 0);
  EXPECT_EQ(about.mean, 0);
  EXPECT_EQ(about.largest_id, -1);
  EXPECT_THAT(to_text(about), HasSubstr("0 documents"));
}

TEST(DescribeCorpus, PartsOfCharactersStayJson) {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  write_corpus(folder / "part", IdType::kUint16, {{{0xe2, 0x82}}});
  const std::string json = to_json(describe_corpus(folder / "part", &tokenizer, 1, false));
  EXPECT_EQ(Json::parse(json)["first_texts"][0], "\xef\xbf\xbd");
}

// Two rows of four: "ab", an end, "c" | "d", an end that does not count, "e", "f".
MicroBatch two_rows() {
  MicroBatch batch;
  batch.samples = 2;
  batch.sequence = 4;
  batch.tokens = {'a', 'b', kEnd, 'c', 'd', kEnd, 'e', 'f'};
  batch.labels = {'b', kEnd, 'c', 'd', kEnd, -100, 'f', 'g'};
  batch.loss_mask = {1, 1, 1, 1, 1, 0, 1, 1};
  batch.positions = {0, 1, 2, 3, 0, 1, 0, 1};
  return batch;
}

TEST(Samples, JsonHasOneObjectALine) {
  const ByteTokenizer tokenizer;
  MicroBatch batch = two_rows();
  const std::string plain = samples_to_json(batch, 7, nullptr);
  const std::size_t cut = plain.find('\n');
  ASSERT_NE(cut, std::string::npos);
  const Json first = Json::parse(plain.substr(0, cut));
  EXPECT_EQ(first["index"], 7);
  EXPECT_EQ(first["ids"], Json({'a', 'b', kEnd, 'c'}));
  EXPECT_FALSE(first.contains("text"));
  EXPECT_FALSE(first.contains("segments"));
  batch.segments = {0, 0, 0, 1, 0, 0, 1, 1};
  const std::string lines = samples_to_json(batch, 7, &tokenizer);
  const Json second = Json::parse(lines.substr(lines.find('\n') + 1));
  EXPECT_EQ(second["index"], 8);
  EXPECT_EQ(second["labels"], Json({kEnd, -100, 'f', 'g'}));
  EXPECT_EQ(second["loss_mask"], Json({1, 0, 1, 1}));
  EXPECT_EQ(second["positions"], Json({0, 1, 0, 1}));
  EXPECT_EQ(second["segments"], Json({0, 0, 1, 1}));
  EXPECT_EQ(second["text"], "d<|endoftext|>ef");
}

TEST(Samples, TextMarksWhatIsNotLearned) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(samples_to_text(two_rows(), 7, &tokenizer, false),
            "--- sample 7: 4 tokens, 4 in the loss\n[-a-]b<|endoftext|>\ncd\n"
            "--- sample 8: 4 tokens, 3 in the loss\n[-d-]<|endoftext|>\n[-e-]fg\n");
  EXPECT_THAT(samples_to_text(two_rows(), 7, &tokenizer, true),
              HasSubstr("<|endoftext|>\n\x1b[2me\x1b[0mfg"));
}

TEST(Samples, WithoutATokenizerTheIdsAreShown) {
  EXPECT_EQ(samples_to_text(two_rows(), 0, nullptr, false),
            "--- sample 0: 4 tokens, 4 in the loss\n[-97-] 98 256 99 100\n"
            "--- sample 1: 4 tokens, 3 in the loss\n[-100-] 256 [-101-] 102 103\n");
}

TEST(Samples, ACharacterOfSeveralTokensStaysWhole) {
  const ByteTokenizer tokenizer;
  MicroBatch batch = two_rows();
  batch.samples = 1;
  batch.tokens = {0xe2, 0x82, 0xac, '!'};
  batch.labels = {0xe2, 0x82, 0xac, '!'};
  EXPECT_THAT(samples_to_text(batch, 0, &tokenizer, false), HasSubstr("]\xe2\x82\xac!\n"));
}

TEST(Samples, PackedTextsHaveTheirBoundsAndPaddingIsCounted) {
  const ByteTokenizer tokenizer;
  MicroBatch batch;
  batch.samples = 1;
  batch.sequence = 8;
  batch.tokens = {'a', '?', 'b', 'c', '?', 'd', 0, 0};
  batch.labels = {-100, 'b', kEnd, -100, 'd', kEnd, -100, -100};
  batch.loss_mask = {0, 1, 1, 0, 1, 1, 0, 0};
  batch.positions = {0, 1, 2, 0, 1, 2, 0, 1};
  batch.segments = {0, 0, 0, 1, 1, 1, -1, -1};
  EXPECT_EQ(samples_to_text(batch, 5, &tokenizer, false),
            "--- sample 5: 8 tokens, 4 in the loss, 2 texts, 2 of padding\n"
            "--- tokens 0 to 2\n[-a?-]b<|endoftext|>\n"
            "--- tokens 3 to 5\n[-c?-]d<|endoftext|>\n");
}

}  // namespace
}  // namespace piton
