// piton bench preprocess: raw files to token files, compared with the tokenizer alone.
#include "base/error.h"
#include "cli/bench/bench_rounds.h"
#include "cli/bench/bench_text.h"
#include "cli/bench/scratch_folder.h"
#include "cli/command.h"
#include "text/files/tokenizer_options.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

int run_bench_preprocess(Invocation& invocation) {
  const ScratchFolder scratch(invocation.log);
  GeneralOptions general;
  BenchRounds bench;
  PreprocessOptions options;
  options.sample_by = SampleBy::kLine;  // short texts, for all workers
  TokenizerOptions named;
  OptionSet set;
  set.add("Bench", bench);
  set.add("Input and output", options);
  set.add("Tokenizer", named);
  refuse_more_arguments(invocation.parse(set, general));
  if (options.input.empty())
    throw Error(Fault::kUsage, "bench preprocess: no --input; give files as for piton preprocess");
  if (options.output_prefix.empty()) options.output_prefix = (scratch.path() / "corpus").string();
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(named);
  const PreprocessBench done =
      bench_preprocess(*tokenizer, options, bench.rounds, invocation.log, invocation.progress);
  Json result{{"bench", "preprocess"},
              {"tokenizer", tokenizer->name()},
              {"workers", options.workers},
              {"rounds", bench.rounds},
              {"documents", done.tokenizer.documents},
              {"text_bytes", done.bytes},
              {"tokens", done.tokenizer.tokens}};
  result.update(figures(done.whole, done.bytes));
  result["share_of_tokenizer"] = done.share_of_tokenizer();
  result["tokenizer_mb_per_cpu_second"] =
      figures(done.tokenizer.encode, done.tokenizer.bytes)["mb_per_cpu_second"];
  result["unpack_cpu_seconds"] = done.unpack.cpu.best();
  print_figures(result, bench.json);
  return 0;
}

}  // namespace piton::cli
