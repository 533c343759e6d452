#include "cli/bench/bench_print.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace piton::cli {
namespace {

using BenchJson = nlohmann::ordered_json;

constexpr const char* kProfiled[] = {"step_seconds", "token_seconds", "pass_seconds"};

// Explains a figure to readers who do not know docs/benchmarks.md.
std::string_view meaning(std::string_view figure) {
  struct Meaning {
    std::string_view figure;
    std::string_view text;
  };
  constexpr Meaning kMeanings[] = {
      {"share_of_peak", "of what these cores could multiply and add at most"},
      {"peak_gflops", "that most: the fastest loop of multiply-adds, measured here"},
      {"over_product_floor", "the step, over its matrix products alone"},
      {"share_of_bandwidth", "of what memory gives a loop that only moves the bytes"},
      {"tokens_per_second", "trained, or written"},
      {"bytes", "of the files of a checkpoint"},
      {"save_gb_per_second", "until the bytes are on the disk"},
      {"load_gb_per_second", "right after the save, so mostly from the memory of the system"},
      {"mb_per_second", "millions of bytes read and written in a second"},
      {"model_tflops", "of the model's own arithmetic, recomputation left out"},
      {"best_seconds", "of one round, the shortest"},
      {"spread", "of the rounds: the longest over the shortest, less one"},
      {"peak_memory_bytes", "the most that was held at once"},
      {"bubble", "of a pipeline: idle time over the work of the busiest stage"},
      {"formula_bubble", "the same if all passes were equally long"},
      {"planned_step_seconds", "as piton plan computes it from calls measured alone"},
      {"rounds", "measured; the best one counts"},
  };
  for (const Meaning& one : kMeanings) {
    if (one.figure == figure) return one.text;
  }
  return "";
}

}  // namespace

void print_bench(const BenchJson& result) {
  std::string text;
  const auto line = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{:24} {}", key, value);
    if (const std::string_view said = meaning(key); !said.empty())
      text += fmt::format("  ({})", said);
    text += "\n";
  };
  for (const auto& [key, value] : result.items()) {
    if (value.is_number_integer()) {
      line(key, fmt::format("{}", value.get<std::int64_t>()));
    } else if (value.is_number()) {
      line(key, fmt::format("{:.4f}", value.get<double>()));
    } else if (value.is_string()) {
      line(key, value.get<std::string>());
    }
  }
  for (const char* key : {"calls", "products"}) {
    if (!result.contains(key)) continue;
    text += fmt::format("{}, each measured alone:\n", key);
    for (const BenchJson& one : result[key]) {
      text += fmt::format("  {:10.3f} ms x {:3}  {:5.1f} % of peak  {}\n",
                          1e3 * one["best_seconds"].get<double>(), one["calls"].get<std::int64_t>(),
                          100 * one.value("share_of_peak", 0.0), one["what"].get<std::string>());
    }
  }
  if (result.contains("collectives")) {
    for (const BenchJson& one : result["collectives"]) {
      text += fmt::format("  {:10.3f} ms  {:8.3f} GB/s a rank on the bus  {}\n",
                          1e3 * one["best_seconds"].get<double>(),
                          one.value("bus_gb_per_second", 0.0), one["what"].get<std::string>());
    }
  }
  if (result.contains("profile")) {
    const BenchJson& profile = result["profile"];
    double step = 0;
    std::string what;
    for (const std::string key : kProfiled) {
      if (!profile.contains(key)) continue;
      step = profile[key];
      what = key.substr(0, key.find('_'));
    }
    text += fmt::format("one {}, call by call: {:.1f} ms, {:.1f} ms of it between calls\n", what,
                        1e3 * step, 1e3 * profile["outside_of_calls_seconds"].get<double>());
    for (const char* key : {"by_name", "by_call"}) {
      for (const BenchJson& one : profile[key]) {
        text += fmt::format(
            "  {:9.2f} ms {:5.1f} % {:5} calls {:8.1f} GFLOP/s {:9.0f} MB/s  {}\n",
            1e3 * one["seconds"].get<double>(), 100 * one["seconds"].get<double>() / step,
            one["calls"].get<std::int64_t>(), one["gflops_per_second"].get<double>(),
            one["mb_per_second"].get<double>(), one["what"].get<std::string>());
      }
    }
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace piton::cli
