#include "cli/compatibility/stage_layers.h"

#include <fmt/ranges.h>

#include <charconv>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "cli/compatibility/pipeline_layout.h"
#include "model/layout.h"

namespace piton::cli {
namespace {

constexpr const char* kNoops = "noop-layers";
constexpr const char* kFirst = "decoder-first-pipeline-num-layers";
constexpr const char* kLast = "decoder-last-pipeline-num-layers";
constexpr const char* kEmbedding = "account-for-embedding-in-pipeline-split";
constexpr const char* kLoss = "account-for-loss-in-pipeline-split";
constexpr const char* kLayout = "pipeline-model-parallel-layout";

template <typename... Args>
[[noreturn]] void refuse(std::string_view flag, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(Fault::kUsage, "--{}: {}", flag, fmt::format(text, std::forward<Args>(args)...));
}

std::int64_t whole_number(std::string_view flag, std::string_view text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    refuse(flag, "got \"{}\", wanted whole numbers from {} to {}", text, least, most);
  }
  return number;
}

// Layers of each stage if the first or the last one has another number.
std::vector<std::int64_t> by_ends(const StageLayers& wanted) {
  const char* const flag = wanted.first > 0 ? kFirst : kLast;
  const int others = wanted.stages - (wanted.first > 0 ? 1 : 0) - (wanted.last > 0 ? 1 : 0);
  const std::int64_t rest = wanted.layers - wanted.first - wanted.last;
  if (rest < 0 || (others == 0 ? rest != 0 : rest % others != 0)) {
    refuse(flag, "{} layers are left for {} other stages, wanted a multiple; change --num-layers",
           rest, others);
  }
  std::vector<std::int64_t> stages(static_cast<std::size_t>(wanted.stages),
                                   others == 0 ? 0 : rest / others);
  if (wanted.first > 0) stages.front() = wanted.first;
  if (wanted.last > 0) stages.back() = wanted.last;
  return stages;
}

// Layers of each chunk, with those that do nothing.
std::vector<std::int64_t> places_of_chunks(const StageLayers& wanted) {
  const int chunks = wanted.stages * wanted.chunks_of_stage;
  const bool ends = wanted.first > 0 || wanted.last > 0;
  const bool counts = wanted.counts_embedding || wanted.counts_loss;
  const char* const flag = wanted.first > 0          ? kFirst
                           : wanted.last > 0         ? kLast
                           : wanted.counts_embedding ? kEmbedding
                                                     : kLoss;
  if (!wanted.given.empty()) {
    if (ends || counts) refuse(flag, "--manual-layers defines the same; give one of them");
    return wanted.given;
  }
  if (ends || counts) {
    if (wanted.stages == 1) refuse(flag, "needs --pipeline-model-parallel-size of 2 or more");
    if (ends && counts) {
      refuse(flag, "numbers of layers are given; leave out --{}",
             wanted.counts_embedding ? kEmbedding : kLoss);
    }
  }
  if (ends) {
    std::vector<std::int64_t> places;
    const std::vector<std::int64_t> stages = by_ends(wanted);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t of_stage = stages[static_cast<std::size_t>(chunk % wanted.stages)];
      if (of_stage % wanted.chunks_of_stage != 0) {
        refuse(flag, "{} layers of a stage cannot be divided into {} chunks", of_stage,
               wanted.chunks_of_stage);
      }
      places.push_back(of_stage / wanted.chunks_of_stage);
    }
    return places;
  }
  if (counts) {
    const std::int64_t slots =
        wanted.layers + (wanted.counts_embedding ? 1 : 0) + (wanted.counts_loss ? 1 : 0);
    if (slots % chunks != 0) {
      refuse(flag,
             "{} layers, with the ends that count as layers, cannot be divided into {} chunks; "
             "change --num-layers",
             slots, chunks);
    }
    std::vector<std::int64_t> places(static_cast<std::size_t>(chunks), slots / chunks);
    if (wanted.counts_embedding) --places.front();
    if (wanted.counts_loss) --places.back();
    return places;
  }
  return LayerDivision{wanted.layers, chunks}.counts();
}

void set_manual_layers(OptionSet& set, const std::vector<std::int64_t>& counts,
                       const std::string& origin) {
  set.parse({"--use-manual-layer-allocation=true",
             fmt::format("--manual-layers={}", fmt::join(counts, ","))},
            origin);
}

// --pipeline-model-parallel-layout, which says all of it.
void read_layout(const std::string& layout, OptionSet& set, const ParallelOptions& parallel,
                 const ModelOptions& model) {
  const PipelineOptions& pipeline = parallel.schedule;
  if (pipeline.layers_of_chunk || pipeline.chunks || pipeline.manual_allocation ||
      pipeline.balance) {
    refuse(kLayout, "has the chunks of the stages and their layers; leave out --{}",
           pipeline.layers_of_chunk ? "num-layers-per-virtual-pipeline-stage"
           : pipeline.chunks        ? "num-virtual-stages-per-pipeline-rank"
           : pipeline.balance       ? "balance-layers"
                                    : "use-manual-layer-allocation");
  }
  const std::vector<std::int64_t> counts = layers_of_layout(layout);
  const auto chunks = std::ssize(counts);
  const int stages = std::max(1, parallel.pipeline);
  if (chunks % stages != 0 || (stages == 1 && chunks > 1)) {
    refuse(kLayout, "got \"{}\": {} chunks, wanted a multiple of --pipeline-model-parallel-size {}",
           layout, chunks, stages);
  }
  const std::int64_t layers = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (model.layers && *model.layers != layers) {
    refuse(kLayout, "got \"{}\": {} layers, wanted --num-layers, {}", layout, layers,
           *model.layers);
  }
  if (stages == 1) return;
  const std::string origin = fmt::format("--{}", kLayout);
  set_manual_layers(set, counts, origin);
  if (chunks == stages) return;
  set.parse({fmt::format("--num-virtual-stages-per-pipeline-rank={}", chunks / stages)}, origin);
}

std::optional<std::int64_t> number_of(const MegatronFlags& given, const char* flag,
                                      std::int64_t most) {
  const std::optional<std::string> text = given.value_of(flag);
  if (!text) return {};
  return whole_number(flag, *text, 1, most);
}

}  // namespace

std::vector<std::int64_t> layers_of_chunks(const StageLayers& wanted) {
  std::vector<std::int64_t> counts = places_of_chunks(wanted);
  std::int64_t begin = 0;
  for (std::size_t chunk = 0; chunk < counts.size(); ++chunk) {
    const std::int64_t end = begin + counts[chunk];
    for (const std::int64_t noop : wanted.noops) {
      if (noop >= begin && noop < end) --counts[chunk];
    }
    begin = end;
    if (counts[chunk] > 0) continue;
    if (counts.size() == 1) refuse(kNoops, "the model would have no layer");
    refuse(wanted.noops.empty() ? kFirst : kNoops,
           "chunk {} of the {} on the stages would have no layer; every one needs one", chunk,
           counts.size());
  }
  return counts;
}

void read_stage_layers(const MegatronFlags& given, OptionSet& set, ParallelOptions& parallel,
                       const ModelOptions& model) {
  const char* asked = nullptr;
  for (const char* flag : {kNoops, kFirst, kLast, kEmbedding, kLoss}) {
    if (given.value_of(flag)) asked = flag;
  }
  if (const auto layout = given.value_of(kLayout)) {
    if (asked != nullptr) refuse(kLayout, "has the layers of every chunk; leave out --{}", asked);
    return read_layout(*layout, set, parallel, model);
  }
  if (asked == nullptr) return;
  if (!model.layers) refuse(asked, "needs --num-layers");
  StageLayers wanted{.layers = *model.layers, .stages = std::max(1, parallel.pipeline)};
  const ScheduleSettings schedule = parallel.schedule.settings(wanted.stages, wanted.layers);
  if (schedule.kind == ScheduleKind::kZeroBubbleV || schedule.kind == ScheduleKind::kDualPipeV) {
    refuse(asked, "stages of a V have two chunks that are not consecutive; give --manual-layers");
  }
  wanted.chunks_of_stage = chunks_of_each_stage(schedule);
  wanted.given =
      parallel.schedule.layers_of_chunks(wanted.stages * wanted.chunks_of_stage, wanted.layers);
  if (const auto text = given.value_of(kNoops)) {
    std::istringstream words(*text);
    for (std::string word; std::getline(words, word, ',');) {
      if (!wanted.noops.insert(whole_number(kNoops, word, 0, wanted.layers - 1)).second) {
        refuse(kNoops, "got \"{}\", which has {} twice", *text, word);
      }
    }
    if (wanted.noops.empty()) refuse(kNoops, "got \"\", wanted numbers with commas between them");
  }
  wanted.first = number_of(given, kFirst, wanted.layers).value_or(0);
  wanted.last = number_of(given, kLast, wanted.layers).value_or(0);
  wanted.counts_embedding = given.value_of(kEmbedding).has_value();
  wanted.counts_loss = given.value_of(kLoss).has_value();
  const std::vector<std::int64_t> counts = layers_of_chunks(wanted);
  const std::string origin = fmt::format("--{}", asked);
  const auto noops = static_cast<std::int64_t>(wanted.noops.size());
  if (noops > 0) set.parse({fmt::format("--num-layers={}", wanted.layers - noops)}, origin);
  if (counts.size() == 1) return;
  set_manual_layers(set, counts, origin);
  if (!parallel.schedule.layers_of_chunk) return;
  // Chunks may now have different numbers of layers.
  parallel.schedule.layers_of_chunk.reset();
  set.parse({fmt::format("--num-virtual-stages-per-pipeline-rank={}", wanted.chunks_of_stage)},
            origin);
}

}  // namespace piton::cli
