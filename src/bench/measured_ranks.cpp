#include "bench/measured_ranks.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/seconds.h"
#include "session/run_sections.h"

namespace piton {

std::vector<MeasuredRank> gather_ranks(const MeasuredRank& mine, Communicator& everyone) {
  nlohmann::json out{{"planned", mine.planned_bytes},
                     {"peak", mine.peak_bytes},
                     {"planned_reserved", mine.planned_reserved_bytes},
                     {"resident", mine.resident_bytes},
                     {"planned_sent", mine.planned_sent_bytes},
                     {"sent", mine.sent_bytes},
                     {"passes", nlohmann::json::array()}};
  for (const PassSeconds& step : mine.passes) out["passes"].push_back({step.whole, step.busy});
  std::vector<MeasuredRank> all;
  for (const std::string& text : everyone.gather_bytes(out.dump())) {
    const auto json = read_json<nlohmann::json>(text);
    MeasuredRank one{.planned_bytes = json.at("planned"),
                     .peak_bytes = json.at("peak"),
                     .planned_reserved_bytes = json.at("planned_reserved"),
                     .resident_bytes = json.at("resident"),
                     .planned_sent_bytes = json.at("planned_sent"),
                     .sent_bytes = json.at("sent"),
                     .passes = {}};
    for (const auto& step : json.at("passes")) one.passes.push_back({step.at(0), step.at(1)});
    all.push_back(std::move(one));
  }
  return all;
}

double measured_bubble(const std::vector<MeasuredRank>& ranks, std::size_t round) {
  double whole = 0, busy = 0;
  for (const MeasuredRank& rank : ranks) {
    PITON_ASSERT(round < rank.passes.size(), "round {} of {}", round, rank.passes.size());
    whole = std::max(whole, rank.passes[round].whole);
    busy = std::max(busy, rank.passes[round].busy);
  }
  PITON_ASSERT(busy > 0);
  return whole / busy - 1;
}

void PassTimes::begin_section(std::string_view name, std::int64_t) {
  if (name == kForwardBackwardSection) {
    timed_.clear();
    begin_ = std::chrono::steady_clock::now();
  } else if (name == kGradientSumsSection) {
    steps_.push_back({.whole = seconds_since(begin_), .busy = timed_.seconds()});
  }
}

void PassTimes::end_section(std::string_view) {}

}  // namespace piton
