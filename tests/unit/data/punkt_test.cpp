// Sentences and learned parameters equal NLTK's; tests/golden/punkt.txt says how it was made.
#include "data/sentences/punkt.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "data/sentences/punkt_trainer.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

const std::string kSharedTexts = PITON_SOURCE_DIR "/../shared/data/text/";

template <typename Lines>
std::uint32_t crc_of_lines(const Lines& lines) {
  std::string text;
  for (const auto& line : lines) {
    if (!text.empty() || &line != &lines[0]) text += '\x1e';
    text += line;
  }
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

std::vector<std::string> everything(const PunktParameters& p) {
  std::vector<std::string> all = {"--", "--", "--"};
  all.insert(all.end(), p.abbreviations.begin(), p.abbreviations.end());
  all.insert(all.end(), p.collocations.begin(), p.collocations.end());
  all.insert(all.end(), p.sentence_starters.begin(), p.sentence_starters.end());
  for (const auto& [type, cases] : p.cases) all.push_back(type + "\t" + std::to_string(cases));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Punkt, LearnsAndCutsAsNltkDoes) {
  if (!std::filesystem::exists(kSharedTexts))
    GTEST_SKIP() << "no shared test data at " << kSharedTexts;
  std::ifstream golden(PITON_SOURCE_DIR "/tests/golden/punkt.txt");
  std::string text;
  std::optional<PunktParameters> parameters;
  int compared = 0;
  for (std::string line; std::getline(golden, line);) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    if (kind == "learned") {
      text = read_text_file(kSharedTexts + name);
      // The middle in characters, as in the script.
      std::u32string points;
      std::vector<std::uint32_t> offsets;
      punkt::decode_utf8(text, points, &offsets);
      const std::size_t half = text.find('\n', offsets[points.size() / 2]);
      PunktTrainer trainer;
      trainer.train(std::string_view(text).substr(0, half));
      trainer.train(std::string_view(text).substr(half));
      parameters = trainer.finish();
      std::size_t abbreviations, collocations, starters, cases;
      std::uint32_t wanted;
      words >> abbreviations >> collocations >> starters >> cases >> wanted;
      EXPECT_EQ(parameters->abbreviations.size(), abbreviations) << name;
      EXPECT_EQ(parameters->collocations.size(), collocations) << name;
      EXPECT_EQ(parameters->sentence_starters.size(), starters) << name;
      EXPECT_EQ(parameters->cases.size(), cases) << name;
      EXPECT_EQ(crc_of_lines(everything(*parameters)), wanted) << name;
    } else if (kind == "cut") {
      bool keep;
      std::size_t count;
      std::uint32_t wanted;
      words >> keep >> count >> wanted;
      std::vector<std::string_view> sentences;
      PunktSplitter(*parameters, keep).split(text, sentences);
      EXPECT_EQ(sentences.size(), count) << line;
      EXPECT_EQ(crc_of_lines(sentences), wanted) << line;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 10);
}

TEST(Punkt, CutsSmallTextsWithoutParametersAsNltkDoes) {
  std::ifstream golden(PITON_SOURCE_DIR "/tests/golden/punkt.txt");
  int compared = 0;
  for (std::string line; std::getline(golden, line);) {
    if (!line.starts_with("small ")) continue;
    const auto tab = line.find('\t');
    const std::string text = line.substr(6, tab - 6);
    std::vector<std::string_view> sentences;
    PunktSplitter(PunktParameters{}).split(text, sentences);
    std::string joined;
    for (const auto& sentence : sentences)
      joined += (joined.empty() ? "" : "|") + std::string(sentence);
    EXPECT_EQ(joined, line.substr(tab + 1)) << text;
    ++compared;
  }
  EXPECT_EQ(compared, 15);
}

TEST(Punkt, CutsBehindTheFirstWord) {
  for (const bool keep : {false, true}) {
    std::vector<std::string_view> sentences;
    PunktSplitter(PunktParameters{}, keep).split("Hello. There it goes.", sentences);
    ASSERT_EQ(sentences.size(), 2U) << keep;
    EXPECT_TRUE(sentences[0].starts_with("Hello.")) << keep;
    sentences.clear();
    PunktSplitter(PunktParameters{}, keep).split(" \nHello. There it goes.", sentences);
    EXPECT_EQ(sentences.size(), 2U) << keep;
  }
}

TEST(Punkt, KnowsTheLettersOfWords) {
  for (const char* word : {"a", "z", "A", "Z", "_", "\xC3\xA9", "1z"}) {
    EXPECT_TRUE(punkt::has_word_character(word)) << word;
  }
  for (const char* none : {"0", "9", "-", "@", "[", "`", "{"}) {
    EXPECT_FALSE(punkt::has_word_character(none)) << none;
  }
}

TEST(Punkt, ParametersSurviveAFileAndDamageIsNamed) {
  TempFolder folder;
  PunktTrainer trainer;
  trainer.train(
      "Dr. Who met Mr. X. He left. It rained, e.g. in May. It was e.g. cold.\n\nThe end. The "
      "rest.");
  const PunktParameters learned = trainer.finish();
  learned.write(folder.path() / "punkt");
  const PunktParameters read = PunktParameters::read(folder.path() / "punkt");
  EXPECT_EQ(everything(read), everything(learned));
  EXPECT_EQ(read.content_hash(), learned.content_hash());
  write_text_file(folder.path() / "punkt/ortho_context.tab", "a\t1\nb\tx");
  try {
    PunktParameters::read(folder.path() / "punkt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ortho_context.tab: line 2: got \"b\tx\""),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace piton
