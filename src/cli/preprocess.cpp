// piton preprocess: raw files to token files.
#include "data/preprocess/preprocess.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "text/files/tokenizer_options.h"

namespace piton::cli {
namespace {

struct OutputOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print one JSON object about what was written"}, json);
  }
};

void report(const PreprocessReport& done, bool json, Log& log) {
  for (const BadRecord& bad : done.first_bad) log.warning(describe(bad));
  if (done.bad_records > 0) {
    log.warning(fmt::format("{} {} left out{}", done.bad_records,
                            done.bad_records == 1 ? "bad record was" : "bad records were",
                            done.bad_records > static_cast<std::int64_t>(done.first_bad.size())
                                ? "; the first ones are shown"
                                : ""));
  }
  if (json) {
    nlohmann::ordered_json corpora = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
      corpora.push_back({{"prefix", done.prefixes[i]}, {"tokens", done.tokens[i]}});
    }
    const nlohmann::ordered_json object = {{"corpora", corpora},
                                           {"documents", done.documents},
                                           {"duplicates", done.duplicates},
                                           {"bad_records", done.bad_records},
                                           {"text_bytes", done.text_bytes},
                                           {"seconds", done.seconds},
                                           {"resumed", done.resumed}};
    const std::string text =
        object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), stdout);
    return;
  }
  for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
    const std::string line = fmt::format("{}.bin: {} documents, {} tokens\n", done.prefixes[i],
                                         done.documents, done.tokens[i]);
    std::fputs(line.c_str(), stdout);
  }
  std::string line = fmt::format("preprocess: {:.1f} MB of text in {:.1f} s",
                                 static_cast<double>(done.text_bytes) / 1e6, done.seconds);
  if (done.duplicates > 0) line += fmt::format(", {} duplicates left out", done.duplicates);
  log.info(line);
}

}  // namespace

int run_preprocess(Invocation& invocation) {
  GeneralOptions general;
  OutputOptions output;
  PreprocessOptions options;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Input and output", options);
  set.add("Tokenizer", tokenizer);
  set.add("Report", output);
  refuse_more_arguments(invocation.parse(set, general), 0);
  if (!options.merge.empty()) {
    if (!options.input.empty() || !options.datasets.empty()) {
      throw Error(
          Fault::kUsage,
          "preprocess: both --merge and --input are given; join corpora in a run of its own");
    }
    report(merge_corpora(options.merge, options.output_prefix, options.overwrite), output.json,
           invocation.log);
    return 0;
  }
  if (tokenizer.empty()) {
    throw Error(Fault::kUsage,
                "preprocess: no tokenizer; give --tokenizer-name-or-path DIR, or --tokenizer-type "
                "with its files");
  }
  report(preprocess(options, *open_tokenizer(tokenizer), invocation.log, invocation.progress),
         output.json, invocation.log);
  return 0;
}

}  // namespace piton::cli
