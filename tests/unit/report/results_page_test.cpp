// The page of `piton report` about results of evaluations, and its input files.
#include "report/results_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool shows(const std::string& page, const std::string& part) {
  return page.find(part) != std::string::npos;
}

// Four questions with two choices; `right`: how much likelier the right one is.
void write_results(const fs::path& folder, const std::vector<double>& right) {
  create_folders(folder);
  std::string lines;
  double sum = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const bool correct = right[i] > 0;
    sum += correct ? 1 : 0;
    lines += fmt::format(
        "{{\"id\":{0},\"subject\":\"s\",\"index\":{0},\"prompt\":\"question "
        "<{0}>\",\"continuations\":[\" "
        "no\",\" "
        "yes\"],\"log_likelihoods\":[-1.0,{1}],\"gold\":[1],\"answer\":\"{2}\",\"correct\":{3},"
        "\"metrics\":{{\"acc,none\":{4}}}}}\n",
        i, right[i] - 1, correct ? "yes" : "no", correct, correct ? 1.0 : 0.0);
  }
  write_text_file(folder / "boolq.jsonl", lines);
  write_text_file(
      folder / "results.json",
      fmt::format(
          "{{\"results\":{{\"boolq\":{{\"acc,none\":{},\"acc_stderr,none\":0.25}}}},"
          "\"configs\":{{\"boolq\":{{\"prompt_hash\":\"ab\"}}}},\"n-samples\":{{\"boolq\":4}},"
          "\"higher_is_better\":{{\"boolq\":{{\"acc\":true}}}},\"model_name\":\"models/<a>\"}}",
          sum / 4));
}

TEST(ResultsPage, ShowsScoresAndTheWorstAnswers) {
  const TempFolder folder;
  write_results(folder / "base", {1.0, -2.0, -5.0, 0.5});
  const ResultsRecord record = read_results(folder / "base");
  EXPECT_EQ(record.name, "base");
  const std::string page = results_page({record}, "2026-11-23");
  EXPECT_TRUE(shows(page, "models/&lt;a&gt;"));
  EXPECT_TRUE(shows(page,
                    "<td>boolq</td><td>acc,none</td><td class=\"n\">0.5000 ± 0.4900 ↑</td><td "
                    "class=\"n\">4</td>"));
  const std::size_t first = page.find("s 2, wrong by 5.00 nats");
  const std::size_t second = page.find("s 1, wrong by 2.00 nats");
  EXPECT_LT(first, second);
  EXPECT_NE(second, std::string::npos);
  EXPECT_TRUE(shows(page, "question &lt;2&gt;"));
  EXPECT_TRUE(shows(page, "<dt>answer</dt><dd>no</dd><dt>right</dt><dd> yes</dd>"));
  EXPECT_FALSE(shows(page, "Differences to"));
}

TEST(ResultsPage, ComparesTwoModelsQuestionByQuestion) {
  const TempFolder folder;
  write_results(folder / "base", {1.0, -2.0, -5.0, 0.5});
  write_results(folder / "tuned", {1.0, 2.0, 5.0, -0.5});
  const std::vector<ResultsRecord> all = {read_results(folder / "base"),
                                          read_results(folder / "tuned")};
  const PairedDifference paired =
      paired_difference(all[0].tasks.at("boolq"), all[1].tasks.at("boolq"), "acc,none");
  // Differences 0, 1, 1, -1: mean 1/4, deviation sqrt(2.75 / 3).
  EXPECT_EQ(paired.questions, 4);
  EXPECT_EQ(paired.better, 2);
  EXPECT_EQ(paired.worse, 1);
  EXPECT_DOUBLE_EQ(paired.mean, 0.25);
  EXPECT_NEAR(*paired.standard_error, std::sqrt(2.75 / 3 / 4), 1e-12);
  const std::string page = results_page(all, "today");
  EXPECT_TRUE(shows(page,
                    "<td>boolq</td><td>acc,none</td><td class=\"n\">+0.2500 ± 0.9383</td><td "
                    "class=\"n\">2</td><td class=\"n\">1</td><td class=\"n\">4</td>"));
  EXPECT_FALSE(shows(page, "<tr class=\"differs\">"));
}

TEST(ResultsPage, MarksDifferencesThatExcludeZero) {
  const TempFolder folder;
  write_results(folder / "a", std::vector<double>(20, -1.0));
  std::vector<double> mostly(20, 1.0);
  mostly[3] = -1.0;
  write_results(folder / "b", mostly);
  const std::vector<ResultsRecord> all = {read_results(folder / "a"), read_results(folder / "b")};
  EXPECT_TRUE(shows(results_page(all, "today"), "<tr class=\"differs\">"));
}

TEST(ReadResults, NamesWhatIsMissingOrDamaged) {
  const TempFolder folder;
  const auto message = [&] {
    return message_of(Fault::kData, [&] { read_results(folder.path()); });
  };
  EXPECT_THAT(message(), HasSubstr("no results.json is in it; wanted the folder of piton eval"));
  write_text_file(folder / "results.json", "[]");
  EXPECT_THAT(message(), HasSubstr("results.json: wanted an object of JSON"));
  write_text_file(folder / "results.json", "{}");
  EXPECT_THAT(message(), HasSubstr("results.json: has no \"results\""));
  write_results(folder.path(), {1.0});
  write_text_file(folder / "boolq.jsonl", "{}\nno\n");
  EXPECT_THAT(message(), HasSubstr("boolq.jsonl:2: wanted an object"));
}

}  // namespace
}  // namespace piton
