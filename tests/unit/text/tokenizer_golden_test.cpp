// Ids and decoded text equal those of other tokenizers: tests/golden/tokenizers.jsonl, whose first
// line names their versions. The vocabularies are real files that are not in the repository.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

const std::filesystem::path kVocabularies =
    std::filesystem::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "tokenizers";

std::unique_ptr<Tokenizer> open_family(const std::string& family) {
  TokenizerOptions options;
  const std::string kind = family.substr(0, family.find('+'));
  options.name_or_path = (kVocabularies / kind).string();
  if (kind == "gpt2-tiktoken") options.name_or_path = (kVocabularies / "gpt2").string();
  if (kind == "t5") options.name_or_path = (kVocabularies / "t5-small").string();
  if (kind == "llama2-sentencepiece") {
    options.name_or_path = (kVocabularies / "llama2").string();
    options.not_use_fast = true;
  }
  if (kind.starts_with("bert")) {
    options.name_or_path = (kVocabularies / "bert" / (kind + "-vocab.txt")).string();
  }
  return open_tokenizer(options);
}

TEST(Tokenizers, GiveTheIdsAndTheTextOfThePeers) {
  if (!std::filesystem::exists(kVocabularies)) {
    GTEST_SKIP() << "no vocabularies at " << kVocabularies;
  }
  std::istringstream golden(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/tokenizers.jsonl"));
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  std::string line;
  std::getline(golden, line);  // the provenance
  int rows = 0;
  while (std::getline(golden, line)) {
    const auto row = read_json<nlohmann::json>(line);
    const std::string family = row["family"];
    auto& tokenizer = tokenizers[family];
    if (tokenizer == nullptr) tokenizer = open_family(family);
    const bool special = family.ends_with("+special");
    const std::string text = row["text"];
    const auto ids = tokenizer->encode(text, {special, special});
    ASSERT_EQ(ids, row["ids"].get<std::vector<std::int32_t>>()) << family << ": " << row["text"];
    ++rows;
    if (!row.contains("decoded")) continue;
    const std::string decoded = tokenizer->decode(ids);
    const auto shown =
        nlohmann::json(decoded).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    ASSERT_EQ(read_json<nlohmann::json>(shown), row["decoded"]) << family << ": " << row["text"];
    StreamDecoder stream(*tokenizer);
    std::string parts;
    for (const std::int32_t id : ids) parts += stream.push(id);
    parts += stream.finish();
    ASSERT_EQ(parts, decoded) << family << ": " << row["text"];
  }
  EXPECT_GE(rows, 800);
}

TEST(Tokenizers, GiveTheIdsOfThePublishedVectors) {
  if (!std::filesystem::exists(kVocabularies)) {
    GTEST_SKIP() << "no vocabularies at " << kVocabularies;
  }
  for (const auto& [vector, family] : std::map<std::string, std::string>{
           {"gpt-2", "gpt2"}, {"llama-spm", "llama2-sentencepiece"}, {"qwen2", "qwen2.5"}}) {
    const auto tokenizer = open_family(family);
    const std::string inputs = read_text_file(kVocabularies / "vectors" / (vector + ".inp"));
    std::istringstream outputs(read_text_file(kVocabularies / "vectors" / (vector + ".out")));
    const std::string separator = "\n__ggml_vocab_test__\n";
    int count = 0;
    for (std::size_t at = 0; at < inputs.size(); ++count) {
      const std::size_t end = std::min(inputs.find(separator, at), inputs.size());
      std::string wanted;
      ASSERT_TRUE(std::getline(outputs, wanted));
      std::istringstream numbers(wanted);
      const std::vector<std::int32_t> ids{std::istream_iterator<std::int32_t>(numbers), {}};
      EXPECT_EQ(tokenizer->encode(inputs.substr(at, end - at)), ids)
          << vector << ": text " << count << " \"" << inputs.substr(at, end - at) << '"';
      at = end + separator.size();
    }
    EXPECT_GT(count, 30) << vector;
  }
}

TEST(Tokenizers, ByteLevelDecodingGivesBackAnyBytes) {
  if (!std::filesystem::exists(kVocabularies)) {
    GTEST_SKIP() << "no vocabularies at " << kVocabularies;
  }
  const auto tokenizer = open_family("gpt2");
  std::string text;
  std::uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525 + 1013904223;
    text.push_back(static_cast<char>(state >> 24));
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

}  // namespace
}  // namespace piton
