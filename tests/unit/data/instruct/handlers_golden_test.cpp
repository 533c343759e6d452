// Samples of instruction data equal those that tools/oracle/instruction_handlers.py makes by the
// rules of the handlers, with Hugging Face's tokenizers: tests/golden/instruct/samples.jsonl, whose
// first line names the versions. Vocabularies and larger files are not in the repository.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/preprocess.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kSource = PITON_SOURCE_DIR;
const fs::path kShared = kSource / ".." / "shared" / "data";
const fs::path kGolden = kSource / "tests/golden/instruct";

SilentLog silent_log;
SilentProgress silent_progress;

std::vector<std::vector<std::int32_t>> sequences_of(const std::string& prefix) {
  const auto corpus = IndexedDataset::open(prefix);
  EXPECT_EQ(corpus.type(), IdType::kInt32);
  std::vector<std::vector<std::int32_t>> sequences;
  for (std::int64_t s = 0; s < corpus.sequences(); ++s) {
    auto& ids = sequences.emplace_back(static_cast<std::size_t>(corpus.length(s)));
    corpus.read(s, 0, ids);
  }
  return sequences;
}

std::uint32_t crc_of(const std::vector<std::vector<std::int32_t>>& sequences) {
  uLong crc = 0;
  for (const auto& ids : sequences) {
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(ids.data()),
                  static_cast<uInt>(ids.size() * sizeof(std::int32_t)));
  }
  return static_cast<std::uint32_t>(crc);
}

std::optional<std::int64_t> number(const Json& row, const char* key) {
  if (!row.contains(key)) return {};
  return row.at(key).get<std::int64_t>();
}

PreprocessOptions options_of(const Json& row) {
  PreprocessOptions options;
  for (const std::string& name : row.at("input").get<std::vector<std::string>>()) {
    options.input.push_back(fs::exists(kGolden / name) ? kGolden / name
                                                       : kShared / "instruct" / name);
  }
  options.instruct.handler_name = row.at("handler");
  options.instruct.prompt_type = row.value("prompt", "");
  if (row.contains("enable_thinking"))
    options.instruct.thinking =
        row.at("enable_thinking").get<bool>() ? Thinking::kKept : Thinking::kRemoved;
  options.instruct.seq_length = number(row, "seq_length");
  options.instruct.cutoff_len = number(row, "cutoff_len");
  options.instruct.max_samples = number(row, "max_samples");
  options.instruct.pack = row.value("pack", false);
  options.instruct.neat_pack = row.value("neat_pack", false);
  options.instruct.interleave_probs = row.value("interleave_probs", "");
  options.instruct.seed = row.value("seed", 1234U);
  const std::string mix = row.value("mix_strategy", "concat");
  if (mix == "interleave_under") options.instruct.mix_strategy = MixStrategy::kUnder;
  if (mix == "interleave_over") options.instruct.mix_strategy = MixStrategy::kOver;
  options.append_eod = row.value("append_eod", false);
  if (row.contains("map_keys")) options.map_keys = row.at("map_keys").dump();
  options.overwrite = true;
  return options;
}

// Rows of the golden file, with the tokenizers that they name.
class Rows {
 public:
  Rows() : file_(read_text_file(kGolden / "samples.jsonl")) {
    std::string line;
    std::getline(file_, line);  // the origin
  }

  bool next(Json& row) {
    std::string line;
    if (!std::getline(file_, line)) return false;
    row = Json::parse(line);
    return true;
  }

  const Tokenizer& tokenizer(const std::string& name) {
    auto& tokenizer = tokenizers_[name];
    if (tokenizer == nullptr) {
      TokenizerOptions options;
      options.name_or_path = kShared / "tokenizers" / name;
      tokenizer = open_tokenizer(options);
    }
    return *tokenizer;
  }

 private:
  std::istringstream file_;
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers_;
};

TEST(Samples, AreThoseOfTheHandlersAndTemplates) {
  if (!fs::exists(kShared / "tokenizers")) GTEST_SKIP() << "no vocabularies in " << kShared;
  TempFolder folder;
  Rows rows;
  Json row;
  int compared = 0;
  for (int number = 0; rows.next(row); ++number) {
    if (number % test::one_of(3) != 0) continue;
    PreprocessOptions options = options_of(row);
    options.output_prefix = (folder / "out").string();
    Json shown = row;
    for (const char* long_key : {"columns", "crc"}) shown.erase(long_key);
    SCOPED_TRACE(shown.dump());
    const auto report =
        preprocess(options, rows.tokenizer(row.at("tokenizer")), silent_log, silent_progress);
    ASSERT_EQ(report.prefixes.size(), row.at("crc").size());
    EXPECT_EQ(report.samples, row.at("sequences"));
    EXPECT_EQ(report.tokens.back(), row.at("tokens"));
    for (std::size_t i = 0; i < report.prefixes.size(); ++i) {
      const auto sequences = sequences_of(report.prefixes[i]);
      EXPECT_EQ(crc_of(sequences), row.at("crc")[i]) << report.prefixes[i];
      if (!row.contains("columns")) continue;
      const auto expected = row.at("columns")[i].get<std::vector<std::vector<std::int32_t>>>();
      for (std::size_t s = 0; s < std::min(sequences.size(), expected.size()); ++s) {
        EXPECT_EQ(sequences[s], expected[s]) << report.prefixes[i] << ": " << s;
      }
    }
    ++compared;
  }
  EXPECT_GE(compared, 140 / test::one_of(3));
}

// Block by block, as written; packed ones come after a second pass.
TEST(Samples, DoNotDependOnTheNumberOfWorkers) {
  if (!fs::exists(kShared / "tokenizers")) GTEST_SKIP() << "no vocabularies in " << kShared;
  TempFolder folder;
  Rows rows;
  for (const bool pack : {false, true}) {
    PreprocessOptions options =
        options_of({{"handler", "AlpacaStyleInstructionHandler"},
                    {"prompt", "qwen"},
                    {"input", {"alpaca_en_demo.json", "alpaca_zh_demo.json", "identity.json"}},
                    {"seq_length", 200},
                    {"neat_pack", pack}});
    std::vector<std::string> bytes;
    for (const int workers : {1, 4}) {
      options.workers = workers;
      options.output_prefix = (folder / "out").string();
      const auto report =
          preprocess(options, rows.tokenizer("qwen2.5"), silent_log, silent_progress);
      std::string all = fmt::format("{} {} {} {} ", report.samples, report.taught_tokens,
                                    report.too_long.count, report.too_long.first.size());
      for (const std::string& prefix : report.prefixes) {
        all += read_text_file(prefix + ".bin") + read_text_file(prefix + ".idx");
      }
      bytes.push_back(all);
    }
    EXPECT_TRUE(bytes[0] == bytes[1]) << pack;
  }
}

}  // namespace
}  // namespace piton
