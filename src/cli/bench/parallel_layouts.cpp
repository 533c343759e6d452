#include "cli/bench/parallel_layouts.h"

#include <algorithm>

#include "api/planning.h"
#include "base/amounts.h"
#include "base/error.h"
#include "train/run/run_plan.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> pipeline_flags(const ComparedSizes& sizes) {
  std::vector<std::string> flags = {"--pipeline-model-parallel-size",
                                    fmt::format("{}", sizes.ranks), "--balance-layers"};
  if (sizes.global_batch) return flags;
  const std::int64_t count = sizes.pipeline_micro_batches;
  const std::int64_t size = std::max<std::int64_t>(sizes.micro_batch / count, 1);
  for (const auto& [flag, value] :
       {std::pair("--micro-batch-size", size), std::pair("--global-batch-size", size * count)}) {
    flags.insert(flags.end(), {flag, fmt::format("{}", value)});
  }
  return flags;
}

// The largest of the ranks' values.
std::int64_t most(const Json& ranks, const char* key) {
  std::int64_t value = 0;
  for (const Json& rank : ranks) value = std::max(value, rank.at(key).get<std::int64_t>());
  return value;
}

double ratio(std::int64_t a, std::int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1;
}

const Json& best_round(const LayoutRounds& measured) {
  return *std::ranges::min_element(measured.rounds, {}, [](const Json& round) {
    return round.at("best_seconds").get<double>();
  });
}

}  // namespace

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const ComparedLayout& layout : compared_layouts({})) names.push_back(layout.name);
  return names;
}

std::vector<ComparedLayout> compared_layouts(const ComparedSizes& sizes) {
  const std::string ranks = fmt::format("{}", sizes.ranks);
  return {{"dp", {}},
          {"zero1", {"--zero-stage", "1"}},
          {"zero2", {"--zero-stage", "2"}},
          {"zero3", {"--zero-stage", "3"}},
          {"tp", {"--tensor-model-parallel-size", ranks}},
          {"tp-sp", {"--tensor-model-parallel-size", ranks, "--sequence-parallel"}},
          {"cp", {"--context-parallel-size", ranks}},
          {"pp", pipeline_flags(sizes)}};
}

std::optional<std::string> refusal(const PretrainOptions& options, const ComparedLayout& layout,
                                   int ranks) {
  PretrainOptions one = options;
  OptionSet set;
  one.add_without_timing_to(set);
  set.parse(layout.flags);
  try {
    check_layout(make_run_plan(one, ranks, 0));
  } catch (const Error& error) {
    if (error.fault() != Fault::kUsage) throw;
    return error.what();
  }
  return std::nullopt;
}

double tokens_per_second(const LayoutRounds& measured) {
  return best_round(measured).at("tokens_per_second");
}

Json layout_figures(const LayoutRounds& measured, double one) {
  const Json& best = best_round(measured);
  const Json& ranks = best.at("ranks");
  std::vector<double> seconds;
  double planned = best.at("planned_step_seconds");
  for (const Json& round : measured.rounds) {
    const auto of_round = round.at("seconds").get<std::vector<double>>();
    seconds.insert(seconds.end(), of_round.begin(), of_round.end());
    planned = std::min(planned, round.at("planned_step_seconds").get<double>());
  }
  const double step = best.at("best_seconds");
  std::string flags;
  for (const std::string& flag : measured.layout.flags) {
    flags += (flags.empty() ? "" : " ") + flag;
  }
  const std::int64_t resident = most(ranks, "peak_resident_bytes");
  const std::int64_t reserved = most(ranks, "planned_reserved_bytes");
  const std::int64_t sent = most(ranks, "sent_bytes");
  const std::int64_t planned_sent = most(ranks, "planned_sent_bytes");
  Json out{{"layout", measured.layout.name},
           {"flags", flags},
           {"tokens_per_second", best.at("tokens_per_second")},
           {"share_of_one", best.at("tokens_per_second").get<double>() / one},
           {"tokens_per_step", best.at("tokens_per_step")},
           {"step_seconds", step},
           {"planned_step_seconds", planned},
           {"planned_over_measured_time", planned / step},
           {"peak_resident_bytes", resident},
           {"planned_reserved_bytes", reserved},
           {"planned_over_measured_memory", ratio(reserved, resident)},
           {"peak_memory_bytes", most(ranks, "peak_memory_bytes")},
           {"planned_memory_bytes", most(ranks, "planned_memory_bytes")},
           {"sent_bytes", sent},
           {"planned_sent_bytes", planned_sent},
           {"planned_over_measured_sent", ratio(planned_sent, sent)}};
  for (const char* key : {"bubble", "formula_bubble"}) {
    if (best.contains(key)) out[key] = best.at(key);
  }
  out["seconds"] = seconds;
  out["ranks"] = ranks;
  return out;
}

std::string layout_table(const std::vector<Json>& figures) {
  std::string text =
      fmt::format("{:<8}{:>10}{:>10}{:>10}{:>20}{:>11}{:>20}{:>11}{:>20}{:>9}{:>9}\n", "layout",
                  "tokens/s", "of one", "step, s", "planned", "held, MiB", "planned", "sent, MiB",
                  "formula", "bubble", "formula");
  const auto pair = [](double planned, double share) {
    return fmt::format("{:>10.4g} ({:6.2f} %)", planned, 100 * share);
  };
  for (const Json& one : figures) {
    const auto mebi = [&](const char* key) { return mebibytes(one.at(key).get<std::int64_t>()); };
    text += fmt::format(
        "{:<8}{:>10.4g}{:>8.1f} %{:>10.4g}{}{:>11.1f}{}{:>11.1f}{}",
        one.at("layout").get<std::string>(), one.at("tokens_per_second").get<double>(),
        100 * one.at("share_of_one").get<double>(), one.at("step_seconds").get<double>(),
        pair(one.at("planned_step_seconds"), one.at("planned_over_measured_time")),
        mebi("peak_resident_bytes"),
        pair(mebi("planned_reserved_bytes"), one.at("planned_over_measured_memory")),
        mebi("sent_bytes"), pair(mebi("planned_sent_bytes"), one.at("planned_over_measured_sent")));
    if (one.contains("bubble")) {
      text += fmt::format("{:>7.1f} %{:>7.1f} %", 100 * one.at("bubble").get<double>(),
                          100 * one.at("formula_bubble").get<double>());
    }
    text += "\n";
  }
  return text;
}

}  // namespace piton::cli
