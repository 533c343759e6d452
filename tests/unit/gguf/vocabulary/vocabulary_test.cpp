// Tokenizers into a GGUF file and out of it: the same ids for the same texts.
#include "gguf/vocabulary/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "text/compare_tokenizers.h"
#include "text/files/tokenizer_folder.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kShared = fs::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "tokenizers";

const std::vector<std::string> kTexts = {
    "Hello world! It's 2024, isn't it?",
    "  two spaces,\n\nlines\tand tabs   ",
    "naïve café — 北京 123456 \xF0\x9F\x99\x82",
    "<|endoftext|> and </s> in a text",
    "",
};

GgufVocabulary there_and_back(const GgufVocabulary& vocabulary) {
  GgufHeader header{.entries = vocabulary_entries(vocabulary)};
  return read_gguf_vocabulary(header, "x.gguf");
}

// LLaMA's tokenizer.json and tokenizer.model differ at control tokens within a text, and in whether
// these have a text.
void expect_same_ids(const Tokenizer& a, const Tokenizer& b) {
  for (const std::string& text : kTexts) {
    for (const bool special : {false, true}) {
      const bool parse = special && a.name() == b.name();
      const EncodeOptions options{.add_special_tokens = special, .parse_special_tokens = parse};
      const auto ids = a.encode(text, options);
      EXPECT_EQ(ids, b.encode(text, options)) << text;
      const DecodeOptions plain{.skip_special_tokens = true};
      EXPECT_EQ(a.decode(ids, plain), b.decode(ids, plain)) << text;
    }
  }
}

// In memory.
std::unique_ptr<Tokenizer> opened(const GgufVocabulary& vocabulary) {
  return open_tokenizer_texts(files_of_vocabulary(vocabulary, "x.gguf"), "x.gguf");
}

// In memory, and from the files that are written of it.
void expect_comes_back(const TokenizerOptions& options, std::int64_t more_rows) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  const GgufVocabulary vocabulary = there_and_back(
      vocabulary_of_files(options, *tokenizer, tokenizer->vocabulary_size() + more_rows));
  EXPECT_EQ(std::ssize(vocabulary.tokens), tokenizer->vocabulary_size() + more_rows);
  const std::unique_ptr<Tokenizer> again = opened(vocabulary);
  expect_same_ids(*tokenizer, *again);
  EXPECT_EQ(again->special().eos,
            tokenizer->special().eos ? tokenizer->special().eos : tokenizer->special().eod);
  TempFolder folder;
  for (const auto& [name, content] : files_of_vocabulary(vocabulary, "x.gguf"))
    write_text_file(folder / name, content);
  const auto of_files = open_tokenizer({.name_or_path = folder.path().string()});
  expect_same_ids(*tokenizer, *of_files);
  EXPECT_EQ(again->content_hash(), of_files->content_hash());
}

TEST(GgufVocabulary, OfPublishedTokenizersGivesTheSameIds) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "no shared test data at " << kShared;
  for (const char* name : {"gpt2", "llama2", "qwen2.5"}) {
    // It has 150,000 merges. LLaMA's are those of OfOneJsonFileGivesTheSameIds.
    if (std::string(name) != "gpt2" && !test::nightly()) continue;
    SCOPED_TRACE(name);
    expect_comes_back({.name_or_path = (kShared / name).string()}, 5);
  }
  expect_comes_back({.name_or_path = (kShared / "llama2/tokenizer.model").string()}, 0);
}

// As Transformers 5 saves LLaMA's tokenizer, and as T5's is published.
TEST(GgufVocabulary, OfOneJsonFileGivesTheSameIds) {
  if (!fs::exists(kShared)) GTEST_SKIP() << "no shared test data at " << kShared;
  for (const char* name : {"llama2", "t5-small"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      fs::copy_file(kShared / name / file, folder / file);
    const TokenizerOptions options{.name_or_path = folder.path().string()};
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
    const GgufVocabulary vocabulary =
        there_and_back(vocabulary_of_files(options, *tokenizer, tokenizer->vocabulary_size()));
    const bool unigram = std::string(name) == "t5-small";
    EXPECT_EQ(vocabulary.model, unigram ? "t5" : "llama");
    EXPECT_EQ(vocabulary.charsmap.empty(), !unigram);
    EXPECT_EQ(vocabulary.unk, unigram ? 2 : 0);
    EXPECT_EQ(vocabulary.kinds[static_cast<std::size_t>(*vocabulary.unk)], TokenKind::kUnknown);
    const std::unique_ptr<Tokenizer> again = opened(vocabulary);
    const std::vector<std::string> texts = varied_texts(*tokenizer);
    EXPECT_GT(texts.size(), 200U);
    EXPECT_EQ(text_difference({*tokenizer, "the file"}, {*again, "the GGUF file"}, texts), "");
  }
}

// Characters and bytes, as LLaMA's.
nlohmann::json character_tokenizer() {
  nlohmann::json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  for (const char* piece : {"\xE2\x96\x81", "h", "e", "he", "\xE2\x96\x81he"})
    vocabulary[piece] = vocabulary.size();
  return {
      {"model",
       {{"type", "BPE"},
        {"vocab", vocabulary},
        {"merges", {"h e", "\xE2\x96\x81 he"}},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"fuse_unk", true}}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "\xE2\x96\x81"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"added_tokens",
       {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
        {{"id", 1}, {"content", "<s>"}, {"special", true}},
        {{"id", 2}, {"content", "</s>"}, {"special", true}}}}};
}

TEST(GgufVocabulary, OfCharactersAndBytesHasOneUnknownToken) {
  TempFolder folder;
  write_text_file(folder / "tokenizer.json", character_tokenizer().dump());
  const TokenizerOptions options{.name_or_path = folder.path().string()};
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  GgufVocabulary vocabulary = there_and_back(vocabulary_of_files(options, *tokenizer, 264));
  EXPECT_EQ(vocabulary.kinds[0], TokenKind::kUnknown);
  EXPECT_EQ(vocabulary.kinds[1], TokenKind::kControl);
  EXPECT_EQ(vocabulary.unk, 0);
  expect_same_ids(*tokenizer, *opened(vocabulary));
  // Earlier versions of Piton wrote it as a control token.
  vocabulary.kinds[0] = TokenKind::kControl;
  expect_same_ids(*tokenizer, *opened(vocabulary));
  vocabulary.unk = {};
  expect_same_ids(*tokenizer, *opened(vocabulary));
}

// What llama.cpp adds around a text where a file does not say it.
TEST(GgufVocabulary, ThatDoesNotSayItAddsWhatLlamaCppAdds) {
  TempFolder folder;
  write_text_file(folder / "tokenizer.json", character_tokenizer().dump());
  const TokenizerOptions options{.name_or_path = folder.path().string()};
  GgufVocabulary vocabulary = vocabulary_of_files(options, *open_tokenizer(options), 264);
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = vocabulary.add_eos = {};
  const auto framed = [&] {
    return opened(vocabulary)->encode("he", {.add_special_tokens = true});
  };
  EXPECT_THAT(framed(), ElementsAre(1, 263));
  vocabulary.model = "t5";
  EXPECT_THAT(framed(), ElementsAre(263, 2));
  vocabulary.add_eos = false;
  EXPECT_THAT(framed(), ElementsAre(263));
}

// Pieces with their logarithms, as T5's and as train-tokenizer's Unigram.
TEST(GgufVocabulary, OfUnigramIsThatOfT5) {
  using Json = nlohmann::json;
  nlohmann::json json = {
      {"model",
       {{"type", "Unigram"},
        {"unk_id", 2},
        {"vocab",
         Json::array({Json::array({"<pad>", 0.0}), Json::array({"</s>", 0.0}),
                      Json::array({"<unk>", 0.0}), Json::array({"\xE2\x96\x81", -2.0}),
                      Json::array({"h", -3.0}), Json::array({"e", -3.5}), Json::array({"he", -2.5}),
                      Json::array({"\xE2\x96\x81he", -1.5})})}}},
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "WhitespaceSplit"}},
          {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"add_prefix_space", true}}}}}},
      {"decoder",
       {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"add_prefix_space", true}}},
      {"added_tokens",
       {{{"id", 0}, {"content", "<pad>"}, {"special", true}},
        {{"id", 1}, {"content", "</s>"}, {"special", true}},
        {{"id", 2}, {"content", "<unk>"}, {"special", true}}}}};
  TempFolder folder;
  write_text_file(folder / "tokenizer.json", json.dump());
  const TokenizerOptions options{.name_or_path = folder.path().string()};
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  const GgufVocabulary vocabulary = there_and_back(vocabulary_of_files(options, *tokenizer, 9));
  EXPECT_EQ(vocabulary.model, "t5");
  EXPECT_EQ(vocabulary.scores[6], -2.5F);
  EXPECT_EQ(vocabulary.kinds[2], TokenKind::kUnknown);
  EXPECT_EQ(vocabulary.kinds[8], TokenKind::kUnused);
  EXPECT_EQ(vocabulary.remove_extra_spaces, true);
  const std::unique_ptr<Tokenizer> again = opened(vocabulary);
  for (const char* text : {"he he", "  hehe   e ", "", " "})
    EXPECT_EQ(again->encode(text), tokenizer->encode(text)) << text;
  json["normalizer"] = {{"type", "Lowercase"}};
  write_text_file(folder / "tokenizer.json", json.dump());
  EXPECT_THAT(
      message_of(Fault::kData, [&] { vocabulary_of_files(options, *open_tokenizer(options), 9); }),
      HasSubstr("it normalizes texts (Lowercase) by no map, which no GGUF file can say"));
}

TEST(GgufVocabulary, OfBytesIsByteLevelBpeWithoutMerges) {
  const TokenizerOptions options{.type = "ByteTokenizer"};
  const std::unique_ptr<Tokenizer> bytes = open_tokenizer(options);
  const GgufVocabulary vocabulary = there_and_back(vocabulary_of_files(options, *bytes, 257));
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "gpt-2");
  EXPECT_EQ(vocabulary.tokens[32], "\xC4\xA0");  // U+0120, the space
  EXPECT_EQ(vocabulary.kinds[256], TokenKind::kControl);
  EXPECT_EQ(vocabulary.eos, 256);
  EXPECT_EQ(vocabulary.add_bos, false);
  expect_same_ids(*bytes, *opened(vocabulary));
}

// A tokenizer.json of bytes with two merges.
nlohmann::json small_tokenizer() {
  nlohmann::json vocabulary;
  const GgufVocabulary bytes = vocabulary_of_files(
      {.type = "ByteTokenizer"}, *open_tokenizer(TokenizerOptions{.type = "ByteTokenizer"}), 257);
  for (int id = 0; id < 256; ++id) vocabulary[bytes.tokens[static_cast<std::size_t>(id)]] = id;
  vocabulary["he"] = 256;
  vocabulary["hel"] = 257;
  return {{"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", {"h e", "he l"}},
            {"ignore_merges", false}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens",
           {{{"id", 258}, {"content", "<s>"}, {"special", true}},
            {{"id", 259}, {"content", "<tool>"}, {"special", false}}}}};
}

class SmallTokenizer : public testing::Test {
 protected:
  GgufVocabulary vocabulary(std::int64_t rows = 262) {
    write_text_file(dir_ / "tokenizer.json", json_.dump());
    const TokenizerOptions options{.name_or_path = dir_.path().string()};
    return vocabulary_of_files(options, *open_tokenizer(options), rows);
  }

  TempFolder dir_;
  nlohmann::json json_ = small_tokenizer();
};

TEST_F(SmallTokenizer, KeepsMergesTemplateAndWhatItsTokensAre) {
  write_text_file(
      dir_ / "tokenizer_config.json",
      R"({"bos_token": "<s>", "add_bos_token": true, "tokenizer_class": "LlamaTokenizer",
                      "chat_template": "{{ messages }}"})");
  const GgufVocabulary got = there_and_back(vocabulary());
  EXPECT_THAT(got.merges, ElementsAre("h e", "he l"));
  EXPECT_EQ(got.chat_template, "{{ messages }}");
  EXPECT_EQ(got.bos, 258);
  EXPECT_EQ(got.add_bos, true);
  EXPECT_EQ(got.add_eos, false);
  EXPECT_EQ(got.kinds[257], TokenKind::kNormal);
  EXPECT_EQ(got.kinds[258], TokenKind::kControl);
  EXPECT_EQ(got.kinds[259], TokenKind::kUserDefined);
  EXPECT_EQ(got.kinds[260], TokenKind::kUnused);
  EXPECT_EQ(got.tokens[261], "[PAD261]");
}

TEST_F(SmallTokenizer, KeepsTheDefaultOfSeveralTemplates) {
  write_text_file(dir_ / "tokenizer_config.json",
                  R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                        {"name": "default", "template": "{{ messages }}"}]})");
  EXPECT_EQ(vocabulary().chat_template, "{{ messages }}");
  // A file goes before the configuration.
  write_text_file(dir_ / "chat_template.jinja", "of the file");
  EXPECT_EQ(vocabulary().chat_template, "of the file");
}

// Only LLaMA's tokenizers, which fall back to bytes, are read from tokenizer.model where both are.
TEST_F(SmallTokenizer, IsThatOfTheJsonFileWithoutByteFallback) {
  write_text_file(dir_ / "tokenizer.model", "no model of SentencePiece");
  EXPECT_THAT(vocabulary().merges, ElementsAre("h e", "he l"));
}

TEST_F(SmallTokenizer, NamesHowWordsAreCut) {
  EXPECT_EQ(vocabulary().pre, "gpt-2");
  const auto split = [&](const char* digits, bool ignore) {
    json_["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern",
            {{"Regex",
              fmt::format(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|)"
                          R"(\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                          digits)}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    json_["model"]["ignore_merges"] = ignore;
    return vocabulary().pre;
  };
  EXPECT_EQ(split("{1,3}", true), "llama-bpe");
  // The file that is made of it cuts as the published one, which this is.
  const std::string made = files_of_vocabulary(vocabulary(), "x.gguf").at("tokenizer.json");
  EXPECT_EQ(read_json<nlohmann::json>(made)["pre_tokenizer"]["pretokenizers"][0],
            json_["pre_tokenizer"]["pretokenizers"][0]);
  EXPECT_EQ(split("{1,3}", false), "dbrx");
  EXPECT_EQ(split("", false), "stablelm2");
  json_["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(split("", false), "qwen2");
  // Marks count as letters.
  json_["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|)"
      R"(\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(vocabulary().pre, "qwen35");
  const auto files = files_of_vocabulary(vocabulary(), "x.gguf");
  EXPECT_EQ(
      read_json<nlohmann::json>(files.at("tokenizer.json"))["pre_tokenizer"]["pretokenizers"][0],
      json_["pre_tokenizer"]["pretokenizers"][0]);
}

TEST_F(SmallTokenizer, WhatNoFileCanSayIsRefused) {
  const auto refusal = [&] { return message_of(Fault::kData, [&] { vocabulary(); }); };
  EXPECT_THAT(message_of(Fault::kData, [&] { vocabulary(100); }),
              HasSubstr("the tokenizer has 260 ids, the model's table 100 rows"));
  json_["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_THAT(refusal(), HasSubstr("it normalizes texts (Lowercase), which no GGUF file can say"));
  json_["normalizer"] = nullptr;
  json_["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(refusal(), HasSubstr("its words are cut as no pre-tokenizer does"));
}

TEST(GgufVocabulary, ThatContradictsItselfIsRefused) {
  const auto refusal = [](std::vector<GgufEntry> entries) {
    entries.push_back({"tokenizer.ggml.model", GgufValue::string("gpt2")});
    return message_of(Fault::kData, [&] {
      const GgufVocabulary vocabulary =
          read_gguf_vocabulary({.entries = std::move(entries)}, "x.gguf");
      files_of_vocabulary(vocabulary, "x.gguf");
    });
  };
  const GgufEntry tokens = {"tokenizer.ggml.tokens", GgufValue::strings({"a", "b"})};
  const GgufEntry pre = {"tokenizer.ggml.pre", GgufValue::string("gpt-2")};
  EXPECT_THAT(refusal({}), HasSubstr("tokenizer.ggml.tokens: wanted a list of words"));
  EXPECT_THAT(
      refusal({tokens,
               {"tokenizer.ggml.token_type", GgufValue::numbers(std::vector<std::int32_t>{1})}}),
      HasSubstr("tokenizer.ggml.token_type: wanted a list of 2 numbers"));
  EXPECT_THAT(refusal({tokens, {"tokenizer.ggml.bos_token_id", GgufValue::u32(2)}}),
              HasSubstr("tokenizer.ggml.bos_token_id: wanted an id below 2"));
  EXPECT_THAT(refusal({tokens, {"tokenizer.ggml.pre", GgufValue::string("tekken")}}),
              HasSubstr("words are cut as \"tekken\" says"));
  EXPECT_THAT(refusal({tokens, pre, {"tokenizer.ggml.merges", GgufValue::strings({"ab"})}}),
              HasSubstr("\"ab\" are no two pieces"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.tokens", GgufValue::strings({"a", "\xFF"})}, pre}),
              HasSubstr("its tokens are not UTF-8"));
}

GgufVocabulary with_tokens(const std::vector<std::string>& tokens) {
  return {.model = "llama",
          .tokens = tokens,
          .kinds = std::vector(tokens.size(), TokenKind::kControl),
          .scores = std::vector<float>(tokens.size()),
          .eos = 0};
}

// What the names say of a token matters more than its place in the list.
TEST(GgufVocabulary, HasTheEndsOfATurnAndOfAMessage) {
  GgufVocabulary llama = with_tokens({"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "a"});
  EXPECT_THAT(add_ends({0, 1, 2}, llama), IsEmpty());
  EXPECT_EQ(llama.eos, 0);
  EXPECT_EQ(llama.eot, 2);
  EXPECT_EQ(llama.eom, 1);
  const GgufVocabulary back = there_and_back(llama);
  EXPECT_EQ(back.eot, 2);
  EXPECT_EQ(back.eom, 1);
  EXPECT_EQ(files_of_vocabulary(back, "x.gguf").at("generation_config.json"),
            R"({"eos_token_id":[0,2,1]})");

  GgufVocabulary qwen = with_tokens({"<|im_end|>", "<|endoftext|>"});
  EXPECT_THAT(add_ends({0, 1, 1}, qwen), IsEmpty());
  EXPECT_EQ(qwen.eot, 1);
  EXPECT_FALSE(qwen.eom);

  GgufVocabulary phi = with_tokens({"<|endoftext|>", "<|assistant|>", "<|end|>"});
  EXPECT_THAT(add_ends({0, 1, 2}, phi), IsEmpty());
  EXPECT_EQ(phi.eot, 2);
  EXPECT_EQ(phi.eom, 1);
}

TEST(GgufVocabulary, HasRoomForThreeEnds) {
  GgufVocabulary vocabulary = with_tokens({"a", "b", "c", "d", "e"});
  EXPECT_THAT(add_ends({9, 4, 0, 1, 3, 2}, vocabulary), ElementsAre(3, 2, 9));
  EXPECT_EQ(vocabulary.eot, 4);
  EXPECT_EQ(vocabulary.eom, 1);
  vocabulary = with_tokens({"a", "b"});
  vocabulary.eos.reset();
  EXPECT_THAT(add_ends({1}, vocabulary), IsEmpty());
  EXPECT_EQ(vocabulary.eos, 1);
  EXPECT_FALSE(vocabulary.eot);
  EXPECT_FALSE(files_of_vocabulary(vocabulary, "x.gguf").contains("generation_config.json"));
}

TEST(GgufVocabulary, NamesItsOwnSpecialTokensInTheFileOfPieces) {
  using enum TokenKind;
  const GgufVocabulary vocabulary{.model = "llama",
                                  .tokens = {"<none>", "<begin>", "<end>", "<fill>", "a"},
                                  .kinds = {kUnknown, kControl, kControl, kControl, kNormal},
                                  .scores = {0, 0, 0, 0, -1},
                                  .bos = 1,
                                  .eos = 2,
                                  .unk = 0,
                                  .pad = 3};
  const SentencePieceFacts facts = read_sentencepiece_model(
      files_of_vocabulary(vocabulary, "x.gguf").at("tokenizer.model"), "tokenizer.model");
  EXPECT_EQ(facts.unknown_piece, "<none>");
  EXPECT_EQ(facts.begin_piece, "<begin>");
  EXPECT_EQ(facts.end_piece, "<end>");
  EXPECT_EQ(facts.pad_piece, "<fill>");
}

}  // namespace
}  // namespace piton
