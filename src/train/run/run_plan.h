// The sizes of a run, derived from its options and checked before any memory is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "session/session.h"
#include "train/run/batch_sizes.h"
#include "train/run/pretrain_options.h"
#include "train/sinks/megatron_flops.h"

namespace piton {

struct RunPlan {
  MeshSizes mesh;
  std::int64_t sequence = 0;          // of an encoder and a decoder: rows of the encoder,
  std::int64_t decoder_sequence = 0;  // and of the decoder; else 0
  double masked_share = 1;            // of an encoder's tokens: those with a label, at most
  std::int64_t micro_batch = 0;       // samples of one forward pass on a rank
  std::int64_t global_batch = 0;      // whole, where it grows
  BatchSizes batches;                 // of each step
  std::int64_t train_iters = 0;       // updates of the whole run
  std::int64_t train_samples = 0;     // that the run asks of its data
  std::int64_t updates_of_batch = 1;  // that learn a part of it each (--num-mini-batches)
  int micro_batches = 0;              // of each data-parallel rank in one step of the whole batch
  // Samples of each of these micro-batches, if they are unequal; else empty.
  std::vector<std::int64_t> micro_batch_sizes;
  // Of a rank: what backward computes again is to be chosen by it (train/recompute_choice.h).
  std::optional<std::int64_t> memory_limit;
  bool saves_optimizer = true;  // not under --no-save-optim
  SessionSettings session;
  // Of the models of --ref-model, --teacher-model and --reward-model, which the run holds in
  // addition, and of the critic, which it trains; set by add_second_models()
  // (train/reference_model.h).
  std::optional<SessionSettings> reference, teacher, judge, critic;

  // Samples of each micro-batch of a rank, equal or not.
  std::vector<std::int64_t> sizes_of_micro_batches() const {
    if (!micro_batch_sizes.empty()) return micro_batch_sizes;
    return std::vector<std::int64_t>(static_cast<std::size_t>(micro_batches), micro_batch);
  }
  // ModelConfig::forward_flops_per_token() of this run.
  double forward_flops_per_token() const {
    return session.model.forward_flops_per_token(sequence, decoder_sequence, masked_share);
  }
  double megatron_flops_of_sample() const {
    return megatron_flops(session.model, session.layout, sequence);
  }
  // Tokens of a sample on one rank of the context axis.
  std::int64_t rows_of_sample() const { return sequence / mesh[Axis::kContext]; }
  // Which layers each chunk of the model has, and how many a chunk of each stage has at most.
  LayerDivision layer_division() const;
  std::vector<std::int64_t> layers_of_stages() const;

  // The length of the run in whole global batches: what schedules are measured by.
  double whole_steps() const {
    return static_cast<double>(train_samples) / static_cast<double>(global_batch);
  }
};

// `tokenizer_vocabulary`: ids of the tokenizer, 0 if there is none. Throws Error(kUsage) with the
// flag.
RunPlan make_run_plan(const PretrainOptions& options, int ranks, std::int64_t tokenizer_vocabulary);

// Sets how many updates and samples the run has. With --num-train-epochs one update, as the plan is
// made before the data is opened; RunLength (train/run_length.h) then says the number.
void set_length(const LoopOptions& loop, RunPlan& plan);

// Samples of the updates of a run with these options. `share`: samples of one micro-batch on all
// data-parallel ranks. Throws Error(kUsage) that names the flag.
BatchSizes batch_sizes(const LoopOptions& loop, std::int64_t global_batch, std::int64_t share);

// The options with every derived default replaced by its value. They are stored with a checkpoint
// and compared on resume, because the same flags could give other values with another number of
// ranks or in another version.
PretrainOptions settled_options(const PretrainOptions& options, const RunPlan& plan);

// The last part of that: the end of the learning rate's decay, where it is not given, is that of
// the run. Needs the global batch size.
void settle_decay(PretrainOptions& options);

}  // namespace piton
