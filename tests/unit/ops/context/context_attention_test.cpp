// Attention of rows on several ranks against the ordinary op with all of them, forward and
// backward, in fp64, under every mask: each way of exchange, two to six ranks.
#include "ops/context/context_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/sequence_stretches.h"
#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"
#include "support/thread_world.h"

namespace piton {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 12, kGroups = 6, kHeadSize = 3;

// How many ranks exchange what.
struct Form {
  std::string name;
  int heads = 1;
  int keys = 1;
  bool gathers = false;

  int ranks() const { return heads * keys; }
};

std::vector<Form> forms() {
  return {{"ring of 2", 1, 2},
          {"ring of 3", 1, 3},
          {"heads of 2", 2, 1},
          {"heads of 3", 3, 1},
          {"gathers of 2", 1, 2, true},
          {"gathers of 3", 1, 3, true},
          {"heads of 2, ring of 2", 2, 2},
          {"heads of 3, ring of 2", 3, 2},
          {"heads of 2, ring of 3", 2, 3}};
}

// The groups of a rank.
struct Groups {
  Groups(World& world, const Form& form, int slices = 1)
      : heads(group_of(world, world.rank() / form.heads * form.heads, 1, form.heads)),
        keys(group_of(world, world.rank() % form.heads, form.heads, form.keys)),
        all(make_group_of_all(world, "context")),
        context{.group = all.get(),
                .heads = form.heads > 1 ? heads.get() : nullptr,
                .keys = form.keys > 1 ? keys.get() : nullptr,
                .gathers = form.gathers,
                .slices = slices} {}

  std::unique_ptr<Communicator> heads, keys, all;
  ContextGroup context;

 private:
  static std::unique_ptr<Communicator> group_of(World& world, int first, int stride, int count) {
    std::vector<int> ranks;
    for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
    return world.make_group(ranks, "part");
  }
};

struct Case {
  std::string name;
  AttentionSettings settings = {};
  bool slopes = false;
  bool documents = false;
};

// The same on every rank: drawn from a seed.
struct Inputs {
  explicit Inputs(std::int64_t rows) : sequence(rows) {
    test::TensorSource source(77);
    const Shape queries{kBatch, rows, kHeads, kHeadSize};
    const Shape keys{kBatch, rows, kGroups, kHeadSize};
    q = source.normal(DType::kF64, queries);
    k = source.normal(DType::kF64, keys);
    v = source.normal(DType::kF64, keys);
    dout = source.normal(DType::kF64, queries);
    consumed = host_tensor(DType::kI64, {1});
    *consumed.data<std::int64_t>() = 40;
    slopes = host_tensor(DType::kF32, {kHeads});
    for (std::int64_t head = 0; head < kHeads; ++head)
      slopes.data<float>()[head] = 0.05F * static_cast<float>(head + 1);
    // Documents that end within stretches.
    for (std::int64_t i = 0; i < kBatch * rows; ++i)
      segments.push_back(static_cast<std::int32_t>((i % rows) / 5));
  }

  std::int64_t sequence;
  Tensor q, k, v, dout, consumed, slopes;
  std::vector<std::int32_t> segments;
};

Tensor numbers(const Shape& shape, const std::vector<std::int32_t>& values) {
  const Tensor tensor = host_tensor(DType::kI32, shape);
  std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
  return tensor;
}

struct Result {
  std::vector<double> out, dq, dk, dv;
  bool operator==(const Result&) const = default;
};

// Values of the rows of a rank, as they are in the whole.
template <typename Number>
std::vector<Number> part(const std::vector<Number>& whole, const Inputs& of,
                         const SequenceStretches& stretches) {
  const auto width = std::ssize(whole) / (kBatch * of.sequence);
  const std::int64_t n = stretches.rows(of.sequence);
  std::vector<Number> rows;
  for (std::int64_t sample = 0; sample < kBatch; ++sample) {
    for (const int stretch : {stretches.first(), stretches.second()}) {
      const auto begin = whole.begin() + (sample * of.sequence + stretch * n) * width;
      rows.insert(rows.end(), begin, begin + n * width);
    }
  }
  return rows;
}

Tensor tensor_part(const Tensor& whole, const Inputs& of, const SequenceStretches& stretches) {
  const std::vector<double> values = part(test::values(whole), of, stretches);
  const Tensor rows = host_tensor(
      DType::kF64, {kBatch, 2 * stretches.rows(of.sequence), whole.dim(2), whole.dim(3)});
  std::copy(values.begin(), values.end(), rows.data<double>());
  return rows;
}

class Rank {
 public:
  Rank(const Inputs& inputs, const Case& one) : inputs_(inputs), case_(one) {}

  Result whole() {
    const AttentionPlaces places = segments_places();
    return run(inputs_.q, inputs_.k, inputs_.v, inputs_.dout,
               [&](Context& context, const AttentionRows& rows) {
                 return attend(context, rows, places, settings());
               });
  }

  Result over(const ContextGroup& group) {
    const SequenceStretches mine{group.rank(), group.size()};
    const auto own = [&](const Tensor& tensor) { return tensor_part(tensor, inputs_, mine); };
    ContextPlaces places{.rows = segments_places()};
    if (group.keys != nullptr && group.gathers) {
      places.rows.query_positions = numbers_part(positions(), mine);
      if (case_.documents) places.rows.query_segments = numbers_part(inputs_.segments, mine);
    } else if (group.keys != nullptr) {
      places.stretches = stretch_places({group.keys->rank(), group.keys->size()});
    }
    return run(own(inputs_.q), own(inputs_.k), own(inputs_.v), own(inputs_.dout),
               [&](Context& context, const AttentionRows& rows) {
                 return attend_over_ranks(context, rows, places, settings(), group);
               });
  }

 private:
  AttentionSettings settings() const {
    AttentionSettings settings = case_.settings;
    settings.scale = 0.6;
    settings.head_begin = 3;
    settings.dropout.key = site_key(5, "attention");
    settings.dropout.rows = {.consumed_samples = inputs_.consumed, .sample_index = 2};
    if (case_.slopes) settings.slopes = inputs_.slopes;
    return settings;
  }

  AttentionPlaces segments_places() const {
    if (!case_.documents) return {};
    const Tensor all = numbers({kBatch, inputs_.sequence}, inputs_.segments);
    return {.query_segments = all, .key_segments = all};
  }

  // Of each row, its place in its sample.
  std::vector<std::int32_t> positions() const {
    std::vector<std::int32_t> all;
    for (std::int64_t i = 0; i < kBatch * inputs_.sequence; ++i)
      all.push_back(static_cast<std::int32_t>(i % inputs_.sequence));
    return all;
  }

  Tensor numbers_part(const std::vector<std::int32_t>& whole, const SequenceStretches& of) const {
    return numbers({kBatch, 2 * of.rows(inputs_.sequence)}, part(whole, inputs_, of));
  }

  StretchPlaces stretch_places(const SequenceStretches& of) const {
    const std::int64_t n = of.rows(inputs_.sequence);
    std::vector<std::int32_t> positions, segments;
    for (std::int64_t i = 0; i < of.count() * kBatch * n; ++i) {
      const std::int64_t position = i / (kBatch * n) * n + i % n;
      const std::int64_t sample = i / n % kBatch;
      positions.push_back(static_cast<std::int32_t>(position));
      segments.push_back(
          inputs_.segments[static_cast<std::size_t>(sample * inputs_.sequence + position)]);
    }
    const Shape shape{of.count(), kBatch, n};
    return {.positions = numbers(shape, positions),
            .segments = case_.documents ? numbers(shape, segments) : Tensor()};
  }

  template <typename Attend>
  Result run(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dout,
             const Attend& attend) {
    Tape tape;
    Context context{.kernels = *kernels_,
                    .stream = *stream_,
                    .device = device_,
                    .arena = arena_,
                    .weights = weights_,
                    .tape = &tape,
                    .training = true};
    const Value leaves[] = {tape.leaf(q), tape.leaf(k), tape.leaf(v)};
    const Value out = attend(context, AttentionRows{leaves[0], leaves[1], leaves[2]});
    tape.seed(out, dout.reshape(out.tensor.shape()));
    tape.backward(context, Tape::Mode::kWhole);
    const auto gradient = [&](int leaf) {
      return test::values(tape.take_gradient(leaves[leaf], context));
    };
    return {test::values(out.tensor), gradient(0), gradient(1), gradient(2)};
  }

  const Inputs& inputs_;
  const Case& case_;
  HostDevice device_;
  Arena arena_{device_};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  ResidentWeights weights_{*kernels_, arena_};
};

double largest_difference(const std::vector<double>& got, const std::vector<double>& wanted) {
  if (got.size() != wanted.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - wanted[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

std::vector<Case> cases() {
  return {
      {.name = "causal"},
      {.name = "full", .settings = {.causal = false}},
      {.name = "window", .settings = {.window_before = 3}},
      {.name = "window behind each query", .settings = {.window_before = 7, .window_after = -2}},
      {.name = "two-sided window",
       .settings = {.causal = false, .window_before = 6, .window_after = 9}},
      {.name = "slopes", .slopes = true},
      {.name = "dropout", .settings = {.dropout = {.probability = 0.3}}},
      {.name = "dropout, computed again",
       .settings = {.dropout = {.probability = 0.3}, .recompute = true}},
      {.name = "documents", .documents = true},
      {.name = "documents, slopes, soft cap",
       .settings = {.soft_cap = 2},
       .slopes = true,
       .documents = true}};
}

TEST(ContextAttention, IsThatOfOneRankWithAllRows) {
  for (const Form& form : forms()) {
    const Inputs inputs(2 * form.ranks() * 4);
    for (const Case& one : cases()) {
      const Result whole = Rank(inputs, one).whole();
      test::run_ranks(form.ranks(), [&](World& world) {
        const Groups groups(world, form);
        Rank rank(inputs, one);
        const Result own = rank.over(groups.context);
        groups.all->barrier();  // the next rank may not have received yet what this one has sent
        const SequenceStretches mine{groups.context.rank(), groups.context.size()};
        const auto difference = [&](const std::vector<double>& got,
                                    const std::vector<double>& all) {
          return largest_difference(got, part(all, inputs, mine));
        };
        const std::string what = fmt::format("{}, {}", one.name, form.name);
        EXPECT_LT(difference(own.out, whole.out), 1e-12) << what;
        EXPECT_LT(difference(own.dq, whole.dq), 1e-12) << what;
        EXPECT_LT(difference(own.dk, whole.dk), 1e-12) << what;
        EXPECT_LT(difference(own.dv, whole.dv), 1e-12) << what;
      });
    }
  }
}

// Six groups: of two and three ranks that exchange heads, each has three and two.
TEST(ContextAttention, HasTheSameBitsInSlicesOfTheHeads) {
  for (const Form& form : forms()) {
    if (form.heads == 1 && !form.gathers) continue;
    const Inputs inputs(2 * form.ranks() * 4);
    for (const Case& one : cases()) {
      test::run_ranks(form.ranks(), [&](World& world) {
        const auto sliced = [&](int slices) {
          const Groups groups(world, form, slices);
          Rank rank(inputs, one);
          Result result = rank.over(groups.context);
          groups.all->barrier();
          return result;
        };
        const Result whole = sliced(1);
        for (const int slices : {2, 4, 8})
          EXPECT_TRUE(sliced(slices) == whole)
              << fmt::format("{}, {}, {} slices", one.name, form.name, slices);
      });
    }
  }
}

// So they have the work of one rank of a ring of fewer ranks.
TEST(ContextAttention, GivesRunsOfNeighborsTheStretchesOfOneRank) {
  for (const int run : {2, 3}) {
    for (int number = 0; number < 4; ++number) {
      const SequenceStretches of_run{number, 4};
      std::set<int> wanted, got;
      for (int i = 0; i < run; ++i) {
        wanted.insert(of_run.first() * run + i);
        wanted.insert(of_run.second() * run + i);
        const SequenceStretches own{number * run + i, 4 * run};
        got.insert({own.first(), own.second()});
      }
      EXPECT_EQ(got, wanted);
    }
  }
}

// Every rank of a causal ring has 2 c + 1 pairs of stretches, so none waits for another one.
TEST(ContextAttention, GivesEveryRankTheSameWork) {
  for (const int ranks : {2, 3, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const SequenceStretches own{rank, ranks};
      int pairs = 0;
      for (const int query : {own.first(), own.second()}) {
        for (int key = 0; key < own.count(); ++key) pairs += key <= query ? 1 : 0;
      }
      EXPECT_EQ(pairs, 2 * ranks + 1);
    }
  }
}

}  // namespace
}  // namespace piton
