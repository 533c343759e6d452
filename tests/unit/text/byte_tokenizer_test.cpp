#include "text/files/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "text/files/tokenizer_folder.h"
#include "text/files/tokenizer_json.h"
#include "text/files/tokenizer_options.h"
#include "text/files/vocabulary_files.h"

namespace piton {
namespace {

TEST(ByteTokenizer, MapsEveryByteToItself) {
  const ByteTokenizer tokenizer;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), 256U);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[byte], byte);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.vocabulary_size(), 257);
  EXPECT_EQ(tokenizer.special().eod, 256);
}

TEST(ByteTokenizer, ParsesTheEndOfADocumentOnlyWhenAsked) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b").size(), 15U);
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b", {.parse_special_tokens = true}),
            (std::vector<std::int32_t>{'a', 256, 'b'}));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 256, 300, -1}), "a<|endoftext|>");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 256}, {.skip_special_tokens = true}),
            "a");
}

TEST(ByteTokenizer, PiecesAndIdsAreInverse) {
  const ByteTokenizer tokenizer;
  for (std::int32_t id = 0; id < 257; ++id) EXPECT_EQ(tokenizer.id_of(tokenizer.piece(id)), id);
  EXPECT_EQ(tokenizer.id_of("<0x4>"), std::nullopt);
  EXPECT_EQ(tokenizer.id_of("<0x4g>"), std::nullopt);
  EXPECT_EQ(tokenizer.id_of("<0x4a>"), std::nullopt);  // spelled <0x4A>
  EXPECT_EQ(tokenizer.piece(257), "");
}

TEST(ByteTokenizer, IsTheSameOutOfItsFiles) {
  const ByteTokenizer tokenizer;
  const PipelineTokenizer read(
      read_tokenizer_json(byte_tokenizer_files().tokenizer_json, "tokenizer.json"));
  EXPECT_EQ(read.vocabulary_size(), tokenizer.vocabulary_size());
  std::string text = " a  b\n\n<|endoftext|>c<|endoftext|> don't";
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  for (const bool special : {false, true}) {
    const EncodeOptions options{.parse_special_tokens = special};
    const std::vector<std::int32_t> ids = tokenizer.encode(text, options);
    EXPECT_EQ(read.encode(text, options), ids);
    EXPECT_EQ(read.decode(ids), tokenizer.decode(ids));
  }
}

// A run and the folder that it was converted to have one tokenizer.
TEST(ByteTokenizer, IsKnownAgainByItsFiles) {
  const ByteTokenizerFiles files = byte_tokenizer_files();
  const auto hash_with = [&](const std::string& config) {
    return open_tokenizer_texts(
               {{"tokenizer.json", files.tokenizer_json}, {"tokenizer_config.json", config}},
               "test")
        ->content_hash();
  };
  EXPECT_EQ(hash_with(files.tokenizer_config_json), ByteTokenizer().content_hash());
  EXPECT_NE(hash_with(R"({"eos_token":"<|endoftext|>","pad_token":"<|endoftext|>"})"),
            ByteTokenizer().content_hash());
}

TEST(StreamDecoder, NeverEndsInsideACharacter) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  const std::string text = "a\xE4\xB8\xAD\xF0\x9F\xA6\x99!\xE4\xB8";
  std::vector<std::string> parts;
  for (const char byte : text) parts.push_back(decoder.push(static_cast<unsigned char>(byte)));
  EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "\xE4\xB8\xAD", "", "", "",
                                             "\xF0\x9F\xA6\x99", "!", "", ""}));
  EXPECT_EQ(decoder.finish(), "\xE4\xB8");
}

// Words are remembered in memory that calls lend each other.
TEST(Tokenizer, GivesManyThreadsTheSameIds) {
  const PipelineTokenizer tokenizer(read_tokenizer_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"abab":3," ":4,"aa":5},)"
      R"("merges":["a b","ab ab","a a"]},"pre_tokenizer":{"type":"WhitespaceSplit"}})",
      "test"));
  std::vector<std::string> texts;
  std::uint32_t state = 1;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (int length = 0; length < i; ++length) {
      state = state * 1664525 + 1013904223;
      text.push_back("ab ba"[(state >> 24) % 5]);
    }
    texts.push_back(text);
  }
  std::vector<std::vector<std::int32_t>> wanted;
  for (const std::string& text : texts) wanted.push_back(tokenizer.encode(text));
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = 0; i < 2 * texts.size(); ++i) {
          const std::size_t at = (i + 71 * thread) % texts.size();
          if (tokenizer.encode(texts[at]) != wanted[at]) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(wanted, testing::Contains(testing::Contains(3)));
}

TEST(StreamDecoder, LosesNothingToDecodersThatStripTheStart) {
  const PipelineTokenizer tokenizer(read_tokenizer_json(
      R"({"model":{"type":"BPE","vocab":{"_":0,"a":1,"_a":2},"merges":[]},"decoder":)"
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},)"
      R"({"type":"Fuse"},{"type":"Strip","content":" ","start":2,"stop":0}]}})",
      "test"));
  const std::vector<std::int32_t> ids = {0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 2, 1};
  StreamDecoder stream(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "   a    a aa");
  EXPECT_EQ(tokenizer.decode(ids), "   a    a aa");
}

TEST(StreamDecoder, DoesNotWaitForBytesThatCannotBecomeACharacter) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xFF), "\xFF");
  EXPECT_EQ(decoder.push(0xED), "");
  EXPECT_EQ(decoder.push(0xA0), "\xED\xA0");  // the start of a surrogate
}

TEST(PaddedVocabulary, IsTheNextMultipleForEachTensorRank) {
  TokenizerOptions options;
  EXPECT_EQ(padded_vocabulary_size(50257, options), 50304);
  EXPECT_EQ(padded_vocabulary_size(32000, options), 32000);
  EXPECT_EQ(padded_vocabulary_size(32000, options, 8), 32768);
  options.pad_vocab_size_to = 151936;
  EXPECT_EQ(padded_vocabulary_size(151646, options, 2), 151936);
  EXPECT_THROW(padded_vocabulary_size(151937, options), Error);
  EXPECT_THROW(padded_vocabulary_size(151646, options, 5), Error);
}

TEST(StreamDecoder, StripsNothingWhereTheFileNamesNoCount) {
  const auto decoded = [](const std::string& counts) {
    const PipelineTokenizer tokenizer(read_tokenizer_json(
        R"({"model":{"type":"BPE","vocab":{"_":0,"a":1},"merges":[]},"decoder":)"
        R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"_")" +
            counts + "}]}}",
        "test"));
    return tokenizer.decode(std::vector<std::int32_t>{0, 0, 1, 0, 0});
  };
  EXPECT_EQ(decoded(""), "__a__");
  EXPECT_EQ(decoded(R"(,"start":1)"), "_a__");
  EXPECT_EQ(decoded(R"(,"stop":2)"), "__a");
}

// Of one byte or two.
std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned first = static_cast<unsigned char>(bytes[0]);
  const unsigned second = bytes.size() > 1 ? static_cast<unsigned char>(bytes[1]) : 0;
  std::string text{kDigits[first >> 2], kDigits[(first & 3) << 4 | second >> 4]};
  text += bytes.size() > 1 ? kDigits[(second & 15) << 2] : '=';
  return text + '=';
}

TEST(Tiktoken, GivesEveryByteAnId) {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte)
    ranks += fmt::format("{} {}\n", base64_of(std::string(1, static_cast<char>(byte))), byte);
  ranks += base64_of("he") + " 256\n";
  const PipelineTokenizer tokenizer(
      read_tiktoken(ranks, {Scanner::Kind::kCl100k, 3}, "x.tiktoken"));
  const std::vector<std::int32_t> ids = tokenizer.encode("he \xC3\xA9\n");
  EXPECT_EQ(ids, (std::vector<std::int32_t>{256, ' ', 0xC3, 0xA9, '\n'}));
  EXPECT_EQ(tokenizer.decode(ids), "he \xC3\xA9\n");
}

}  // namespace
}  // namespace piton
