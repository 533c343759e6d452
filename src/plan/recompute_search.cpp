#include "plan/recompute_search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/amounts.h"
#include "base/error.h"
#include "model/layout.h"

namespace piton {
namespace {

// Steps of a plan beyond two rounds of the pipeline change neither its peak nor the mix of calls,
// unless it keeps all micro-batches at a time, or they are unequal.
int probed_micro_batches(const RunPlan& plan) {
  const ScheduleSettings& schedule = plan.session.schedule;
  const bool all = schedule.kind == ScheduleKind::kAllInAllOut || !plan.micro_batch_sizes.empty();
  const int round = std::max(plan.mesh[Axis::kPipeline], schedule.group);
  return all ? plan.micro_batches : std::min(plan.micro_batches, 2 * round);
}

// Parts of layers worth trying, alone or with whole layers.
std::vector<RecomputedParts> useful_parts(bool gated) {
  if (!gated) {
    return {{.norms = true},
            {.attention = true},
            {.attention = true, .norms = true},
            {.norms = true, .mlp = true},
            {.attention = true, .norms = true, .mlp = true}};
  }
  return {{.norms = true},
          {.activation = true},
          {.norms = true, .activation = true},
          {.attention = true},
          {.attention = true, .norms = true, .activation = true},
          {.norms = true, .mlp = true},
          {.attention = true, .norms = true, .mlp = true}};
}

struct Candidate {
  RecomputeRules rules;
  std::int64_t peak_bytes = 0;  // of the rank that needs most
  double seconds = 0;           // more than without, of the stage that loses most
};

class Search {
 public:
  Search(const RunPlan& plan, std::int64_t limit, const ProbeRank& probe, const TimeCall& seconds)
      : plan_(plan), limit_(limit), probe_(probe), seconds_(seconds) {
    plan_.micro_batches = plan_.session.micro_batches = probed_micro_batches(plan);
    for (int stage = 0; stage < stages(); ++stage) plain_.push_back(probed({}, stage));
    consider({});
  }

  int stages() const { return plan_.mesh[Axis::kPipeline]; }
  const std::optional<Candidate>& best() const { return best_; }
  const Candidate& smallest() const { return *smallest_; }
  const Candidate& without() const { return without_; }

  // Adds a candidate: the same rules on every stage, or layers by stage.
  void consider(const RecomputeRules& rules) {
    Candidate candidate{.rules = rules};
    for (int stage = 0; stage < stages(); ++stage) {
      const RecomputeProbe probe = probed(rules, stage);
      candidate.peak_bytes = std::max(candidate.peak_bytes, probe.peak_bytes);
      candidate.seconds = std::max(candidate.seconds, more_seconds(probe, stage));
    }
    if (rules.granularity == RecomputeGranularity::kNone) without_ = candidate;
    if (!smallest_ || candidate.peak_bytes < smallest_->peak_bytes) smallest_ = candidate;
    if (candidate.peak_bytes > limit_) return;
    if (!best_ || candidate.seconds < best_->seconds) best_ = candidate;
  }

  // The fewest whole layers on each stage with which it fits, and `parts` of the others; all of
  // them where it does not.
  void consider_layers(const RecomputedParts& parts) {
    const std::vector<std::int64_t> layers_of_stages = plan_.layers_of_stages();
    RecomputeRules rules{.granularity = RecomputeGranularity::kFull, .block = true, .parts = parts};
    for (int stage = 0; stage < stages(); ++stage) {
      const auto fits = [&](std::int64_t layers) {
        RecomputeRules one = rules;
        one.layers_of_stage.assign(static_cast<std::size_t>(stages()), layers);
        return probed(one, stage).peak_bytes <= limit_;
      };
      std::int64_t least = 0;
      std::int64_t most = layers_of_stages[static_cast<std::size_t>(stage)];
      while (least < most) {
        const std::int64_t middle = (least + most) / 2;
        if (fits(middle)) {
          most = middle;
        } else {
          least = middle + 1;
        }
      }
      counts_.push_back(most);
    }
    rules.layers_of_stage = std::exchange(counts_, {});
    consider(rules);
  }

 private:
  RecomputeProbe probed(const RecomputeRules& rules, int stage) const {
    RunPlan plan = plan_;
    plan.session.layout.recompute = rules;
    return probe_(plan, plan.mesh.ranks() / stages() * stage);
  }

  double more_seconds(const RecomputeProbe& probe, int stage) {
    double sum = 0;
    const auto add = [&](const std::string& what, const PlannedCall& call, std::int64_t more) {
      if (more == 0) return;
      auto known = times_.find(what);
      if (known == times_.end()) known = times_.emplace(what, seconds_(call.call)).first;
      sum += static_cast<double>(more) * known->second;
    };
    const PlannedCalls& plain = plain_[static_cast<std::size_t>(stage)].calls;
    for (const auto& [what, call] : probe.calls) {
      const auto before = plain.find(what);
      add(what, call, call.count - (before == plain.end() ? 0 : before->second.count));
    }
    for (const auto& [what, call] : plain) {
      if (!probe.calls.contains(what)) add(what, call, -call.count);
    }
    const double share = static_cast<double>(plan_.micro_batches);
    return sum / 2 / share;  // two steps
  }

  RunPlan plan_;
  std::int64_t limit_;
  const ProbeRank& probe_;
  const TimeCall& seconds_;
  std::vector<RecomputeProbe> plain_;  // by stage
  std::map<std::string, double> times_;
  std::vector<std::int64_t> counts_;
  Candidate without_;
  std::optional<Candidate> smallest_;
  std::optional<Candidate> best_;
};

}  // namespace

RecomputeChoice choose_recompute(const RunPlan& plan, std::int64_t limit_bytes,
                                 const ProbeRank& probe, const TimeCall& seconds) {
  Search search(plan, limit_bytes, probe, seconds);
  const auto result = [&](const Candidate& one) {
    const double share = static_cast<double>(plan.micro_batches);
    return RecomputeChoice{
        one.rules,
        fmt::format("recompute auto: {}: a rank needs {:.1f} MiB of {:.1f} (without {:.1f}); "
                    "measured calls add {:.1f} ms to a step",
                    flags_of(one.rules), mebibytes(one.peak_bytes), mebibytes(limit_bytes),
                    mebibytes(search.without().peak_bytes), 1e3 * one.seconds * share)};
  };
  if (search.best()) return result(*search.best());  // nothing is cheaper than nothing
  const std::vector<RecomputedParts> parts = useful_parts(plan.session.model.gated);
  for (const RecomputedParts& one : parts) {
    search.consider({.granularity = RecomputeGranularity::kSelective, .parts = one});
  }
  search.consider_layers({});
  for (const RecomputedParts& one : parts) {
    if (one.norms && one != parts.front()) search.consider_layers(one);
  }
  if (search.best()) return result(*search.best());
  // Groups keep fewer inputs, at the price of more at a time in backward.
  const std::int64_t most = plan.layer_division().most();
  for (std::int64_t group = 2; group <= std::min<std::int64_t>(most, 16); group *= 2) {
    search.consider({.granularity = RecomputeGranularity::kFull, .layers = group});
  }
  if (search.best()) return result(*search.best());
  throw Error(Fault::kMemory,
              "--memory-limit: got {:.1f} MiB, wanted at least {:.1f}, which {} needs; give that "
              "much, smaller micro-batches, more ranks, or --remote-device and "
              "--offload-activations",
              mebibytes(limit_bytes), mebibytes(search.smallest().peak_bytes),
              flags_of(search.smallest().rules));
}

}  // namespace piton
