// piton train-tokenizer: raw files to a tokenizer.
#include <algorithm>

#include "base/json.h"
#include "base/shell_word.h"
#include "base/threads.h"
#include "cli/command.h"
#include "data/vocabulary/learn_tokenizer.h"

namespace piton::cli {
namespace {

struct LearnReportOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print the result as one JSON object"}, json);
  }
};

void print_report(const LearnReport& done, bool json, Log& log) {
  for (const BadRecord& bad : done.first_bad) log.warning(describe(bad));
  if (done.bad_records > 0) {
    log.warning(fmt::format("{} bad records were left out", done.bad_records));
  }
  if (json) {
    const nlohmann::ordered_json object = {{"file", done.file},
                                           {"pieces", done.pieces},
                                           {"merges", done.merges},
                                           {"words", done.words},
                                           {"documents", done.documents},
                                           {"text_bytes", done.text_bytes},
                                           {"bad_records", done.bad_records},
                                           {"counting_seconds", done.counting_seconds},
                                           {"learning_seconds", done.learning_seconds}};
    const std::string text =
        object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), stdout);
    return;
  }
  const std::string line =
      fmt::format("{}: {} pieces from {} different words\n", done.file, done.pieces, done.words);
  std::fputs(line.c_str(), stdout);
  log.info(fmt::format(
      "train-tokenizer: learned in {:.1f} s; next: piton preprocess "
      "--tokenizer-name-or-path {} ...",
      done.learning_seconds, shell_word(std::filesystem::path(done.file).parent_path().string())));
}

}  // namespace

int run_train_tokenizer(Invocation& invocation) {
  GeneralOptions general;
  LearnReportOptions report;
  LearnOptions options;
  TokenizerTrainingOptions training;
  OptionSet set;
  set.add("Input and output", options);
  set.add("Vocabulary", training);
  set.add("Report", report);
  refuse_more_arguments(invocation.parse(set, general), 0);
  const int count = general.threads > 0 ? general.threads
                                        : std::max(1, static_cast<int>(available_cores().size()));
  // Not pinned: those that read and count, which the first one starts, would all be on its core.
  ThreadPool threads(count);
  const LearnReport done =
      learn_tokenizer(options, training, threads, invocation.log, invocation.progress);
  invocation.warn_of_root(general);
  print_report(done, report.json, invocation.log);
  return 0;
}

}  // namespace piton::cli
