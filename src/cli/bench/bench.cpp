// piton bench: compares this machine's kernels and steps with its limits.
#include <algorithm>

#include "base/json.h"
#include "base/options/option_range.h"
#include "bench/checkpoint.h"
#include "bench/collectives.h"
#include "bench/decode.h"
#include "bench/kernels.h"
#include "bench/train.h"
#include "cli/bench/bench_print.h"
#include "cli/bench/bench_rounds.h"
#include "cli/bench/bench_text.h"
#include "cli/bench/measured_model.h"
#include "cli/command.h"
#include "cli/launch.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  bool profile = false;
  bool no_floor = false;
  bool step_time = false;
  std::optional<std::int64_t> rows, in, out, elements;
  std::optional<std::int64_t> context;
  std::int64_t tokens = 8;
  std::string quantize;
  AttentionLayout layout = AttentionLayout::kBsnd;
  BenchRounds of_all;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"profile", "train, decode, prefill: also show the time of each kernel call"}, profile);
    v(Option{"no-floor",
             "train: do not measure the matrix products alone; leaves out over_product_floor"},
      no_floor);
    v(Option{"step-time",
             "train: also estimate the time of a step as piton plan does, with links and kernel "
             "calls measured on all ranks at the same time"},
      step_time);
    v(Option{"rows", "gemm: number of rows of x (default: micro batch x sequence)"}, rows);
    v(Option{"in",
             "gemm: number of columns of x, with --out (default: the linear layers of the model)"},
      in);
    v(Option{"out", "gemm: number of columns of y, with --in"}, out);
    v(Option{"elements",
             "optimizer: number of weights (default: those of the model); comm: number of elements "
             "of a tensor (default: 16777216)"},
      elements);
    v(Option{"context",
             "decode, prefill: number of tokens of the prompt (default: 128, or what fits)"},
      context);
    v(Option{"tokens", "decode: number of tokens per round"}, tokens);
    v(Option{"quantize",
             "decode, prefill: hold the matrices of the layers in 8 or 4 bits",
             {.choices = {"int8", "int4", "q8_0", "q4_0", "nf4", "q4_k", "q5_k", "q6_k"}}},
      quantize);
    v(Option{"shape-order",
             "attention: memory layout of queries, keys and values (TND: samples packed in a row)"},
      Choice<AttentionLayout>(layout, {{"BSND", AttentionLayout::kBsnd},
                                       {"BSH", AttentionLayout::kBsh},
                                       {"SBH", AttentionLayout::kSbh},
                                       {"BNSD", AttentionLayout::kBnsd},
                                       {"TND", AttentionLayout::kTnd}}));
    of_all.visit(v);
  }

  // Throws Error(kUsage) with the flag.
  void check() const {
    of_all.check();
    if (context) check_range("--context", *context, 1, kLargestSize);
    check_range("--tokens", tokens, 1, kLargestSize);
    if (rows) check_range("--rows", *rows, 1, kLargestSize);
    if (in) check_range("--in", *in, 1, kLargestSize);
    if (out) check_range("--out", *out, 1, kLargestSize);
    if (elements) check_range("--elements", *elements, 1, kMostElements);
  }

 private:
  static constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // their bytes are counted
};

// Arguments of one kind of bench.
struct Request {
  const BenchOptions& bench;
  PretrainOptions& options;
  const Machine& machine;
  Log& log;

  ModelConfig model() const { return options.resolve_model(std::nullopt); }
  std::int64_t sequence() const {
    return options.loop.sequence > 0 ? options.loop.sequence : model().max_positions;
  }
};

// Leaves out a number that is 0: it could not be measured.
void put_if(Json& out, const char* key, double value) {
  if (value > 0) out[key] = value;
}

Json to_json(const Samples& samples) {
  return {
      {"best_seconds", samples.best()}, {"spread", samples.spread()}, {"seconds", samples.seconds}};
}

Json to_json(const std::vector<CallFigure>& calls, double peak) {
  Json list = Json::array();
  for (const CallFigure& call : calls) {
    Json one{{"what", call.what},
             {"calls", call.calls},
             {"best_seconds", call.samples.best()},
             {"spread", call.samples.spread()}};
    if (peak > 0) one["share_of_peak"] = call.flops / call.samples.best() / peak;
    list.push_back(std::move(one));
  }
  return list;
}

Json calls_json(const CallsBench& bench) {
  Json out;
  put_if(out, "share_of_peak", bench.share_of_peak());
  put_if(out, "peak_gflops", bench.peak * 1e-9);
  put_if(out, "loading_peak_gflops", bench.loading_peak * 1e-9);
  out["best_seconds"] = bench.seconds();
  out["calls"] = to_json(bench.calls, bench.peak);
  return out;
}

Json run_gemm(const Request& request) {
  const BenchOptions& bench = request.bench;
  if (bench.in.has_value() != bench.out.has_value()) {
    throw Error(
        Fault::kUsage,
        "--in, --out: got one of them; wanted both, or neither for the linear maps of the model");
  }
  const std::int64_t rows =
      bench.rows.value_or(request.options.loop.micro_batch_size * request.sequence());
  std::vector<GemmSize> sizes = gemm_sizes(request.model(), rows);
  if (bench.in) sizes = {{rows, *bench.in, *bench.out}};
  return calls_json(bench_gemm(request.machine, sizes, request.model().dtype, bench.of_all.rounds));
}

Json run_attention(const Request& request) {
  const ModelConfig model = request.model();
  const AttentionSize size{.samples = request.options.loop.micro_batch_size,
                           .sequence = request.sequence(),
                           .layout = request.bench.layout};
  return calls_json(bench_attention(request.machine, model, size, request.bench.of_all.rounds));
}

Json run_optimizer(const Request& request) {
  const ModelConfig model = request.model();
  const std::int64_t elements = request.bench.elements.value_or(model.parameters());
  const OptimizerBench bench =
      bench_optimizer(request.machine, elements, model.dtype, request.bench.of_all.rounds);
  Json out;
  if (!bench.loop.seconds.empty()) {
    out["share_of_bandwidth"] = bench.loop.best() / bench.update.best();
    out["loop"] = to_json(bench.loop);
  }
  out["mb_per_second"] = static_cast<double>(bench.bytes) * 1e-6 / bench.update.best();
  out["elements"] = elements;
  out.update(to_json(bench.update));
  return out;
}

void put_memory(Json& out, const MemoryCounts& memory) {
  out["peak_memory_bytes"] = memory.peak_total_bytes;
  out["reserved_memory_bytes"] = memory.reserved_bytes;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    out["memory_bytes"][std::string(name(static_cast<MemoryKind>(kind)))] = memory.peak_bytes[kind];
  }
}

// What is known of all ranks together, and next to the plan.
void put_ranks(Json& out, const TrainBench& bench) {
  if (bench.bubble) {
    out["bubble"] = *bench.bubble;
    out["formula_bubble"] = bench.formula_bubble;
  }
  if (bench.planned_time) out["planned_step_seconds"] = bench.planned_time->seconds;
  for (const MeasuredRank& rank : bench.ranks) {
    out["ranks"].push_back({{"peak_memory_bytes", rank.peak_bytes},
                            {"planned_memory_bytes", rank.planned_bytes},
                            {"peak_resident_bytes", rank.resident_bytes},
                            {"planned_reserved_bytes", rank.planned_reserved_bytes},
                            {"sent_bytes", rank.sent_bytes},
                            {"planned_sent_bytes", rank.planned_sent_bytes}});
  }
}

using Profile = std::map<std::string, CallTime, std::less<>>;

Json profile_json(const Profile& profile) {
  std::vector<std::pair<std::string, CallTime>> sorted(profile.begin(), profile.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  Json list = Json::array();
  for (const auto& [what, time] : sorted) {
    list.push_back(
        {{"what", what},
         {"calls", time.calls},
         {"seconds", time.seconds},
         {"gflops_per_second", time.flops * 1e-9 / time.seconds},
         {"mb_per_second", static_cast<double>(time.bytes_moved) * 1e-6 / time.seconds}});
  }
  return list;
}

// Adds the profile of `what` (step_seconds, token_seconds or pass_seconds), which took `seconds` in
// all. Nothing if `by_name` is empty.
void put_profile(Json& out, const char* what, double seconds, const Profile& by_name,
                 const Profile& by_call) {
  if (by_name.empty()) return;
  double inside = 0;
  for (const auto& [name, time] : by_name) inside += time.seconds;
  out["profile"] = {{what, seconds},
                    {"outside_of_calls_seconds", seconds - inside},
                    {"by_name", profile_json(by_name)},
                    {"by_call", profile_json(by_call)}};
}

Json run_train(const Request& request) {
  TrainBenchOptions options{.rounds = request.bench.of_all.rounds,
                            .profile = request.bench.profile,
                            .floor = !request.bench.no_floor,
                            .record_steps = request.options.loop.cuda_graph,
                            .step_time = request.bench.step_time};
  settle_length(request.options.loop);
  options.plan = make_run_plan(request.options, request.machine.world.size(), 0);
  if (options.plan.memory_limit) {
    throw Error(
        Fault::kUsage,
        "--recompute-granularity auto: bench measures what it is given; piton plan says what "
        "would be chosen");
  }
  const std::string random = warning_of_random_router(options.plan.session.model);
  if (!random.empty()) request.log.warning(random);
  const TrainBench bench = bench_train(request.machine, options);
  Json out{{"tokens_per_second", bench.tokens / bench.step.best()}};
  if (bench.peak > 0) out["share_of_peak"] = bench.flops / bench.step.best() / bench.peak;
  if (bench.floor_seconds > 0) out["over_product_floor"] = bench.step.best() / bench.floor_seconds;
  put_memory(out, bench.memory);
  out["planned_memory_bytes"] = bench.planned_bytes;
  out["peak_resident_bytes"] = bench.resident_bytes;
  put_if(out, "peak_gflops", bench.peak * 1e-9);
  put_if(out, "product_floor_seconds", bench.floor_seconds);
  out["start_seconds"] = bench.start_seconds;
  out["first_step_seconds"] = bench.first_step_seconds;
  out["tokens_per_step"] = bench.tokens;
  out.update(to_json(bench.step));
  put_ranks(out, bench);
  if (bench.floor_seconds > 0) out["products"] = to_json(bench.products, bench.peak);
  put_profile(out, "step_seconds", bench.profiled_step_seconds, bench.profile,
              bench.profile_by_call);
  return out;
}

// `written`: tokens after the prompt.
DecodeBenchOptions decode_options(const Request& request, std::int64_t written) {
  constexpr std::int64_t kUsualContext = 128;  // tokens
  const BenchOptions& bench = request.bench;
  const ModelConfig model = request.model();
  const std::int64_t fits =
      std::clamp<std::int64_t>(model.max_positions - written, 1, kUsualContext);
  return {.model = model,
          .samples = request.options.loop.micro_batch_size,
          .context = bench.context.value_or(fits),
          .tokens = bench.tokens,
          .rounds = bench.of_all.rounds,
          .profile = bench.profile,
          .quantize = bench.quantize};
}

Json run_decode(const Request& request) {
  const DecodeBenchOptions options = decode_options(request, request.bench.tokens);
  const DecodeBench bench = bench_decode(request.machine, options);
  Json out{{"tokens_per_second", static_cast<double>(options.samples) / bench.token.best()}};
  if (bench.read_bandwidth > 0)
    out["share_of_bandwidth"] = bench.bytes / bench.token.best() / bench.read_bandwidth;
  out["mb_per_second"] = bench.bytes * 1e-6 / bench.token.best();
  put_if(out, "read_mb_per_second", bench.read_bandwidth * 1e-6);
  put_memory(out, bench.memory);
  out.update(to_json(bench.token));
  put_profile(out, "token_seconds", bench.profile.seconds, bench.profile.by_name,
              bench.profile.by_call);
  return out;
}

Json run_prefill(const Request& request) {
  const PrefillBench bench = bench_prefill(request.machine, decode_options(request, 0));
  Json out{{"tokens_per_second", bench.tokens / bench.pass.best()}};
  if (bench.peak > 0) out["share_of_peak"] = bench.flops / bench.pass.best() / bench.peak;
  put_if(out, "peak_gflops", bench.peak * 1e-9);
  put_memory(out, bench.memory);
  out.update(to_json(bench.pass));
  put_profile(out, "pass_seconds", bench.profile.seconds, bench.profile.by_name,
              bench.profile.by_call);
  return out;
}

Json run_comm(const Request& request) {
  const int ranks = request.machine.world.size();
  const std::int64_t asked = request.bench.elements.value_or(std::int64_t{16} << 20);
  const std::int64_t elements = (asked + ranks - 1) / ranks * ranks;
  Json calls = Json::array();
  for (const CollectiveFigure& figure :
       bench_collectives(request.machine, elements, request.bench.of_all.rounds)) {
    Json one{{"what", figure.what}, {"bytes", figure.bytes}};
    put_if(one, "bus_gb_per_second", figure.bus_bytes * 1e-9 / figure.samples.best());
    one.update(to_json(figure.samples));
    calls.push_back(std::move(one));
  }
  return {{"ranks", ranks}, {"collectives", std::move(calls)}};
}

// The name of the folder in --save that is written, so that a run there stays as it is.
constexpr const char* kWritten = "piton-bench-checkpoint";

Json run_checkpoint(const Request& request) {
  settle_length(request.options.loop);
  const std::string& save = request.options.loop.save;
  if (save.empty()) {
    throw Error(Fault::kUsage,
                "--save: not given; wanted a folder on the disk to measure, where {} is written "
                "and removed",
                kWritten);
  }
  const RunPlan plan = make_run_plan(request.options, request.machine.world.size(), 0);
  const CheckpointBench bench = bench_checkpoint(
      request.machine, plan, std::filesystem::path(save) / kWritten, request.bench.of_all.rounds);
  const auto gigabytes = static_cast<double>(bench.bytes) * 1e-9;
  Json out{{"bytes", bench.bytes},
           {"save_gb_per_second", gigabytes / bench.save.best()},
           {"load_gb_per_second", gigabytes / bench.load.best()},
           {"save_seconds", bench.save.best()},
           {"load_seconds", bench.load.best()}};
  put_memory(out, bench.memory);
  out["save"] = to_json(bench.save);
  out["load"] = to_json(bench.load);
  return out;
}

struct Kind {
  std::string_view name;
  Json (*run)(const Request&);
};

constexpr Kind kKinds[] = {{"train", run_train},           {"gemm", run_gemm},
                           {"attention", run_attention},   {"optimizer", run_optimizer},
                           {"decode", run_decode},         {"prefill", run_prefill},
                           {"checkpoint", run_checkpoint}, {"comm", run_comm}};

const Kind& find_kind(const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
  }
  std::string known;
  for (const Kind& kind : kKinds)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  for (const Command& bench : benches_with_own_options())
    known += fmt::format(", {}", bench.name.substr(bench.name.find(' ') + 1));
  throw Error(Fault::kUsage, "bench: got \"{}\", wanted one of {}", name, known);
}

// Work above a limit means that the limit was measured wrongly. Work below a millisecond mostly
// measures the threads.
void expect_below_limits(const Json& result) {
  constexpr double kNoise = 1.1;  // two measurements of the same speed
  if (result.value("best_seconds", 0.0) < 1e-3) return;
  for (const char* key : {"share_of_peak", "share_of_bandwidth"}) {
    const double share = result.value(key, 0.0);
    if (share <= kNoise) continue;
    throw Error(Fault::kUsage,
                "bench: {} is {:.2f}, wanted at most 1: the work beats what was measured as its "
                "limit; run it again with more --rounds on a quieter machine, and if it stays so, "
                "report it",
                key, share);
  }
}

}  // namespace

int run_bench(Invocation& invocation) {
  GeneralOptions general;
  BenchOptions bench;
  PretrainOptions options;
  OptionSet set;
  set.add("Bench", bench);
  options.add_without_timing_to(set);
  std::string name;
  if (!invocation.words.empty() && !invocation.words[0].starts_with("-")) {
    name = invocation.words[0];
    invocation.words.erase(invocation.words.begin());
  }
  for (const Command& other : benches_with_own_options()) {
    if (other.name != "bench " + name) continue;
    Invocation inner{other,
                     invocation.words,
                     invocation.terminal,
                     invocation.log,
                     invocation.progress,
                     invocation.explained,
                     invocation.leads,
                     invocation.other_names};
    return other.run(inner);
  }
  refuse_more_arguments(invocation.parse(set, general, true));
  const Kind& kind = find_kind(name);
  bench.check();
  check_range("--micro-batch-size", options.loop.micro_batch_size, 1, kLargestSize);
  check_range("--seq-length", options.loop.sequence, 0, kLargestSize);
  settle_measured_model(options.model);
  Engine engine(engine_options(general), invocation.log);
  const Machine& machine = engine.machine();
  Json result{{"bench", name},
              {"kernels", machine.kernels.name()},
              {"threads", machine.threads.threads()},
              {"rounds", bench.of_all.rounds}};
  result.update(kind.run({bench, options, machine, invocation.log}));
  if (machine.world.rank() != 0) return 0;
  if (bench.of_all.json) {
    std::fputs((result.dump() + "\n").c_str(), stdout);
  } else {
    print_bench(result);
  }
  expect_below_limits(result);
  return 0;
}

}  // namespace piton::cli
