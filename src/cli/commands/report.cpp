// piton report: a page of HTML about runs, or about results of evaluations.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/files/files.h"
#include "base/local_time.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "report/page.h"
#include "report/results_page.h"

namespace piton::cli {
namespace {

struct ReportOptions {
  std::string output;
  bool follow = false;
  int every = 10;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"output",
             "HTML file to write (default: report.html in the first folder)",
             {.placeholder = "FILE.html"}},
      output);
    v(Option{"follow", "write the page again while a run continues; the page reloads itself"},
      follow);
    v(Option{"every", "seconds between two pages of --follow"}, every);
  }
};

// Returns whether a run is still active.
bool write_page(const std::vector<std::string>& folders, const std::filesystem::path& output,
                const ReportOptions& options) {
  std::vector<RunRecord> runs;
  bool running = false;
  for (const std::string& folder : folders) {
    runs.push_back(read_run(folder));
    running |= runs.back().running;
  }
  PageOptions page{.made = local_time(std::time(nullptr))};
  if (options.follow && running) page.refresh_every = options.every;
  write_text_file(output, report_page(runs, page));
  return running;
}

void write_results(const std::vector<std::string>& folders, const std::filesystem::path& output) {
  std::vector<ResultsRecord> all;
  for (const std::string& folder : folders) all.push_back(read_results(folder));
  write_text_file(output, results_page(all, local_time(std::time(nullptr))));
}

}  // namespace

int run_report(Invocation& invocation) {
  GeneralOptions general;
  ReportOptions options;
  OptionSet set;
  set.add("Report", options);
  const std::vector<std::string> folders = invocation.parse(set, general);
  check_range("--every", options.every, 1, 86400);
  if (folders.empty()) {
    throw Error(
        Fault::kUsage,
        "report: no run is named; give the folder of --save, or of --save-results, or several");
  }
  const auto evaluated = std::count_if(folders.begin(), folders.end(), [](const auto& folder) {
    return has_results(folder) &&
           !std::filesystem::exists(std::filesystem::path(folder) / "metrics.jsonl");
  });
  if (evaluated > 0 && evaluated < std::ssize(folders)) {
    throw Error(Fault::kUsage,
                "report: some folders are of runs and some of results; make a page of each kind");
  }
  if (evaluated > 0 && options.follow)
    throw Error(Fault::kUsage, "--follow: works only with runs; results do not change");
  const std::filesystem::path output = options.output.empty()
                                           ? std::filesystem::path(folders.front()) / "report.html"
                                           : std::filesystem::path(options.output);
  bool running = false;
  if (evaluated > 0)
    write_results(folders, output);
  else
    running = write_page(folders, output, options);
  invocation.warn_of_root(general);
  invocation.log.info(fmt::format("report: {}", output.string()));
  while (options.follow && running) {
    std::this_thread::sleep_for(std::chrono::seconds(options.every));
    running = write_page(folders, output, options);
  }
  return 0;
}

}  // namespace piton::cli
