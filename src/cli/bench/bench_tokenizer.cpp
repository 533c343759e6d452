// piton bench tokenizer: megabytes of text per second.
#include "base/error.h"
#include "cli/bench/bench_rounds.h"
#include "cli/bench/bench_text.h"
#include "cli/command.h"
#include "text/files/tokenizer_options.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizerBenchOptions {
  std::string made_text;
  std::int64_t megabytes = 20;
  bool fresh = false;
  BenchRounds of_all;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"made-text",
             "kind of generated text that is hard to tokenize; instead of --input",
             {.choices = {"one-letter", "random-letters", "random-bytes"}, .placeholder = "KIND"}},
      made_text);
    v(Option{"megabytes", "size in MB to which the texts are repeated in memory"}, megabytes);
    v(Option{"fresh", "open the tokenizer again for each round, so that it has no cached words"},
      fresh);
    of_all.visit(v);
  }
};

std::vector<std::string> texts_of(const TokenizerBenchOptions& bench,
                                  const PreprocessOptions& input) {
  const std::int64_t bytes = bench.megabytes * 1000000;
  if (bench.made_text.empty()) return read_texts(input, bytes);
  if (bench.megabytes == 0)
    throw Error(Fault::kUsage, "--megabytes: got 0, wanted 1 or more with --made-text");
  if (bench.made_text == "one-letter") return made_texts(MadeText::kOneLetter, bytes);
  return made_texts(
      bench.made_text == "random-letters" ? MadeText::kRandomLetters : MadeText::kRandomBytes,
      bytes);
}

}  // namespace

Json figures(const TextSamples& samples, std::int64_t bytes) {
  const double megabytes = 1e-6 * static_cast<double>(bytes);
  return {{"mb_per_second", megabytes / samples.wall.best()},
          {"mb_per_cpu_second", megabytes / samples.cpu.best()},
          {"best_seconds", samples.wall.best()},
          {"spread", samples.wall.spread()},
          {"cpu_seconds", samples.cpu.best()},
          {"seconds", samples.wall.seconds}};
}

void print_figures(const Json& result, bool json) {
  std::string text = json ? result.dump() + "\n" : "";
  for (const auto& [key, value] : result.items()) {
    if (json) break;
    if (value.is_string()) text += fmt::format("{:24} {}\n", key, value.get<std::string>());
    if (value.is_number_integer())
      text += fmt::format("{:24} {}\n", key, value.get<std::int64_t>());
    if (value.is_number_float()) text += fmt::format("{:24} {:.4f}\n", key, value.get<double>());
  }
  std::fputs(text.c_str(), stdout);
}

int run_bench_tokenizer(Invocation& invocation) {
  GeneralOptions general;
  TokenizerBenchOptions bench;
  PreprocessOptions input;
  input.sample_by = SampleBy::kLine;  // short texts, for all workers
  TokenizerOptions named;
  OptionSet set;
  set.add("Bench", bench);
  set.add("Input and output", input);
  set.add("Tokenizer", named);
  refuse_more_arguments(invocation.parse(set, general));
  if (input.input.empty() == bench.made_text.empty()) {
    throw Error(
        Fault::kUsage,
        "bench tokenizer: {} --input; give files of text as for piton preprocess, or --made-text",
        input.input.empty() ? "no" : "both --made-text and");
  }
  if (bench.megabytes < 0)
    throw Error(Fault::kUsage, "--megabytes: got {}, wanted 0 or more", bench.megabytes);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(named);
  const std::vector<std::string> texts = texts_of(bench, input);
  const EncodeOptions encode{input.add_special_tokens, input.parse_special_tokens};
  const TokenizerBench done =
      bench.fresh ? bench_fresh_tokenizer([&] { return open_tokenizer(named); }, texts, encode,
                                          input.workers, bench.of_all.rounds)
                  : bench_tokenizer(*tokenizer, texts, encode, input.workers, bench.of_all.rounds);
  Json result{{"bench", "tokenizer"},        {"tokenizer", tokenizer->name()},
              {"workers", input.workers},    {"rounds", bench.of_all.rounds},
              {"documents", done.documents}, {"text_bytes", done.bytes},
              {"tokens", done.tokens}};
  result.update(figures(done.encode, done.bytes));
  print_figures(result, bench.of_all.json);
  return 0;
}

}  // namespace piton::cli
