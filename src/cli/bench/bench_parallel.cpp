// piton bench parallel: training steps of layouts on ranks of this machine, against one process
// with the same cores.
//
// Each measurement is a separate `piton bench train`, under `piton launch` where it has several
// ranks, so that its memory is that of one layout alone. A round measures each layout once.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/files/files.h"
#include "base/threads.h"
#include "cli/bench/bench_rounds.h"
#include "cli/bench/child.h"
#include "cli/bench/measured_model.h"
#include "cli/bench/parallel_layouts.h"
#include "cli/bench/scratch_folder.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/terminal/print.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostBenchRanks = 1024;

struct ParallelBenchOptions {
  std::optional<std::int64_t> ranks;
  std::vector<std::string> layouts;
  int steps = 2;
  std::int64_t pipeline_micro_batches = 4;
  BenchRounds of_all{.rounds = 3};

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"world-size", "number of ranks to start (default: one for each core, at least 2)"},
      ranks);
    v(Option{"layouts",
             "layouts to compare: dp, zero1, zero2, zero3, tp, tp-sp, cp, pp (default: all)",
             {.placeholder = "LAYOUT"}},
      layouts);
    v(Option{"steps", "number of steps that are measured after each start of the ranks"}, steps);
    v(Option{"pipeline-micro-batches",
             "micro-batches of a step of pp, into which --micro-batch-size is divided; not with "
             "--global-batch-size"},
      pipeline_micro_batches);
    of_all.visit(v);
  }

  // Throws Error(kUsage) with the flag.
  void check() const {
    of_all.check();
    check_range("--steps", steps, 1);
    check_range("--pipeline-micro-batches", pipeline_micro_batches, 1, kLargestSize);
    if (ranks) check_range("--world-size", *ranks, 2, kMostBenchRanks);
    const std::vector<std::string> known = layout_names();
    for (const std::string& name : layouts) {
      if (std::ranges::find(known, name) != known.end()) continue;
      throw Error(Fault::kUsage, "--layouts: got \"{}\", wanted {}", name, fmt::join(known, ", "));
    }
  }
};

// How the cores of this process are divided.
struct Threads {
  int of_rank = 1;
  int of_one = 2;  // of the one process
};

Threads divided_threads(int given, int ranks) {
  const int cores = static_cast<int>(available_cores().size());
  if (given > 0) return {given, given * ranks};
  const int of_rank = std::max(cores / ranks, 1);
  return {of_rank, std::min(of_rank * ranks, cores)};
}

// What the user gave, for `bench train`: without the options of this bench and those that are
// set for each start.
std::string toml_of(const OptionSet& set, ParallelBenchOptions own) {
  OptionSet of_bench;
  of_bench.add("Bench", own);
  std::set<std::string> left_out = {"config", "threads", "quiet"};
  for (const auto& [name, value] : of_bench.values()) left_out.insert(name);
  std::string text;
  for (const ChangedOption& option : set.changed()) {
    if (!left_out.contains(option.name))
      text += fmt::format("{} = {}\n", option.name, option.value);
  }
  return text;
}

// Starts `bench train` for one layout and returns what it printed.
class Starter {
 public:
  Starter(const std::string& options, const ParallelBenchOptions& bench, Threads threads,
          ScratchFolder& scratch)
      : scratch_(scratch), steps_(bench.steps), threads_(threads) {
    write_text_file(recipe(), options);
  }

  Json run(const ComparedLayout& layout, int ranks) const {
    std::vector<std::string> words = {own_program()};
    if (ranks > 1) words.insert(words.end(), {"launch", fmt::format("{}", ranks)});
    const int threads = ranks > 1 ? threads_.of_rank : threads_.of_one;
    words.insert(words.end(), {"bench", "train", recipe().string(), "--no-floor", "--step-time",
                               "--json", "--quiet", "--rounds", fmt::format("{}", steps_),
                               "--threads", fmt::format("{}", threads)});
    words.insert(words.end(), layout.flags.begin(), layout.flags.end());
    const ChildResult result = run_child(words, scratch_.path(), scratch_.child());
    if (result.code != 0) {
      throw Error(Fault::kPeer,
                  "bench parallel: layout {}: {} rank{} of piton bench train ended with {}: {}",
                  layout.name, ranks, ranks > 1 ? "s" : "", result.code, last_line(result.errors));
    }
    const auto json = read_json_or_discarded<Json>(result.output);
    if (json.is_object() && json.contains("ranks")) return json;
    throw Error(Fault::kPeer,
                "bench parallel: layout {}: got no figures of piton bench train, but \"{}\"",
                layout.name, result.output.substr(0, 100));
  }

 private:
  std::filesystem::path recipe() const { return scratch_.path() / "options.toml"; }

  ScratchFolder& scratch_;
  int steps_;
  Threads threads_;
};

void refuse_own_layout(const OptionSet& set) {
  for (const char* flag :
       {"tensor-model-parallel-size", "context-parallel-size", "expert-model-parallel-size",
        "pipeline-model-parallel-size", "sequence-parallel", "zero-stage",
        "use-distributed-optimizer", "balance-layers"}) {
    if (!set.given(flag)) continue;
    throw Error(Fault::kUsage,
                "--{}: bench parallel sets it for each layout; leave it out, and "
                "choose by --layouts",
                flag);
  }
}

// A layout that is not possible, and why.
struct Refused {
  std::string layout;
  std::string reason;
};

struct Compared {
  std::vector<LayoutRounds> layouts;  // the first one is the one process
  std::vector<Refused> refused;
};

Compared chosen(const ParallelBenchOptions& bench, const PretrainOptions& options,
                const ComparedSizes& sizes) {
  Compared compared;
  compared.layouts.push_back({{"one", {}}, {}});
  if (const auto why = refusal(options, compared.layouts[0].layout, 1)) {
    throw Error(Fault::kUsage, *why);
  }
  for (const ComparedLayout& layout : compared_layouts(sizes)) {
    const auto& asked = bench.layouts;
    if (!asked.empty() && std::ranges::find(asked, layout.name) == asked.end()) continue;
    if (const auto why = refusal(options, layout, sizes.ranks)) {
      compared.refused.push_back({layout.name, *why});
    } else {
      compared.layouts.push_back({layout, {}});
    }
  }
  if (compared.layouts.size() == 1) {
    const Refused& first = compared.refused.front();
    throw Error(Fault::kUsage,
                "--world-size: none of the layouts is possible with {} ranks; {}: {}", sizes.ranks,
                first.layout, first.reason);
  }
  return compared;
}

void print_result(const Json& result) {
  const auto number = [&](const char* key) { return result.at(key).get<int>(); };
  const auto counted = [&](const char* key, const char* what) {
    return fmt::format("{} {}{}", number(key), what, number(key) == 1 ? "" : "s");
  };
  std::string text = fmt::format(
      "{} ranks of {}, and one process of {}: {} of {}, in turns; the best of each counts\n",
      number("ranks"), counted("threads", "thread"), number("threads_of_one"),
      counted("rounds", "round"), counted("steps", "step"));
  text += layout_table(result.at("layouts").get<std::vector<Json>>());
  for (const Json& one : result.at("refused")) {
    text += fmt::format("{} is not possible: {}\n", one.at("layout").get<std::string>(),
                        one.at("reason").get<std::string>());
  }
  print(text);
}

}  // namespace

int run_bench_parallel(Invocation& invocation) {
  ScratchFolder scratch(invocation.log);
  GeneralOptions general;
  ParallelBenchOptions bench;
  PretrainOptions options;
  OptionSet set;
  set.add("Bench", bench);
  options.add_without_timing_to(set);
  refuse_more_arguments(invocation.parse(set, general, true));
  if (is_launched()) {
    throw Error(Fault::kUsage,
                "bench parallel: starts its ranks itself; run it without a launcher");
  }
  bench.check();
  refuse_own_layout(set);
  check_range("--micro-batch-size", options.loop.micro_batch_size, 1, kLargestSize);
  settle_measured_model(options.model);
  settle_length(options.loop);
  const int cores = static_cast<int>(available_cores().size());
  const ComparedSizes sizes{
      .ranks = static_cast<int>(bench.ranks.value_or(std::clamp(cores, 2, kMostBenchRanks))),
      .micro_batch = options.loop.micro_batch_size,
      .global_batch = options.loop.global_batch_size,
      .pipeline_micro_batches = bench.pipeline_micro_batches};
  if (sizes.ranks > cores) {
    invocation.log.info(fmt::format("{} ranks share {} core{}: times say little", sizes.ranks,
                                    cores, cores == 1 ? "" : "s"));
  }
  Compared compared = chosen(bench, options, sizes);
  const Threads threads = divided_threads(general.threads, sizes.ranks);
  const Starter starter(toml_of(set, bench), bench, threads, scratch);
  for (int round = 0; round < bench.of_all.rounds; ++round) {
    for (LayoutRounds& one : compared.layouts) {
      const bool alone = &one == &compared.layouts.front();
      one.rounds.push_back(starter.run(one.layout, alone ? 1 : sizes.ranks));
      invocation.log.info(fmt::format("round {} of {}: {}: {:.4g} tokens/s", round + 1,
                                      bench.of_all.rounds, one.layout.name,
                                      one.rounds.back().at("tokens_per_second").get<double>()));
    }
  }
  Json result{{"bench", "parallel"},
              {"kernels", compared.layouts[0].rounds[0].at("kernels")},
              {"ranks", sizes.ranks},
              {"threads", threads.of_rank},
              {"threads_of_one", threads.of_one},
              {"rounds", bench.of_all.rounds},
              {"steps", bench.steps},
              {"layouts", Json::array()},
              {"refused", Json::array()}};
  const double one = tokens_per_second(compared.layouts[0]);
  for (const LayoutRounds& measured : compared.layouts) {
    result["layouts"].push_back(layout_figures(measured, one));
  }
  for (const Refused& refused : compared.refused) {
    result["refused"].push_back({{"layout", refused.layout}, {"reason", refused.reason}});
  }
  if (bench.of_all.json) {
    print(result.dump() + "\n");
  } else {
    print_result(result);
  }
  return 0;
}

}  // namespace piton::cli
