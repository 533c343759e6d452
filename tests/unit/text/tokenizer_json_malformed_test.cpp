// Malformed files: one clear error each, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/files/tokenizer_json.h"
#include "text/files/vocabulary_files.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace piton {
namespace {

using testing::HasSubstr;

template <typename F>
std::string data_error(F read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kData);
    return error.what();
  }
  return "no error";
}

std::string json_error(std::string_view text) {
  return data_error([&] { PipelineTokenizer(read_tokenizer_json(text, "tokenizer.json")); });
}

TEST(TokenizerJson, SaysWhatIsWrong) {
  EXPECT_THAT(json_error("{"), HasSubstr("tokenizer.json: not JSON: parse error at line 1"));
  // 2^63 is no number of 64 bits with a sign.
  EXPECT_THAT(json_error(R"({"model":{"type":"WordPiece","vocab":{"[UNK]":0},)"
                         R"("max_input_chars_per_word":9223372036854775808}})"),
              HasSubstr("wanted a smaller number"));
  EXPECT_THAT(json_error(R"({"model":{"type":"WordPiece","vocab":{"[UNK]":0},)"
                         R"("max_input_chars_per_word":"100"}})"),
              HasSubstr("\"max_input_chars_per_word\": got string, wanted an integer"));
  EXPECT_THAT(json_error("[]"), HasSubstr("got array, wanted an object"));
  EXPECT_THAT(json_error("{}"), HasSubstr("\"model\": got nothing, wanted an object"));
  EXPECT_THAT(json_error(R"({"model":{"type":"Magic"}})"),
              HasSubstr("type \"Magic\" is not known"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})"),
              HasSubstr("the id of \"a\" is out of range: got -1"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}})"),
              HasSubstr("wanted an integer"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
              HasSubstr("\"b\" is not in the vocabulary"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a  a"]}})"),
              HasSubstr("wanted two pieces with one space between"));
  EXPECT_THAT(json_error(R"({"model":{"type":"Unigram","unk_id":5,"vocab":[["a",-1]]}})"),
              HasSubstr("unk_id is out of range"));
  EXPECT_THAT(json_error(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})"),
              HasSubstr("the unknown token \"[UNK]\" is not in the vocabulary"));
  EXPECT_THAT(
      json_error(
          R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":{"type":"Odd"}})"),
      HasSubstr("normalizer: type \"Odd\" is not known"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{},"merges":[]},)"
                         R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},)"
                         R"("behavior":"Isolated"}})"),
              HasSubstr("does not compile"));
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{},"merges":[]},)"
                         R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[b]]"},)"
                         R"("behavior":"Isolated"}})"),
              HasSubstr("a class inside a class"));
  EXPECT_THAT(
      json_error(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)"
                 R"("post_processor":{"type":"BertProcessing","cls":["a",0],"sep":["b",1]}})"),
      HasSubstr("post_processor: it puts id 1 around a text, which neither"));
}

// The words of Bloom are known with the text between them alone; its expression is read by nothing
// else.
TEST(TokenizerJson, RefusesTheWordsOfBloomWithoutTheTextBetweenThem) {
  const auto split = [](const std::string& how) {
    return json_error(R"({"model":{"type":"BPE","vocab":{"a":0,".":1,"b":2},"merges":[]},)"
                      R"("pre_tokenizer":{"type":"Split",)" +
                      how + R"(,"pattern":{"Regex":" ?[^(\\s|[.,!?…。，、।۔،])]+"}}})");
  };
  EXPECT_EQ(split(R"("behavior":"Isolated")"), "no error");
  EXPECT_THAT(split(R"("behavior":"Removed","invert":true)"), HasSubstr("a class inside a class"));
}

TEST(TokenizerJson, RefusesDeepNests) {
  std::string deep = R"({"model":{"type":"BPE","vocab":{},"merges":[]},"normalizer":)";
  for (int i = 0; i < 5000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 5000; ++i) deep += "]}";
  EXPECT_THAT(json_error(deep + "}"), HasSubstr("nested too deeply"));
}

TEST(TokenizerJson, TakesSixteenSequencesInOneAnother) {
  const auto nested = [](const std::string& place, const std::string& steps, int depth) {
    std::string text = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},")" + place + "\":";
    for (int i = 0; i < depth; ++i) text += R"({"type":"Sequence",")" + steps + "\":[";
    text += place == "normalizer" ? R"({"type":"NFC"})" : R"({"type":"Whitespace"})";
    for (int i = 0; i < depth; ++i) text += "]}";
    return json_error(text + "}");
  };
  for (const auto& [place, steps] :
       {std::pair{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}}) {
    EXPECT_EQ(nested(place, steps, 16), "no error");
    EXPECT_THAT(nested(place, steps, 17), HasSubstr("sequences are nested deeper than 16"));
  }
}

TEST(TokenizerJson, RefusesStepsThatMakeATextGrowWithoutBound) {
  const auto with = [](const char* place, const char* inner, const std::string& step, int count) {
    std::string steps;
    for (int i = 0; i < count; ++i) steps += (i > 0 ? "," : "") + step;
    return fmt::format(R"({{"model":{{"type":"BPE","vocab":{{"a":0}},"merges":[]}},)"
                       R"("{}":{{"type":"Sequence","{}":[{}]}}}})",
                       place, inner, steps);
  };
  const std::string doubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  const std::string growing = R"({"type":"Replace","pattern":{"Regex":"x*"},"content":"xxx"})";
  EXPECT_THAT(json_error(with("normalizer", "normalizers", doubling, 40)),
              HasSubstr("normalizer: its steps can make a text 1.1e+12 times as long"));
  EXPECT_THAT(json_error(with("normalizer", "normalizers", growing, 40)), HasSubstr("as long"));
  EXPECT_THAT(json_error(with("normalizer", "normalizers", R"({"type":"ByteLevel"})", 40)),
              HasSubstr("as long"));
  EXPECT_THAT(json_error(with("decoder", "decoders", doubling, 40)), HasSubstr("decoder: its"));
  // What real files have: a space becomes three bytes, quotes become shorter.
  const std::string space = R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";
  const std::string quotes = R"({"type":"Replace","pattern":{"String":"``"},"content":"\""})";
  PipelineTokenizer(read_tokenizer_json(with("normalizer", "normalizers", space, 1), "t"));
  PipelineTokenizer(read_tokenizer_json(with("normalizer", "normalizers", quotes, 100), "t"));
}

TEST(SentencePieceModel, SaysWhatIsWrong) {
  const auto error = [](std::string_view bytes) {
    return data_error([&] { read_sentencepiece_model(bytes, "tokenizer.model"); });
  };
  EXPECT_THAT(error(""), HasSubstr("0 pieces"));
  EXPECT_THAT(error("version https://git-lfs"),
              HasSubstr("tokenizer.model: not a SentencePiece model"));
  EXPECT_THAT(error(std::string("\x0A\x7F", 2)), HasSubstr("a field longer than the file"));
  EXPECT_THAT(error(std::string("\x0A\x03\x0A\x01\x61", 5)), HasSubstr("got 0 unknown pieces"));
  const std::string unknown("\x0A\x05\x0A\x01\x75\x18\x02", 7);
  EXPECT_EQ(error(unknown), "no error");
  EXPECT_THAT(error(unknown + unknown), HasSubstr("there twice"));
}

TEST(Tiktoken, SaysTheLineThatIsWrong) {
  const auto error = [](std::string_view text) {
    return data_error([&] { read_tiktoken(text, {Scanner::Kind::kCl100k, 3}, "x.tiktoken"); });
  };
  EXPECT_THAT(error("IQ== 0\nnot base64 1\n"), HasSubstr("x.tiktoken:2"));
  EXPECT_THAT(error("IQ== 0\n"), HasSubstr("byte 0x00 has no token"));
}

// A short file must not ask for gigabytes, nor for hours of looking for the parts of a piece.
TEST(Vocabularies, HaveBounds) {
  const std::string huge(2000, 'a');
  EXPECT_THAT(json_error(R"({"model":{"type":"BPE","vocab":{"a":16000000},"merges":[]}})"),
              HasSubstr("the id of \"a\" is out of range: got 16000000, wanted 0 .. 1048576"));
  EXPECT_THAT(json_error(R"({"model":{"type":"WordLevel","vocab":{"a":0}},)"
                         R"("added_tokens":[{"id":9999999,"content":"b"}]})"),
              HasSubstr("added_tokens: the id of \"b\" is out of range"));
  EXPECT_THAT(json_error(R"({"model":{"type":"WordLevel","vocab":{"a":0}},)"
                         R"("added_tokens":[{"id":1,"content":")" +
                         huge + "\"}]}"),
              HasSubstr("the token of id 1 has 2000 bytes, wanted at most 1024"));
  EXPECT_THAT(
      data_error([] { read_byte_bpe(R"({"a":16000000})", "", {}, "vocab.json", "merges.txt"); }),
      HasSubstr("wanted an integer 0 .. 1048576"));
  std::string base64;
  for (int i = 0; i < 500; ++i) base64 += "YWFh";
  EXPECT_THAT(data_error([&] {
                read_tiktoken(base64 + " 1\n", {Scanner::Kind::kCl100k, 3}, "x.tiktoken");
              }),
              HasSubstr("x.tiktoken:1: a token of 1500 bytes, wanted at most 1024"));
  std::string piece = "\x0A\xD0\x0F" + huge;  // field 1, 2000 bytes
  std::string model("\x0A\x05\x0A\x01\x75\x18\x02", 7);
  model += "\x0A\xD3\x0F" + piece;
  EXPECT_THAT(data_error([&] { read_sentencepiece_model(model, "tokenizer.model"); }),
              HasSubstr("piece 1 has 2000 bytes, wanted at most 1024"));
}

TEST(Merges, SayTheLineThatIsWrong) {
  const auto error = data_error(
      [] { read_byte_bpe(R"({"a":0})", "#version: 0.2\na\n", {}, "vocab.json", "merges.txt"); });
  EXPECT_THAT(error, HasSubstr("merges.txt:2"));
}

}  // namespace
}  // namespace piton
