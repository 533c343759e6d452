// Random draws against their specification. Comparing layouts cannot detect a fault that all
// layouts share, such as one mask for all layers, dropout during evaluation, or output projections
// initialized without 1 / sqrt(2 layers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "session/session.h"
#include "support/tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kLayers = 3;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kSequence = 16;  // = the width of a head, so that values can tell keys apart
constexpr std::int64_t kSamples = 2;    // of a micro-batch
constexpr double kAttentionRate = 0.25;
constexpr double kHiddenRate = 0.1;

ModelConfig model_of(const std::string& family) {
  ModelConfig model = family_facts(family);
  model.layers = kLayers;
  model.hidden = kHeads * kSequence;
  model.heads = kHeads;
  model.head_size = kSequence;
  model.groups = family == "llama" ? 2 : kHeads;
  model.ffn_hidden = 192;
  model.vocabulary = 512;
  model.max_positions = kSequence;
  model.hidden_dropout = kHiddenRate;
  model.attention_dropout = kAttentionRate;
  return model;
}

using Mask = std::string;  // a byte an element: 1 where it was kept

// Asks each masked call of the model, with its own settings, for the mask that it draws: of ones,
// and of even probabilities whose values name their keys.
class MaskRecorder final : public Kernels {
 public:
  explicit MaskRecorder(Device& device) : inner_(make_reference_kernels()), device_(device) {}

  std::vector<Mask> attention;  // [b, a, sq, sk] of each call, in order; visible pairs alone
  std::vector<Mask> hidden;     // [n, h] of each call
  std::vector<double> scales;   // of kept elements, once a call

  std::string name() const override { return inner_->name(); }
  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override {
    return inner_->packed_bytes(form, out, in, dtype);
  }
  std::int64_t row_tile() const override { return inner_->row_tile(); }

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    if (const auto* one = std::get_if<DropoutAddForward>(&call)) record(*one, stream);
    if (const auto* one = std::get_if<AttentionForward>(&call)) record(*one, stream);
    inner_->run(call, stream);
  }

  void record(const DropoutAddForward& call, Stream& stream) {
    const Tensor ones = host_tensor(DType::kF32, call.x.shape());
    std::fill_n(ones.data<float>(), ones.elements(), 1.0F);
    const Tensor kept = host_tensor(DType::kF32, call.x.shape());
    inner_->run(DropoutAddForward{.y = kept, .x = ones, .dropout = call.dropout}, stream);
    Mask mask;
    double scale = 0;
    for (std::int64_t i = 0; i < kept.elements(); ++i) {
      mask += kept.data<float>()[i] != 0 ? '\1' : '\0';
      scale = std::max(scale, static_cast<double>(kept.data<float>()[i]));
    }
    hidden.push_back(mask);
    scales.push_back(scale);
  }

  void record(const AttentionForward& call, Stream& stream) {
    const auto zeros = [](const Shape& shape) {
      const Tensor tensor = host_tensor(DType::kF32, shape);
      std::memset(tensor.raw(), 0, static_cast<std::size_t>(tensor.bytes()));
      return tensor;
    };
    const std::int64_t samples = call.q.shape()[0], heads = call.q.shape()[2];
    const Tensor v = zeros(call.v.shape());
    const std::int64_t groups = call.v.shape()[2];
    for (std::int64_t row = 0; row < samples * kSequence; ++row) {
      for (std::int64_t g = 0; g < groups; ++g)
        v.data<float>()[(row * groups + g) * kSequence + row % kSequence] = 1;
    }
    AttentionForward probe = call;
    probe.q = zeros(call.q.shape());
    probe.k = zeros(call.k.shape());
    probe.v = v;
    probe.out = zeros(call.out.shape());
    probe.lse = zeros(call.lse.shape());
    inner_->run(probe, stream);
    Mask mask;
    for (std::int64_t b = 0; b < samples; ++b) {
      for (std::int64_t a = 0; a < heads; ++a) {
        for (std::int64_t i = 0; i < kSequence; ++i) {
          const float* row =
              probe.out.data<float>() + ((b * kSequence + i) * heads + a) * kSequence;
          for (std::int64_t j = 0; j <= i; ++j) mask += row[j] != 0 ? '\1' : '\0';
        }
      }
    }
    attention.push_back(mask);
  }

  std::unique_ptr<Kernels> inner_;
  [[maybe_unused]] Device& device_;
};

struct Trained {
  explicit Trained(const ModelConfig& model)
      : threads(1),
        kernels(device),
        arena(device, 1 << 20),
        stream(device.make_stream()),
        world(make_single_world(device)),
        machine{*world, device, kernels, arena, *stream, threads, log},
        mesh(*world, MeshSizes{}),
        session(machine, mesh, {.model = model, .micro_batches = 1, .seed = 7}) {
    session.initialize();
  }

  std::vector<MicroBatch> batch() const {
    MicroBatch batch{.samples = kSamples, .sequence = kSequence};
    for (std::int64_t i = 0; i < kSamples * kSequence; ++i) {
      batch.tokens.push_back(static_cast<std::int32_t>(i * 7 % 500));
      batch.labels.push_back(static_cast<std::int32_t>(i * 11 % 500));
      batch.loss_mask.push_back(1);
      batch.positions.push_back(static_cast<std::int32_t>(i % kSequence));
    }
    return {batch};
  }

  HostDevice device;
  SilentLog log;
  ThreadPool threads;
  MaskRecorder kernels;
  Arena arena;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<World> world;
  Machine machine;
  Mesh mesh;
  Session session;
};

// --embedding-init-method-std: of tables of tokens and positions, of no other weight.
TEST(InitialWeights, OfEmbeddingsMayHaveTheirOwnDeviation) {
  ModelConfig model = model_of("gpt2");
  model.tied = false;
  const Trained usual(model);
  model.embedding_deviation = 4 * model.init_deviation;
  const Trained wide(model);
  const std::vector<Parameter*> before = usual.session.parameters();
  const std::vector<Parameter*> after = wide.session.parameters();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string& name = before[i]->name;
    const bool embedding = name.starts_with("embedding.");
    std::vector<double> wanted = test::values(before[i]->value);
    if (embedding) {
      for (double& one : wanted) one *= 4;  // exact
    }
    EXPECT_EQ(test::values(after[i]->value), wanted) << name;
  }
}

double share_dropped(const Mask& mask) {
  return static_cast<double>(std::count(mask.begin(), mask.end(), '\0')) /
         static_cast<double>(mask.size());
}

// Two independent masks agree in (1 - p)^2 + p^2 of their elements; equal ones in all.
double share_equal(std::string_view a, std::string_view b) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

void expect_independent(const std::vector<std::string>& masks, double rate, const char* what) {
  const double agree = (1 - rate) * (1 - rate) + rate * rate;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double deviation =
          std::sqrt(agree * (1 - agree) / static_cast<double>(masks[i].size()));
      EXPECT_NEAR(share_equal(masks[i], masks[j]), agree, 5 * deviation)
          << what << " " << i << " and " << j;
    }
  }
}

void expect_rate(const Mask& mask, double rate) {
  EXPECT_NEAR(share_dropped(mask), rate,
              5 * std::sqrt(rate * (1 - rate) / static_cast<double>(mask.size())));
}

std::vector<std::string> parts_of(const Mask& mask, std::size_t count) {
  std::vector<std::string> parts;
  const std::size_t size = mask.size() / count;
  for (std::size_t i = 0; i < count; ++i) parts.push_back(mask.substr(i * size, size));
  return parts;
}

TEST(Masks, DifferBetweenLayersHeadsSamplesAndStepsAndMatchTheirRate) {
  Trained run(model_of("gpt2"));
  run.session.train_step(run.batch(), 0, 0);
  run.session.train_step(run.batch(), kSamples, 0);
  const MaskRecorder& seen = run.kernels;
  ASSERT_EQ(seen.attention.size(), 2U * kLayers);
  ASSERT_EQ(seen.hidden.size(), 2U * (2 * kLayers + 1));  // two branches a layer, the embedding
  expect_independent(seen.attention, kAttentionRate, "attention of layers and steps");
  expect_independent(seen.hidden, kHiddenRate, "branches, layers and steps");
  for (const Mask& mask : seen.attention) {
    expect_rate(mask, kAttentionRate);
    expect_independent(parts_of(mask, kSamples * kHeads), kAttentionRate, "samples and heads");
  }
  for (const Mask& mask : seen.hidden) {
    expect_rate(mask, kHiddenRate);
    expect_independent(parts_of(mask, kSamples), kHiddenRate, "samples");
    // Rows of one sample, too.
    expect_independent(parts_of(mask, kSamples * kSequence), kHiddenRate, "positions");
  }
  for (const double scale : seen.scales) EXPECT_NEAR(scale, 1 / (1 - kHiddenRate), 1e-6);
}

TEST(Masks, OfTheSameStepAreDrawnAgainAlike) {
  Trained first(model_of("gpt2")), again(model_of("gpt2"));
  first.session.train_step(first.batch(), 4, 0);
  again.session.train_step(again.batch(), 4, 0);
  EXPECT_EQ(first.kernels.attention, again.kernels.attention);
  EXPECT_EQ(first.kernels.hidden, again.kernels.hidden);
}

TEST(Masks, AreNotDrawnInEvaluation) {
  Trained run(model_of("gpt2"));
  const Session::Evaluation first = run.session.evaluate(run.batch());
  ASSERT_EQ(run.kernels.attention.size(), static_cast<std::size_t>(kLayers));
  for (const Mask& mask : run.kernels.attention) EXPECT_EQ(share_dropped(mask), 0);
  for (const Mask& mask : run.kernels.hidden) EXPECT_EQ(share_dropped(mask), 0);
  // After a step without a rate, which draws its own masks, the loss is the same.
  run.session.train_step(run.batch(), 0, 0);
  EXPECT_EQ(run.session.evaluate(run.batch()).loss_sum, first.loss_sum);
}

// What a tensor starts with, by its canonical name; written down here, not taken from the model.
struct Start {
  double mean;
  double deviation;
};
Start start_of(const std::string& name) {
  if (name.ends_with(".bias")) return {0, 0};
  if (name.find("norm") != std::string::npos) return {1, 0};
  const bool ends_a_branch = name.find("attention.output") != std::string::npos ||
                             name.find("mlp.down") != std::string::npos;
  return {0, ends_a_branch ? 0.02 / std::sqrt(2.0 * kLayers) : 0.02};
}

TEST(InitialWeights, HaveTheDeviationOfTheirKind) {
  for (const std::string family : {"gpt2", "llama"}) {
    Trained run(model_of(family));
    std::set<std::string> seen;
    int branch_ends = 0;
    for (Parameter* parameter : run.session.parameters()) {
      const Tensor rows = run.session.sharded().whole_value(*parameter, *run.stream);
      for (const Piece& piece : parameter->pieces) {
        if (!seen.insert(piece.name).second) continue;
        const Tensor part = rows.slice(0, piece.local_row, piece.extent[0]);
        const auto count = static_cast<double>(part.elements());
        double sum = 0, squares = 0;
        for (std::int64_t i = 0; i < part.elements(); ++i) {
          const double value = part.data<float>()[i];
          sum += value;
          squares += value * value;
        }
        const Start start = start_of(piece.name);
        const double mean = sum / count;
        const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
        // Of n normals the mean deviates by s / sqrt(n), the deviation by s / sqrt(2 n).
        EXPECT_NEAR(mean, start.mean, 5 * start.deviation / std::sqrt(count)) << piece.name;
        EXPECT_NEAR(deviation, start.deviation, 5 * start.deviation / std::sqrt(2 * count) + 1e-7)
            << family << ": " << piece.name;
        branch_ends += start.deviation > 0 && start.deviation < 0.02;
      }
    }
    EXPECT_EQ(branch_ends, 2 * kLayers) << family;
  }
}

}  // namespace
}  // namespace piton
