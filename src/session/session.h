// A model in training on this rank: its chunks, parameters, optimizer and schedule, and one step of
// all of them. It does not depend on files, data sets or options: pretrain, score, plan and tests
// use it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/batch.h"
#include "model/config.h"
#include "model/layout.h"
#include "nn/adapters.h"
#include "nn/chunk.h"
#include "ops/offloading_keeper.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"
#include "parallel/pipeline.h"
#include "session/expert_balance.h"
#include "session/label_counts.h"
#include "session/machine.h"
#include "session/objective.h"
#include "session/offload_options.h"
#include "session/quantized_parameters.h"
#include "session/step_recorder.h"

namespace piton {

// The ranks along these hold parts of the loss. A session makes this group before messages of the
// pipeline are pending.
inline constexpr AxisSet kLossAxes =
    axes(Axis::kData, Axis::kExpert, Axis::kContext, Axis::kPipeline);

// Have different samples; ranks of the context axis get the same ones and divide their rows.
inline constexpr AxisSet kSampleAxes = axes(Axis::kData, Axis::kExpert);

class Session;

// State that is held in addition to the weights.
enum class SessionUse : std::uint8_t {
  kTraining,   // gradients, moments and main copies
  kGradients,  // only gradients
  kInference,  // nothing; and weights that are packed are not held as plain rows. Under ZeRO-3 each
               // rank holds its shard, and rows are gathered around each use
};

struct SessionSettings {
  ModelConfig model;
  LayoutOptions layout;
  int zero_stage = 0;
  int zero_instances = 1;  // ShardingRules
  FrozenForms frozen_forms = FrozenForms::kFewest;
  ScheduleSettings schedule;
  std::optional<Schedule> own_schedule;  // instead of one of these settings
  int micro_batches = 1;                 // a step; fewer or more under a schedule of settings
  bool scatter_boundaries = true;        // each tensor rank sends its part of what all of them have
  std::uint64_t seed = 1234;
  // Divisor of the logits, after ModelConfig::logit_divisor and the soft cap: the model in training
  // by rewards is the distribution that answers are drawn from. Not part of the model, which
  // checkpoints store. Not for heads with a bias.
  double logit_temperature = 1;
  double embedding_noise = 0;  // NEFTune's alpha (session/embedding_noise.h); 0: none
  OptimizerOptions optimizer_options;
  OffloadOptions offload;
  SessionUse use = SessionUse::kTraining;
  // For inference: with the first of the layers that predict later tokens, if the model has one
  // (generate/later_drafts.h); else without them.
  bool drafts_later = false;
  Adapters adapters;  // of the decoder; if there are any, they alone are trained (nn/adapters.h)
  // Which parameters that are not trained are held as codes; empty: none.
  CodesOfParameter codes;
  // Makes the chunks; empty: those of this model and layout.
  ChunkFactory chunks;
};

// A second model whose distribution is learned with the labels (kernels/loss.h: distillation).
struct Teaching {
  Session* teacher = nullptr;  // for inference, of the same mesh, layout and vocabulary
  double temperature = 1;
  double weight = 0.5;  // of the divergence
};

struct StepReport {
  double loss = 0;         // mean over the tokens of the whole global batch, or of the objective
  double grad_norm = 0;    // before clipping, without the loss scale
  bool skipped = false;    // gradients were not finite, or a spike: nothing was updated
  double loss_tokens = 0;  // or what the objective counts
  double loss_scale = 1;   // of this step
  std::vector<ObjectiveFigure> figures;
};

// How token_losses() computes.
struct LossPass {
  bool training = false;  // with dropout
  bool adapters = true;
};

class Session {
 public:
  // Collective over all ranks. The mesh must outlive the session. Allocates memory, sets no values.
  // Throws what check_device() throws.
  Session(const Machine& machine, Mesh& mesh, const SessionSettings& settings);
  ~Session();

  // Throws Error(kUsage) that names the flag if the ranks of this device cannot do it: for checks
  // before memory is allocated.
  static void check_device(const Machine& machine, const MeshSizes& mesh,
                           const SessionSettings& settings);

  // The loss of every step and evaluation from now on; null: the cross entropy of the labels. It
  // must outlive them.
  void set_objective(Objective* objective) { objective_ = objective; }

  // For every step and evaluation from now on; a teacher must outlive them. Not together with an
  // objective.
  void set_teaching(const Teaching& teaching) { teaching_ = teaching; }

  // From now on the calls of a step are recorded, where they can be (session/step_recorder.h); or
  // no longer. Steps have the same bits.
  void record_steps(bool on);
  // Why they are not; "": they are, if record_steps() asks for it.
  std::string obstacle_to_recording() const;

  // Draws the weights from the seed: all, or those of `parameters`, such as new adapters of a model
  // that is loaded.
  void initialize() { initialize(all_parameters_); }
  void initialize(const std::vector<Parameter*>& parameters);
  // Call it after values were set from outside (a checkpoint): gathers them and makes the main
  // copies.
  void publish_values();

  // One update from this data-parallel rank's micro-batches, as many on each rank. Ranks of the
  // context axis get the same whole samples, here and below.
  // `consumed_samples`: of the run, before this batch; mask draws count from it. `weight_decay`: of
  // this step; empty: that of the options.
  StepReport train_step(const std::vector<MicroBatch>& batches, std::int64_t consumed_samples,
                        const GroupRates& rates, std::optional<double> weight_decay = {});

  // Forward and backward of one batch without an update: gradients stay in the parameters. Not for
  // kInference.
  StepReport gradients(const std::vector<MicroBatch>& batches, std::int64_t consumed_samples);

  // Loss of forward passes without dropout; sum and tokens are over all ranks.
  struct Evaluation {
    double loss_sum = 0;
    double loss_tokens = 0;  // or what the objective counts
    std::vector<ObjectiveFigure> figures;
    LabelCounts labels;  // of a classifier
  };
  Evaluation evaluate(const std::vector<MicroBatch>& batches);

  // Cross entropy of each token [b*s], 0 without a label, for each micro-batch of this rank; on the
  // ranks of other stages than the last one empty lists. With dropout, the masks are those of the
  // last consumed_samples. Not under context parallelism.
  std::vector<std::vector<double>> token_losses(const std::vector<MicroBatch>& batches,
                                                const LossPass& pass);

  // Of a classifier: the logits of the rows that have a label, for each micro-batch of this rank in
  // order, [labels] each; on the ranks of other stages than the last one empty lists. Without
  // dropout. Not under context parallelism.
  std::vector<std::vector<std::vector<float>>> label_logits(const std::vector<MicroBatch>& batches);

  // The output of the final norm for all rows of each micro-batch, [b*s, h]; on the ranks of other
  // stages than the last one empty tensors.
  std::vector<Tensor> hidden_states(const std::vector<MicroBatch>& batches);
  // The logits [k, padded V / t] of some of these rows. Only on the last stage.
  Tensor head_logits(const Tensor& hidden);

  const SessionSettings& settings() const { return settings_; }
  Mesh& mesh() { return *mesh_; }
  const std::vector<Parameter*>& parameters() const { return all_parameters_; }
  ShardedParameters& sharded() { return *sharded_; }
  Optimizer& optimizer() { return *optimizer_; }
  Pipeline& pipeline() { return *pipeline_; }
  // High-water mark of what is kept elsewhere; not in the counts of the machine's arena.
  std::int64_t offloaded_bytes() const;
  // For forward passes outside of a step.
  Context context(bool training);
  // Copies the micro-batch to the device. `scale`: gradient of its loss sum, or empty.
  // Under context parallelism, this rank's rows of it.
  ModelInput upload(const MicroBatch& whole, const Tensor& scale);

 private:
  void schedule_micro_batches(int count);
  PipelineResult forward_backward(const std::vector<ModelInput>& inputs,
                                  const Tensor& sums_of_losses);
  std::int64_t samples_of(const std::vector<MicroBatch>& batches);  // of all data ranks
  void set_gain_decay();
  void share_rows();
  void make_parameters();
  void offload_activations();
  double summed_over_ranks(double value, AxisSet axes);
  // Of the sum with this name, over all ranks; 0 if no rank has it.
  double sum_of(const PipelineResult& result, std::string_view name);
  // Gives each micro-batch what the teacher says of it.
  void teach(const std::vector<MicroBatch>& batches, std::vector<ModelInput>& inputs);
  // Makes the balance of experts a part of the loss, of a model that has them.
  ExpertBalance balance_experts(const std::vector<MicroBatch>& batches, double loss_scale,
                                std::vector<ModelInput>& inputs);
  // Gives each micro-batch what layers that predict later tokens read, of a model that has them.
  // Returns for each layer the tokens of the global batch that have a label.
  std::vector<double> predict_later(const std::vector<MicroBatch>& batches, double loss_scale,
                                    std::vector<ModelInput>& inputs);
  LaterTokens upload_later(const MicroBatch& moved, const Tensor& scale);
  void add_teaching_figures(const PipelineResult& result, double tokens,
                            std::vector<ObjectiveFigure>& figures);
  // The labels of a batch over all ranks.
  struct Labels {
    double tokens = 0;
    double pairs = 0;  // of a model with a head for them
    double pair_weight() const { return pairs > 0 ? tokens / pairs : 0; }
  };
  Labels total_labels(const std::vector<MicroBatch>& batches);
  struct Losses {
    double sum = 0;                        // divided by Labels::tokens it is the loss
    std::vector<ObjectiveFigure> figures;  // of a model with two losses
  };
  Losses losses_of(const PipelineResult& result, const Labels& labels);
  // Of a classifier: what is computed says the logits of the rows with a label too.
  void ask_for_labels(const std::vector<MicroBatch>& batches, std::vector<ModelInput>& inputs);
  // The rows [labels] of logits of this micro-batch, whole on each tensor rank.
  std::vector<std::vector<float>> rows_of_labels(const Tensor& logits);
  // How often each label was right and predicted, over all ranks.
  LabelCounts counts_of(const std::vector<MicroBatch>& batches, const std::vector<Tensor>& logits);
  LabelCounts over_all_ranks(LabelCounts own);
  ModelInput upload_rows(const MicroBatch& batch, const Tensor& scale);
  // Memory of what a pass reads: that of the recording of this step, or new one.
  Tensor input_memory(DType dtype, const Shape& shape, MemoryKind kind);
  // A copy there.
  Tensor put_input(DType dtype, const Shape& shape, const void* host,
                   MemoryKind kind = MemoryKind::kActivations);
  Tensor put_scale(double factor);  // of a loss
  RecordedStep* recorded_step(const std::vector<MicroBatch>& batches);
  void update();
  // Where the rows of a sample are that layers with this exchange attend to.
  ContextPlaces upload_places(const MicroBatch& whole, ContextExchange exchange);
  static constexpr std::int64_t kNamedSums = 16;  // more than there are names (nn/chunk.h)
  // The passes of a step that are enqueued, and whose sums nobody has read yet.
  struct EnqueuedPasses {
    StepReport report;           // so far
    Labels labels;               // tokens: or what the objective counts
    std::optional<double> loss;  // of an objective
    std::vector<ModelInput> inputs;
    ExpertBalance balance;
    std::vector<double> later_tokens;  // with a label, of each layer that predicts them
    Tensor sums;                       // the memory of `result`
    PipelineResult result;
    RecordedStep* recorded = nullptr;  // that they could be, but are not yet
  };
  EnqueuedPasses enqueue_passes(const std::vector<MicroBatch>& batches,
                                std::int64_t consumed_samples);
  void enqueue(const std::vector<MicroBatch>& batches, EnqueuedPasses& passes);
  // Waits for them.
  StepReport read(EnqueuedPasses passes, const std::vector<MicroBatch>& batches);

  Machine machine_;
  Mesh* mesh_;
  SessionSettings settings_;
  std::unique_ptr<SharedRows> shared_rows_;  // of the tensor ranks, for fused linears
  ModelLayout layout_;
  Tensor consumed_samples_;   // int64 [1]
  ParameterList parameters_;  // of this stage; shared by its chunks
  std::vector<Parameter*> all_parameters_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<ShardedParameters> sharded_;
  std::unique_ptr<OffloadTarget> state_target_;  // of the optimizer's state; null: on the device
  std::unique_ptr<OffloadTarget> activation_target_;  // of what layers keep; null: on the device
  std::unique_ptr<OffloadLanes> activation_lanes_;    // to and from it
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Pipeline> pipeline_;
  Objective* objective_ = nullptr;
  Teaching teaching_;
  std::unique_ptr<StepRecorder> recorder_;  // null: steps are not recorded
  InputPlaces* places_ = nullptr;           // of input_memory(), while a step uploads
};

}  // namespace piton
