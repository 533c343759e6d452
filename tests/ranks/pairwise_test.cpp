// ranks: 4 nightly 2 8
// Losses, norms of gradients and final weights are those of one process in every combination of two
// settings of a layout: tensor, context, pipeline and data ranks, sequence parallelism, ZeRO and
// instances, schedules with one and several chunks, recomputation, accumulation, slices and fused
// linears, and both exchanges of attention; with dropout, on GPT-2 and on a LLaMA of grouped
// queries. Every eighth layout, or all where PITON_NIGHTLY is set: two hundred runs.
//
// PITON_LAYOUTS_DONE names a file: a layout that it lists is not run again, one that passes is
// added (tools/nightly.sh layouts).
#include "pairwise.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>

#include "comm/gathered_values.h"
#include "ranks/setting.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::pairwise_test {

namespace {

using test::Combination;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 3;
constexpr double kTolerance = 1e-5;

enum Factor {
  kTensor,
  kPipeline,
  kContext,
  kSequenceParallel,
  kZero,
  kInstances,
  kSchedule,
  kRecompute,
  kMicro,
  kLinears,
  kExchange,
  kFactors
};

enum ScheduleValue { k1f1b, kZbH1, kInterleaved, kFold3d, kZbV, kDualPipeV };
enum RecomputeValue { kNone, kFull, kSelective, kDistributed };
enum LinearsValue { kWhole, kSlices, kFusedLinears };
enum ExchangeValue { kRing, kHeads, kGather };

const std::vector<int> kSizes{3, 3, 2, 2, 4, 2, 6, 4, 3, 3, 3};

int ranks_of(int value) { return 1 << value; }
std::int64_t samples_of(int value) { return std::int64_t{1} << value; }

// What the run would refuse (docs/parallelism.md, "Refused"), and what would be another one again.
bool is_allowed(const Combination& one, int ranks) {
  const int t = ranks_of(one[kTensor]);
  const int p = ranks_of(one[kPipeline]);
  const int c = ranks_of(one[kContext]);
  if (ranks % (t * p * c) != 0) return false;
  const int d = ranks / (t * p * c);
  if (t == 1 && (one[kSequenceParallel] != 0 || one[kLinears] != kWhole)) return false;
  if (c == 1 && one[kExchange] != kRing) return false;
  if (one[kInstances] != 0 && (one[kZero] == 0 || d * c % 2 != 0)) return false;
  if (one[kRecompute] == kDistributed && (t == 1 || one[kSequenceParallel] != 0)) return false;
  if (one[kExchange] == kHeads && 4 / t % c != 0) return false;  // groups of keys
  const std::int64_t micro = samples_of(one[kMicro]);
  if (micro * d > test::kSamples) return false;
  const int micro_batches = static_cast<int>(test::kSamples / micro / d);
  const int schedule = one[kSchedule];
  if (p == 1) return schedule == k1f1b;
  if (schedule == kInterleaved || schedule == kFold3d) return micro_batches % p == 0;
  return schedule != kDualPipeV || micro_batches >= 2 * p;
}

RunLayout layout_of(const Combination& one, int ranks) {
  const int t = ranks_of(one[kTensor]);
  const int p = ranks_of(one[kPipeline]);
  const int c = ranks_of(one[kContext]);
  const int d = ranks / (t * p * c);
  constexpr const char* kSchedules[] = {"1F1B",   "ZB-H1", "interleaved",
                                        "Fold3D", "ZB-V",  "DualPipe-V"};
  constexpr const char* kRecomputes[] = {"", ", layers again", ", attention again",
                                         ", divided inputs"};
  constexpr const char* kLinearNames[] = {"", ", 2 slices", ", fused"};
  constexpr const char* kExchangeNames[] = {"", ", all-to-all", ", gathered"};
  RunLayout layout;
  layout.name = fmt::format("TP {} x PP {} x CP {} x DP {}, ZeRO-{} x {}, {}, micro {}{}{}{}{}", t,
                            p, c, d, one[kZero], one[kInstances] + 1, kSchedules[one[kSchedule]],
                            samples_of(one[kMicro]), one[kSequenceParallel] != 0 ? ", SP" : "",
                            kRecomputes[one[kRecompute]], kLinearNames[one[kLinears]],
                            kExchangeNames[one[kExchange]]);
  layout.mesh = test::with_context(test::mesh(t, d, p), c);
  layout.sequence_parallel = one[kSequenceParallel] != 0;
  layout.zero = one[kZero];
  layout.instances = one[kInstances] + 1;
  constexpr ScheduleKind kKinds[] = {
      ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1, ScheduleKind::kInterleaved,
      ScheduleKind::kAllInAllOut,           ScheduleKind::kZeroBubbleV,  ScheduleKind::kDualPipeV};
  layout.schedule.kind = kKinds[one[kSchedule]];
  if (one[kSchedule] == kInterleaved || one[kSchedule] == kFold3d) layout.schedule.chunks = 2;
  layout.micro = samples_of(one[kMicro]);
  layout.slices = one[kLinears] == kSlices ? 2 : one[kLinears] == kFusedLinears ? kFused : 1;
  constexpr ContextExchange kExchanges[] = {ContextExchange::kRing, ContextExchange::kHeads,
                                            ContextExchange::kGather};
  layout.context = {{kExchanges[one[kExchange]]}};
  if (one[kRecompute] == kSelective) {
    layout.rules = {RecomputeGranularity::kSelective};
  } else if (one[kRecompute] != kNone) {
    layout.rules = {.granularity = RecomputeGranularity::kFull,
                    .distributed = one[kRecompute] == kDistributed};
  }
  return layout;
}

// Eight layers, so that four stages of two chunks have one each.
ModelConfig model_named(const std::string& name) {
  ModelConfig model = preset(name);
  model.layers = 8;
  model.heads = 8;
  model.head_size = 8;
  model.groups = name == "llama-tiny" ? 4 : 8;
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// A step of AdamW makes gradients that are 0 but for rounding as large as others; not with this.
OptimizerOptions optimizer_of_layouts() {
  OptimizerOptions optimizer;
  optimizer.eps = 1e-4;
  return optimizer;
}

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::string> weights;  // TrainingRun::pieces()
  std::map<std::string, Piece> cuts;           // by the same keys
};

Result run_steps(World& world, RunLayout layout, const ModelConfig& model) {
  layout.optimizer = optimizer_of_layouts();
  TrainingRun run(world, layout, model);
  Result result;
  for (Parameter* parameter : run.session().parameters()) {
    for (const Piece& piece : parameter->pieces) {
      result.cuts[piece.name + "@" + to_string(piece.start) + to_string(piece.extent)] = piece;
    }
  }
  for (int step = 0; step < kSteps; ++step) {
    const StepReport report = run.step();
    result.losses.push_back(report.loss);
    result.norms.push_back(report.grad_norm);
  }
  result.weights = run.pieces();
  return result;
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Of this rank's weights, as a share of their norm.
double difference_of_weights(const Result& one, const Result& whole) {
  double squares = 0;
  double difference = 0;
  for (const auto& [key, bytes] : one.weights) {
    const Piece& piece = one.cuts.at(key);
    Shape zero = piece.start;
    for (int dim = 0; dim < zero.ndim(); ++dim) zero[dim] = 0;
    const std::vector<float> all =
        floats_of(whole.weights.at(piece.name + "@" + to_string(zero) + to_string(piece.global)));
    const std::vector<float> own = floats_of(bytes);
    const bool matrix = piece.extent.ndim() > 1;
    const std::int64_t width = matrix ? piece.extent[1] : 1;
    const std::int64_t row = matrix ? piece.global[1] : 1;
    const std::int64_t first = matrix ? piece.start[1] : 0;
    for (std::int64_t i = 0; i < piece.extent[0]; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        const double x = all[static_cast<std::size_t>((piece.start[0] + i) * row + first + j)];
        const double y = own[static_cast<std::size_t>(i * width + j)];
        squares += x * x;
        difference += (x - y) * (x - y);
      }
    }
  }
  return std::sqrt(difference / squares);
}

class Done {
 public:
  Done() {
    const char* file = std::getenv("PITON_LAYOUTS_DONE");
    if (file == nullptr) return;
    file_ = file;
    std::ifstream stream(file_);
    for (std::string line; std::getline(stream, line);) names_.insert(line);
    ranks::everyone().barrier();  // all have read it
  }
  bool has(const std::string& name) const { return names_.contains(name); }
  void add(const std::string& name) const {
    if (file_.empty() || ranks::world().rank() != 0) return;
    std::ofstream(file_, std::ios::app) << name << "\n";
  }

 private:
  std::string file_;
  std::set<std::string> names_;
};

TEST(PairwiseCover, HasEachTwoSettings) {
  const int ranks = ranks::world().size();
  const auto all = test::all_combinations(
      kSizes, [&](const Combination& one) { return is_allowed(one, ranks); });
  const auto rows = test::pairwise_cover(all, kSizes);
  std::set<std::size_t> wanted;
  std::set<std::size_t> met;
  for (const Combination& one : all) {
    for (const std::size_t pair : test::pairs_of(one, kSizes)) wanted.insert(pair);
  }
  for (const Combination& one : rows) {
    EXPECT_TRUE(is_allowed(one, ranks));
    for (const std::size_t pair : test::pairs_of(one, kSizes)) met.insert(pair);
  }
  EXPECT_EQ(met, wanted);
  if (ranks::world().rank() != 0) return;
  std::printf("%zu of %zu combinations have all %zu pairs\n", rows.size(), all.size(),
              wanted.size());
}

class Pairwise : public testing::TestWithParam<const char*> {};

TEST_P(Pairwise, LayoutsGiveLossesNormsAndWeightsOfOneProcess) {
  const int ranks = ranks::world().size();
  const ModelConfig model = model_named(GetParam());
  Result alone;
  {
    HostDevice device;
    const auto world = make_single_world(device);
    alone = run_steps(*world, {.name = "one process"}, model);
  }
  const auto rows = test::pairwise_cover(
      test::all_combinations(kSizes,
                             [&](const Combination& one) { return is_allowed(one, ranks); }),
      kSizes);
  const bool whole = test::nightly();
  const Done done;
  int count = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RunLayout layout = layout_of(rows[i], ranks);
    const std::string name = fmt::format("{}: {}", GetParam(), layout.name);
    if ((!whole && i % 8 != static_cast<std::size_t>(model.groups / 4 - 1)) || done.has(name))
      continue;
    SCOPED_TRACE(name);
    ++count;
    const Result result = run_steps(ranks::world(), layout, model);
    bool right = true;
    const auto expect_near = [&](double got, double wanted, const char* what) {
      EXPECT_NEAR(got, wanted, kTolerance * wanted) << what;
      right &= std::abs(got - wanted) <= kTolerance * wanted;
    };
    for (int step = 0; step < kSteps; ++step) {
      expect_near(result.losses[step], alone.losses[step], "loss");
      expect_near(result.norms[step], alone.norms[step], "norm");
    }
    const double difference = difference_of_weights(result, alone);
    EXPECT_LE(difference, kTolerance) << "weights";
    right &= difference <= kTolerance;
    if (true_on_all(ranks::everyone(), right)) done.add(name);
  }
  if (ranks::world().rank() == 0) std::printf("%d layouts run\n", count);
}

INSTANTIATE_TEST_SUITE_P(Models, Pairwise, testing::Values("gpt2-tiny", "llama-tiny"));

}  // namespace
}  // namespace piton::ranks::pairwise_test
