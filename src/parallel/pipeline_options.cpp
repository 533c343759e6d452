#include "parallel/pipeline_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;  // so that sums do not overflow

// The presets of AscendSpeed's --manual-mbs.
struct SizesPreset {
  std::string_view name;
  int stages;
  std::vector<std::int64_t> sizes;
};

const std::vector<SizesPreset>& presets() {
  static const std::vector<SizesPreset> all = {
      {"example-config-1", 4, {1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 3, 2}},
      {"example-config-2", 8, {1, 2, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5,
                               5, 5, 5, 5, 5, 5, 4, 4, 3, 3, 3, 2}}};
  return all;
}

template <typename Member, typename Value>
const SizesPreset* find_preset(Member member, const Value& value) {
  const auto found = std::ranges::find(presets(), value, member);
  return found == presets().end() ? nullptr : &*found;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

[[noreturn]] void refuse_flag(const char* flag, const std::string& what) {
  throw Error(Fault::kUsage, "parallel: --{}: {}", flag, what);
}

void wants(bool given, const char* flag, bool has, const char* what) {
  if (given && !has) refuse_flag(flag, fmt::format("needs {}", what));
}

}  // namespace

const std::vector<std::pair<std::string, PipelineOrder>>& pipeline_orders() {
  static const std::vector<std::pair<std::string, PipelineOrder>> orders = {
      {"1f1b", PipelineOrder::kOneForwardOneBackward},
      {"interleaved", PipelineOrder::kInterleaved},
      {"opp", PipelineOrder::kOptimized},
      {"aiao", PipelineOrder::kAllInAllOut},
      {"fifo", PipelineOrder::kFirstInFirstOut},
      {"zb-h1", PipelineOrder::kZeroBubbleH1},
      {"zb-v", PipelineOrder::kZeroBubbleV},
      {"dualpipe-v", PipelineOrder::kDualPipeV}};
  return orders;
}

ScheduleKind schedule_kind(PipelineOrder order) {
  switch (order) {
    case PipelineOrder::kOneForwardOneBackward:
    case PipelineOrder::kOptimized:
      return ScheduleKind::kOneForwardOneBackward;
    case PipelineOrder::kInterleaved:
    case PipelineOrder::kFirstInFirstOut:
      return ScheduleKind::kInterleaved;
    case PipelineOrder::kAllInAllOut:
      return ScheduleKind::kAllInAllOut;
    case PipelineOrder::kZeroBubbleH1:
      return ScheduleKind::kZeroBubbleH1;
    case PipelineOrder::kZeroBubbleV:
      return ScheduleKind::kZeroBubbleV;
    case PipelineOrder::kDualPipeV:
      return ScheduleKind::kDualPipeV;
  }
  PITON_ASSERT(false, "order of passes {}", static_cast<int>(order));
}

std::vector<std::int64_t> preset_sizes(int stages) {
  const SizesPreset* preset = find_preset(&SizesPreset::stages, stages);
  return preset == nullptr ? std::vector<std::int64_t>{} : preset->sizes;
}

const char* PipelineOptions::optimizing_flag() const {
  if (optimized) return "optimized-pipeline";
  return schedule == PipelineOrder::kOptimized ? "pipeline-schedule opp" : nullptr;
}

ScheduleKind PipelineOptions::kind() const {
  const ScheduleKind named = schedule_kind(schedule);
  if (!fold_mode) return named;
  const ScheduleKind folded =
      *fold_mode == "aiao" ? ScheduleKind::kAllInAllOut : ScheduleKind::kInterleaved;
  if (schedule != PipelineOrder::kOneForwardOneBackward && named != folded) {
    refuse_flag("foldx-mode", fmt::format("{} is another order than that of --pipeline-schedule; "
                                          "leave one of them out",
                                          *fold_mode));
  }
  return folded;
}

ScheduleSettings PipelineOptions::settings(int stages, std::int64_t layers) const {
  const ScheduleKind order = kind();
  const bool interleaves =
      order == ScheduleKind::kInterleaved || order == ScheduleKind::kAllInAllOut;
  const bool plain = schedule == PipelineOrder::kOneForwardOneBackward;
  const bool asks = layers_of_chunk || chunks;
  const char* const flag = layers_of_chunk ? "num-layers-per-virtual-pipeline-stage"
                                           : "num-virtual-stages-per-pipeline-rank";
  if (layers_of_chunk && chunks) {
    refuse_flag(flag, "says the same as --num-virtual-stages-per-pipeline-rank; give one of them");
  }
  wants(asks, flag, plain || interleaves,
        "--pipeline-schedule interleaved, aiao or fifo; the others define their chunks");
  wants(asks, flag, stages > 1, "--pipeline-model-parallel-size of 2 or more");
  std::int64_t of_a_stage = chunks.value_or(1);
  check_range("parallel: --num-virtual-stages-per-pipeline-rank", of_a_stage, 1, layers);
  if (layers_of_chunk) {
    check_range(fmt::format("parallel: --{}", flag), *layers_of_chunk, 1, layers);
    if (layers % (stages * *layers_of_chunk) != 0) {
      refuse_flag(flag,
                  fmt::format("chunks of {} layers on {} stages cannot divide {} layers; change "
                              "it, --num-layers or --pipeline-model-parallel-size",
                              *layers_of_chunk, stages, layers));
    }
    of_a_stage = layers / stages / *layers_of_chunk;
  }
  const bool several = of_a_stage > 1;
  wants(interleaves, fold_mode ? "foldx-mode" : "pipeline-schedule", several,
        "several chunks a stage: --num-layers-per-virtual-pipeline-stage or "
        "--num-virtual-stages-per-pipeline-rank");
  wants(group.has_value(), "microbatch-group-size-per-virtual-pipeline-stage",
        several && order != ScheduleKind::kAllInAllOut,
        "interleaved stages, or --pipeline-schedule fifo");
  if (group) {
    check_range("parallel: --microbatch-group-size-per-virtual-pipeline-stage", *group, stages,
                kLargestSize);
  }
  if (const char* const optimizing = optimizing_flag()) {
    wants(true, optimizing, order == ScheduleKind::kOneForwardOneBackward && !several,
          "--pipeline-schedule 1f1b with one chunk a stage");
    wants(true, optimizing, stages > 1, "--pipeline-model-parallel-size of 2 or more");
  }
  const bool has_several =
      several || order == ScheduleKind::kZeroBubbleV || order == ScheduleKind::kDualPipeV;
  wants(recompute_by_stage, "enable-recompute-layers-per-pp-rank", !has_several,
        "stages of one chunk: with several, --recompute-num-layers and --recomputation-layer-num "
        "count layers of each chunk");
  ScheduleSettings settings{order};
  if (several) {
    settings = {.kind = interleaves ? order : ScheduleKind::kInterleaved,
                .chunks = static_cast<int>(of_a_stage),
                .group = static_cast<int>(group.value_or(0))};
  }
  const std::int64_t all = std::int64_t{stages} * chunks_of_each_stage(settings);
  if (has_several && all > layers) {
    throw Error(Fault::kUsage,
                "parallel: {} chunks of a model ({} on each of {} stages) need a layer each: got "
                "{} layers; change --num-layers, --pipeline-model-parallel-size, "
                "--pipeline-schedule or --num-virtual-stages-per-pipeline-rank",
                all, chunks_of_each_stage(settings), stages, layers);
  }
  return settings;
}

int PipelineOptions::split_stage(int stages, bool both) const {
  const char* const flag = "pipeline-model-parallel-split-rank";
  wants(split_rank.has_value(), flag, both,
        "a model of an encoder and a decoder (--model-family t5)");
  wants(split_rank.has_value(), flag, stages > 1, "--pipeline-model-parallel-size of 2 or more");
  if (!both || stages == 1) return 0;
  if (!split_rank) {
    refuse_flag(flag, fmt::format("is not given; wanted {}, the first of the {} stages that has "
                                  "the decoder (t5)",
                                  stages > 2 ? fmt::format("1 to {}", stages - 1) : "1", stages));
  }
  check_range(fmt::format("parallel: --{} (the first stage of the decoder)", flag), *split_rank, 1,
              stages - 1);
  const ScheduleKind order = kind();
  const bool several = layers_of_chunk || chunks || order == ScheduleKind::kZeroBubbleV ||
                       order == ScheduleKind::kDualPipeV;
  wants(several, flag, false,
        "stages of one chunk: --pipeline-schedule 1f1b or zb-h1, without virtual stages");
  wants(balance, flag, false,
        "layers of equal length, and --balance-layers counts those of one stack; leave it out, or "
        "use --manual-layers");
  return static_cast<int>(*split_rank);
}

std::vector<std::int64_t> PipelineOptions::layers_of_chunks(int count, std::int64_t layers) const {
  wants(manual_allocation, "use-manual-layer-allocation", !manual_layers.empty(),
        "--manual-layers N,N, the layers of each stage");
  wants(!manual_layers.empty(), "manual-layers", manual_allocation,
        "--use-manual-layer-allocation");
  std::vector<std::int64_t> numbers;
  std::int64_t sum = 0;
  for (std::size_t begin = 0; !manual_layers.empty() && begin != std::string::npos;) {
    const std::size_t comma = manual_layers.find(',', begin);
    const std::string word = manual_layers.substr(begin, comma - begin);
    const std::optional<std::int64_t> number = whole_number(word);
    numbers.push_back(number && *number >= 1 && *number <= layers ? *number : 0);
    sum += numbers.back();
    begin = comma == std::string::npos ? comma : comma + 1;
  }
  if (numbers.empty()) return {};
  const bool positive = std::accumulate(numbers.begin(), numbers.end(), true,
                                        [](bool all, std::int64_t n) { return all && n > 0; });
  if (!positive || static_cast<int>(numbers.size()) != count || sum != layers) {
    refuse_flag(
        "manual-layers",
        fmt::format(
            "got \"{}\", wanted {} positive numbers with commas between them, one for "
            "each stage (or chunk of the model), whose sum is {}, {}",
            manual_layers, count,
            split_rank ? "--encoder-num-layers and --decoder-num-layers together" : "--num-layers",
            layers));
  }
  return numbers;
}

std::vector<std::int64_t> PipelineOptions::listed_sizes() const {
  if (micro_batches.size() == 1) {
    if (const SizesPreset* preset = find_preset(&SizesPreset::name, micro_batches[0]))
      return preset->sizes;
  }
  std::vector<std::int64_t> sizes;
  const std::string all = fmt::to_string(fmt::join(micro_batches, ","));  // 1,2 3: as other lists
  for (std::size_t begin = 0; !micro_batches.empty() && begin <= all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    const std::string word = all.substr(begin, end - begin);
    begin = end + 1;
    const std::optional<std::int64_t> size = whole_number(word);
    if (!size || *size < 1 || *size > kMostSamples) {
      refuse_flag("manual-mbs",
                  fmt::format("got \"{}\", wanted the samples of each micro-batch, 1 or "
                              "more, or example-config-1 or example-config-2",
                              word));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<std::int64_t> PipelineOptions::micro_batch_sizes(int stages, std::int64_t micro_batch,
                                                             std::int64_t samples) const {
  const char* const optimizing = optimizing_flag();
  wants(optimizing != nullptr, optimizing, !micro_batches.empty(),
        "--manual-mbs, the samples of each micro-batch");
  wants(!micro_batches.empty(), "manual-mbs", optimizing != nullptr,
        "--pipeline-schedule opp or --optimized-pipeline");
  if (optimizing == nullptr) return {};
  const std::vector<std::int64_t> sizes = listed_sizes();
  const SizesPreset* preset =
      micro_batches.size() == 1 ? find_preset(&SizesPreset::name, micro_batches[0]) : nullptr;
  if (preset != nullptr && preset->stages != stages) {
    refuse_flag("manual-mbs",
                fmt::format("{} is for {} stages: --pipeline-model-parallel-size is {}",
                            preset->name, preset->stages, stages));
  }
  const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(sizes.size()) != samples / micro_batch || sum != samples) {
    refuse_flag(
        "manual-mbs",
        fmt::format("got {} micro-batches of {} samples together, wanted {} of {}: a data rank "
                    "takes {} samples a step (--global-batch-size), {} at a time on average "
                    "(--micro-batch-size)",
                    sizes.size(), sum, samples / micro_batch, samples, samples, micro_batch));
  }
  return sizes;
}

std::vector<std::int64_t> balanced_layers(std::int64_t layers,
                                          const std::vector<int>& stage_of_chunk, double head) {
  const auto stages = static_cast<std::size_t>(std::ranges::max(stage_of_chunk)) + 1;
  std::vector<std::int64_t> counts(stage_of_chunk.size(), 1);
  std::vector<double> work(stages, 0);
  for (const int stage : stage_of_chunk) work[static_cast<std::size_t>(stage)] += 1;
  work[static_cast<std::size_t>(stage_of_chunk.back())] += head;
  for (auto left = layers - std::ssize(counts); left > 0; --left) {
    const auto stage = std::ranges::min_element(work) - work.begin();
    work[static_cast<std::size_t>(stage)] += 1;
    std::size_t smallest = counts.size();
    for (std::size_t chunk = 0; chunk < counts.size(); ++chunk) {
      if (stage_of_chunk[chunk] != stage) continue;
      if (smallest == counts.size() || counts[chunk] < counts[smallest]) smallest = chunk;
    }
    ++counts[smallest];
  }
  return counts;
}

}  // namespace piton
