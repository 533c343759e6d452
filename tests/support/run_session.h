// A small training run on a given mesh, for tests that compare layouts: weights, batches and masks
// are the same for every layout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random/philox.h"
#include "checkpoint/store.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "model/families.h"
#include "session/session.h"
#include "support/counting_kernels.h"
#include "support/instruction_sets.h"
#include "support/letter_v.h"
#include "support/tensors.h"

namespace piton::test {

inline constexpr std::int64_t kSamples = 8;  // per global batch
inline constexpr std::int64_t kSequence = 32;

// Tensor, data and pipeline ranks.
inline MeshSizes mesh(int t, int d, int p) {
  MeshSizes sizes;
  sizes[Axis::kTensor] = t;
  sizes[Axis::kData] = d;
  sizes[Axis::kPipeline] = p;
  return sizes;
}

inline MeshSizes with_context(MeshSizes sizes, int c) {
  sizes[Axis::kContext] = c;
  return sizes;
}

inline MeshSizes with_experts(MeshSizes sizes, int e) {
  sizes[Axis::kExpert] = e;
  return sizes;
}

struct RunLayout {
  std::string name;
  MeshSizes mesh;
  bool sequence_parallel = false;
  int slices = 1;  // or kFused
  bool recompute = false;
  int zero = 0;
  int instances = 1;  // of the shards
  ScheduleSettings schedule;
  std::optional<Schedule> own_schedule;
  RecomputeRules rules;  // instead of `recompute`
  OptimizerOptions optimizer;
  OffloadOptions offload;
  Adapters adapters;
  CodesOfParameter codes;
  Float8Rules float8;
  std::int64_t micro = 2;  // samples of a micro-batch; the others of a global batch are accumulated
  std::vector<std::int64_t> sizes;   // of the micro-batches of a rank, in place of `micro`
  std::vector<std::int64_t> layers;  // of the chunks of the model; empty: equal
  int split = 0;                     // the first stage of the decoder of T5
  ContextForms context;
  bool sends_rows = false;  // to the ranks of experts, in place of gathering all
  bool scatters = true;     // each tensor rank sends its part of a boundary
  std::int64_t vocabulary_multiple = 16;
  double embedding_noise = 0;

  std::vector<std::int64_t> sizes_of_rank() const {
    if (!sizes.empty()) return sizes;
    return std::vector<std::int64_t>(
        static_cast<std::size_t>(kSamples / micro / mesh.sample_ranks()), micro);
  }
};

// The largest difference of two gradients of a parameter, as a share of the norm of the second one;
// gradients that are 0 but for rounding (of a key's bias) are measured by the whole gradient's
// norm.
inline double largest_difference(const std::map<std::string, std::vector<double>>& got,
                                 const std::map<std::string, std::vector<double>>& wanted) {
  const auto norm = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double one : x) sum += one * one;
    return std::sqrt(sum);
  };
  double whole = 0;
  for (const auto& [name, one] : wanted) whole = std::hypot(whole, norm(one));
  double largest = got.size() == wanted.size() ? 0 : INFINITY;
  for (const auto& [name, one] : wanted) {
    std::vector<double> difference = got.at(name);
    if (difference.size() != one.size()) return INFINITY;
    for (std::size_t i = 0; i < one.size(); ++i) difference[i] -= one[i];
    const double share = norm(difference) / std::max(norm(one), 1e-3 * whole);
    if (!(share <= largest)) largest = share;  // NaN too
  }
  return largest;
}

// The token of `sample` at `place`: depends on nothing else.
inline std::int32_t token(std::int64_t sample, std::int64_t place, std::int64_t vocabulary) {
  const PhiloxBlock block =
      philox({1, 2}, {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(place), 0, 0});
  // Low ids are more likely, so that there is something to learn.
  return static_cast<std::int32_t>((block[0] % vocabulary) * (block[1] % vocabulary) / vocabulary);
}

// `sizes`: samples of each micro-batch of a rank.
inline std::vector<MicroBatch> batches(std::int64_t consumed, int rank, int ranks,
                                       std::int64_t vocabulary,
                                       const std::vector<std::int64_t>& sizes = {2, 2, 2, 2}) {
  std::vector<MicroBatch> all;
  std::int64_t before = 0;
  for (const std::int64_t micro : sizes) {
    const std::int64_t begin = before + rank * micro;
    before += micro * ranks;
    MicroBatch batch{.samples = micro, .sequence = kSequence, .sample_index = begin};
    for (std::int64_t sample = begin; sample < begin + micro; ++sample) {
      for (std::int64_t place = 0; place < kSequence; ++place) {
        batch.tokens.push_back(token(consumed + sample, place, vocabulary));
        batch.labels.push_back(token(consumed + sample, place + 1, vocabulary));
        // Uneven masks: a mean of means would differ from the mean over tokens.
        batch.loss_mask.push_back(place > sample ? 1.0F : 0.0F);
        batch.positions.push_back(static_cast<std::int32_t>(place));
      }
    }
    all.push_back(std::move(batch));
  }
  return all;
}

// For encoders: two parts of each row, which may have changed places, and padding at the ends of
// some rows.
inline void add_parts(MicroBatch& batch, std::int64_t consumed) {
  for (std::int64_t i = 0; i < batch.samples; ++i) {
    const std::int64_t sample = consumed + batch.sample_index + i;
    const std::int64_t padded = kSequence - sample % 5;
    for (std::int64_t place = 0; place < kSequence; ++place) {
      const auto row = static_cast<std::size_t>(i * kSequence + place);
      batch.types.push_back(place > 7 + sample % 11 && place < padded ? 1 : 0);
      batch.segments.push_back(place < padded ? 0 : kPaddingSegment);
      if (place >= padded) batch.loss_mask[row] = 0;
    }
    batch.pair_labels.push_back(static_cast<std::int32_t>(token(sample, kSequence + 3, 2)));
  }
}

// For an encoder and a decoder: the rows become those of the encoder, some with padding at their
// ends, and the first tokens of each those of the decoder.
inline void add_source(MicroBatch& batch, std::int64_t consumed) {
  constexpr std::int64_t kDecoder = kSequence / 2;
  MicroBatch whole = std::move(batch);
  batch = {.samples = whole.samples, .sequence = kDecoder, .sample_index = whole.sample_index};
  for (std::int64_t i = 0; i < whole.samples; ++i) {
    const std::int64_t sample = consumed + whole.sample_index + i;
    batch.source.lengths.push_back(static_cast<std::int32_t>(kSequence - sample % 5));
    for (std::int64_t place = 0; place < kDecoder; ++place) {
      const auto row = static_cast<std::size_t>(i * kSequence + place);
      batch.tokens.push_back(whole.tokens[row]);
      batch.labels.push_back(whole.labels[row]);
      batch.loss_mask.push_back(whole.loss_mask[row]);
      batch.positions.push_back(whole.positions[row]);
    }
  }
  batch.source.sequence = kSequence;
  batch.source.tokens = std::move(whole.tokens);
}

// For classifiers: a label of each text, or a number, at its last token or, of an encoder, the
// first one.
inline void add_labels(MicroBatch& batch, std::int64_t consumed, const ModelConfig& model) {
  batch.labels.assign(batch.tokens.size(), kNoLabel);
  batch.loss_mask.assign(batch.tokens.size(), 0.0F);
  batch.pair_labels.clear();
  for (std::int64_t i = 0; i < batch.samples; ++i) {
    const std::int64_t sample = consumed + batch.sample_index + i;
    const std::int64_t place = model.encoder ? 0 : kSequence - 1 - sample % 5;
    const auto row = static_cast<std::size_t>(i * kSequence + place);
    batch.labels[row] = batch.tokens[row] % static_cast<std::int32_t>(model.labels);
    batch.loss_mask[row] = 1;
    if (model.several_labels) {
      for (std::int64_t label = 0; label < model.labels; ++label)
        batch.label_sets.push_back((batch.tokens[row] + sample) % (label + 2) == 0 ? 1 : 0);
      batch.labels[row] = static_cast<std::int32_t>(i);
    }
    if (!model.regression) continue;
    batch.targets.resize(batch.tokens.size());
    batch.targets[row] = static_cast<float>(batch.tokens[row] % 7) / 2 - 1;
    batch.labels[row] = kNumberLabel;
  }
}

class TrainingRun {
 public:
  TrainingRun(World& world, const RunLayout& layout, const ModelConfig& model, int threads = 1)
      : pool_(threads),
        kernels_(make_cpu_kernels(pool_, test::chosen_isa())),
        arena_(device_),
        stream_(device_.make_stream()),
        counting_(*kernels_),
        machine_{world, device_, counting_, arena_, *stream_, pool_, log_},
        mesh_(world, layout.mesh),
        sizes_(layout.sizes_of_rank()) {
    session_ = std::make_unique<Session>(
        machine_, mesh_,
        SessionSettings{
            .model = model,
            .layout = {.linears = {.slices = layout.slices,
                                   .sequence_parallel = layout.sequence_parallel,
                                   .keeps_gathered = layout.slices == kFused,
                                   .fused_column_backward = layout.slices == kFused,
                                   .shared_rows = kSamples * kSequence},
                       .recompute = layout.recompute ? RecomputeRules{RecomputeGranularity::kFull}
                                                     : layout.rules,
                       .float8 = layout.float8,
                       .vocabulary_multiple = layout.vocabulary_multiple,
                       .layers_of_chunks = layout.layers,
                       .split_stage = layout.split,
                       .context = layout.context,
                       .sends_rows_to_experts = layout.sends_rows},
            .zero_stage = layout.zero,
            .zero_instances = layout.instances,
            .schedule = layout.schedule,
            .own_schedule = layout.own_schedule,
            .micro_batches = static_cast<int>(sizes_.size()),
            .scatter_boundaries = layout.scatters,
            .seed = 11,
            .embedding_noise = layout.embedding_noise,
            .optimizer_options = layout.optimizer,
            .offload = layout.offload,
            .adapters = layout.adapters,
            .codes = layout.codes});
    session_->initialize();
  }

  StepReport step(const GroupRates& rates = 3e-3) {
    const StepReport report = session_->train_step(own_batches(), consumed_, rates);
    consumed_ += kSamples;
    return report;
  }

  // The gradients of the next batch, which stays the next; of parameters that are not sharded.
  std::map<std::string, std::vector<double>> gradients() {
    session_->gradients(own_batches(), consumed_);
    std::map<std::string, std::vector<double>> all;
    for (Parameter* parameter : session_->parameters()) {
      if (parameter->trainable) all[parameter->name] = values(parameter->gradient);
    }
    return all;
  }

  std::vector<double> losses(int steps) {
    std::vector<double> all;
    for (int i = 0; i < steps; ++i) all.push_back(step().loss);
    return all;
  }

  // Bytes of this rank's part of every canonical tensor: "name@start extent" -> rows.
  std::map<std::string, std::string> pieces() {
    std::map<std::string, std::string> all;
    for (Parameter* parameter : session_->parameters()) {
      const Tensor rows = session_->sharded().whole_value(*parameter, *stream_);
      for (const Piece& piece : parameter->pieces) {
        if (piece.extent[0] == 0) continue;
        const Tensor part = rows.slice(0, piece.local_row, piece.extent[0]);
        all[piece.name + "@" + to_string(piece.start) + to_string(piece.extent)] = std::string(
            reinterpret_cast<const char*>(part.raw()), static_cast<std::size_t>(part.bytes()));
      }
    }
    return all;
  }

  // Of the next batch.
  Session::Evaluation evaluation() { return session_->evaluate(own_batches()); }

  Session& session() { return *session_; }
  const Machine& machine() { return machine_; }
  Arena& arena() { return arena_; }
  CallCounts& calls() { return counting_.counts(); }
  CountingKernels& kernels() { return counting_; }
  std::int64_t consumed() const { return consumed_; }
  void set_consumed(std::int64_t consumed) { consumed_ = consumed; }
  StoreContext store() { return {mesh_, device_, arena_, *stream_}; }
  StoredModel stored() {
    return {.parameters = session_->parameters(),
            .sharded = &session_->sharded(),
            .optimizer = &session_->optimizer()};
  }

 private:
  std::vector<MicroBatch> own_batches() {
    std::vector<MicroBatch> all =
        batches(consumed_, mesh_.sample_rank(), mesh_.sizes().sample_ranks(),
                session_->settings().model.vocabulary, sizes_);
    if (session_->settings().model.encoder_decoder) {
      for (MicroBatch& batch : all) add_source(batch, consumed_);
    }
    const ModelConfig& model = session_->settings().model;
    for (MicroBatch& batch : all) {
      if (model.encoder) add_parts(batch, consumed_);
      if (model.classifies()) add_labels(batch, consumed_, model);
    }
    return all;
  }

  HostDevice device_;
  SilentLog log_;
  ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  CountingKernels counting_;
  Machine machine_;
  Mesh mesh_;
  std::vector<std::int64_t> sizes_;  // of the micro-batches of this rank
  std::unique_ptr<Session> session_;
  std::int64_t consumed_ = 0;
};

}  // namespace piton::test
