#include "train/run/foreign_model.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/shell_word.h"
#include "checkpoint/store.h"
#include "huggingface/config_keys.h"
#include "huggingface/files/origin.h"
#include "huggingface/files/quantized_matrix.h"
#include "model/families.h"
#include "model_files/label_base.h"
#include "model_files/native_config.h"
#include "model_files/upcycling.h"
#include "train/run/checkpoint_choice.h"
#include "train/run/run_start.h"
#include "train/run/run_tokenizer.h"

namespace piton {
namespace {

struct Fields {
  std::vector<const void*> fields;
  template <typename T>
  void operator()(const Option& /*option*/, T& field) {
    fields.push_back(&field);
  }
};

// Sets the fields that were not given to those of another value of the same type; both are visited
// in the same order.
struct FillOpenFields {
  std::vector<const void*> theirs;
  std::size_t next = 0;

  template <typename T>
  void operator()(const Option& /*option*/, T& field) {
    const T& other = *static_cast<const T*>(theirs[next++]);
    bool open = false;
    if constexpr (requires { field.has_value(); }) {
      open = !field.has_value();
    } else if constexpr (requires { field.empty(); }) {
      open = field.empty();
    } else if constexpr (std::is_same_v<T, bool>) {
      open = !field;
    }
    if (open) field = other;
  }
};

// As Megatron, which does not continue without the optimizer unless a flag allows it.
void continue_optimizer(OpenedModel& model) {
  try {
    open_optimizer(model);
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) throw;
    throw Error(Fault::kData,
                "{}; --no-load-optim continues at iteration {} with a new optimizer, --finetune "
                "starts a new run from the weights",
                error.what(), model.iteration);
  }
}

bool makes_labels(const PretrainOptions& options) {
  const TrainingStage stage = options.preferences.stage;
  return stage == TrainingStage::kRm || stage == TrainingStage::kClassify;
}

// Whether the checkpoint of Piton is a language model, of which a reward model or a classifier is
// to be made: then its weights are read as those of another program.
bool gets_new_head(const PretrainOptions& options, const std::string& path) {
  if (!makes_labels(options) || !holds_checkpoint(path)) return false;
  const NativeConfig config = read_native_config(find_checkpoint(path));
  return config.model.labels.number() == 0 && !config.lora.given();
}

}  // namespace

bool has_labels_of_own(const PretrainOptions& options) {
  const std::string path = folder_to_load(options.loop).string();
  if (path.empty()) return false;
  const ModelFormat format = model_format_of(path);
  if (format == ModelFormat::kPiton) return holds_checkpoint(path) && !gets_new_head(options, path);
  return format == ModelFormat::kHuggingFace && open_model({.path = path}).model.labels > 0;
}

namespace {

// Gives a model without labels those of the options.
void add_labels(const PretrainOptions& options, OpenedModel& foreign) {
  if (!makes_labels(options)) return;
  const LabelOptions& labels = options.model.labels;
  if (const std::int64_t there = foreign.model.labels; there > 0) {
    if (labels.problem && *labels.problem != problem_of(foreign.model)) {
      throw Error(Fault::kUsage,
                  "--problem-type: got {}, but the model of {} gives {}; leave it out",
                  *labels.problem, foreign.name,
                  foreign.model.regression        ? "a number"
                  : foreign.model.gives_rewards() ? "rewards"
                  : foreign.model.several_labels  ? "several labels of a text"
                                                  : "labels");
    }
    if (labels.number() == 0 || labels.number() == there) return;
    throw Error(Fault::kUsage,
                "--num-labels, --label-names: got {}, but the model of {} has {}; leave them out",
                labels.number(), foreign.name, there);
  }
  if (labels.number() == 0) {
    throw Error(Fault::kUsage,
                "--stage classify: {} has no labels; name them by --label-names, or give "
                "--num-labels N, or --problem-type regression for a number",
                foreign.name);
  }
  make_classifier(foreign, labels.wanted());
}

// Gives a model without experts those of the options.
void add_experts(const PretrainOptions& options, OpenedModel& foreign) {
  const ModelOptions& flags = options.model;
  if (!flags.mlp.experts) {
    throw Error(Fault::kUsage,
                "--moe-use-upcycling: needs --num-experts, into which MLPs of {} are made",
                foreign.source->where());
  }
  const ModelConfig& dense = foreign.model;
  Upcycling wanted{.ffn_hidden = flags.ffn_hidden,
                   .granularity = options.loop.upcycling_granularity,
                   .seed = options.loop.seed,
                   .init_deviation = flags.init_deviation.value_or(dense.init_deviation),
                   .xavier_weights = flags.xavier_weights};
  if (!dense.experts) {
    ModelConfig with = dense;
    flags.mlp.apply(with);
    wanted.experts = *with.experts;
    const std::int64_t width = flags.ffn_hidden.value_or(
        dense.ffn_hidden / std::max<std::int64_t>(1, options.loop.upcycling_granularity));
    wanted.experts.ffn_hidden = flags.mlp.expert_ffn_hidden.value_or(width);
    if (flags.mlp.shared_experts)
      wanted.experts.shared_ffn_hidden = *flags.mlp.shared_experts * wanted.experts.ffn_hidden;
  }
  make_experts(foreign, wanted);
}

// Of a model without experts, for files of Megatron that do not describe it.
ModelOptions without_experts(ModelOptions flags, std::int64_t granularity) {
  if (flags.ffn_hidden && !flags.mlp.expert_ffn_hidden) *flags.ffn_hidden *= granularity;
  flags.mlp = flags.mlp.without_experts();
  return flags;
}

std::optional<OpenedModel> open_foreign_model(const PretrainOptions& options) {
  const std::string path = folder_to_load(options.loop).string();
  if (path.empty()) return std::nullopt;
  const bool native = model_format_of(path) == ModelFormat::kPiton;
  const bool upcycles = options.loop.upcycles;
  if (native && !gets_new_head(options, path) && !upcycles) return std::nullopt;
  OpenRequest request{.path = path};
  // NullTokenizer's --vocab-size is without the end of documents, which has a row.
  if (!options.tokenizer.is_null()) request.given.vocabulary = options.model.vocabulary;
  ModelOptions described = options.model;
  described.labels = {};  // of a head that the model may not have yet
  if (upcycles)
    described = without_experts(std::move(described), options.loop.upcycling_granularity);
  if (described.describes_model())
    request.given.model = [&](std::int64_t padded) { return described.resolve(padded); };
  OpenedModel foreign = open_model(request);
  if (native) foreign.facts = facts_of_base(foreign);
  add_labels(options, foreign);
  if (upcycles) add_experts(options, foreign);
  if (options.loop.finetune) foreign.run.reset();
  if (foreign.run && !options.loop.no_load_optim) continue_optimizer(foreign);
  keep_start(path, foreign.facts);
  return foreign;
}

// They are trained if the user asks for it.
void leave_out_later_layers(const ModelOptions& options, OpenedModel& foreign) {
  if (foreign.model.mtp_layers == 0 || options.mtp_layers.value_or(0) != 0) return;
  foreign.notes.push_back(
      fmt::format("{}: its layers that predict later tokens are left out; --mtp-num-layers {} "
                  "trains them",
                  foreign.source->where(), foreign.model.mtp_layers));
  foreign.model.mtp_layers = 0;
}

}  // namespace

std::map<std::string, std::string> facts_of_base(const OpenedModel& base) {
  std::map<std::string, std::string> facts;
  for (const char* key : {kOriginFact, kOtherTokenizerFact}) {
    const auto found = base.facts.find(key);
    if (found != base.facts.end()) facts.insert(*found);
  }
  return facts;
}

bool describe_a_model(const ModelOptions& flags) {
  try {
    flags.resolve(1);
    return true;
  } catch (const Error&) {
    return false;  // sizes are missing
  }
}

bool gives_whole_model(const ModelOptions& flags, const ModelConfig& model) {
  if (!flags.describes_model()) return false;
  try {
    ModelConfig own = flags.resolve(model.vocabulary);
    // These are of no weight.
    own.family = model.family;
    own.dtype = model.dtype;
    own.fp32_residual = model.fp32_residual;
    own.init_deviation = model.init_deviation;
    own.embedding_deviation = model.embedding_deviation;
    own.xavier_weights = model.xavier_weights;
    return own == model;
  } catch (const Error&) {
    return false;  // sizes are missing
  }
}

void fill_open_options(ModelOptions& options, ModelOptions from) {
  Fields theirs;
  from.visit(theirs);
  FillOpenFields filler{theirs.fields};
  options.visit(filler);
}

// A family whose models are of another kind than the one in the folder.
void refuse_other_kind(const ModelOptions& options, const ModelConfig& wanted,
                       const std::string& folder) {
  if (!options.family) return;
  const ModelConfig got = family_facts(*options.family);
  if (got.encoder.has_value() == wanted.encoder.has_value() &&
      got.encoder_decoder.has_value() == wanted.encoder_decoder.has_value())
    return;
  throw Error(Fault::kUsage,
              "--model-family: got {}, but the model of {} is {}; leave the flag out",
              *options.family, folder,
              wanted.encoder           ? "an encoder (bert)"
              : wanted.encoder_decoder ? "an encoder with a decoder (t5)"
                                       : "a decoder");
}

void refuse_experts(std::int64_t experts, const std::string& folder) {
  throw Error(Fault::kUsage,
              "--num-experts: got {}, but the model of {} has no experts; --moe-use-upcycling "
              "starts a new run in which each is a copy of its MLP",
              experts, folder);
}

void refuse_contradictions(const ModelConfig& got, const ModelConfig& wanted,
                           const std::string& folder) {
  const auto same = [&](const char* flag, const auto& ours, const auto& theirs) {
    if (ours == theirs) return;
    throw Error(Fault::kUsage, "{}: got {}, but the model of {} has {}; leave the flag out", flag,
                ours, folder, theirs);
  };
  if (got.experts && !wanted.experts) refuse_experts(got.experts->experts, folder);
  same("--num-layers", got.layers, wanted.layers);
  same("--hidden-size", got.hidden, wanted.hidden);
  same("--ffn-hidden-size", got.ffn_hidden, wanted.ffn_hidden);
  same("--num-attention-heads", got.heads, wanted.heads);
  same("--num-query-groups", got.groups, wanted.groups);
  same("--kv-channels", got.head_size, wanted.head_size);
  same("--vocab-size", got.vocabulary, wanted.vocabulary);
  same("--norm-epsilon", got.norm_eps, wanted.norm_eps);
  const auto alike = [&](const char* flag, bool is_same) {
    if (is_same) return;
    throw Error(Fault::kUsage, "{}: contradicts the model of {}; leave the flag out", flag, folder);
  };
  alike("--max-position-embeddings",
        got.positions != PositionKind::kLearned || got.max_positions == wanted.max_positions);
  alike("--normalization", got.norm == wanted.norm);
  alike("--position-embedding-type", got.positions == wanted.positions);
  alike("--activation", got.activation == wanted.activation && got.gated == wanted.gated);
  alike("--activation-func-clamp-value, --glu-linear-offset", got.gate_rule == wanted.gate_rule);
  alike("--softmax-type", got.softmax == wanted.softmax);
  alike("--disable-bias-linear, --add-mlp-bias", got.biases == wanted.biases);
  alike("--add-qkv-bias", got.qkv_biases == wanted.qkv_biases);
  alike("--add-dense-bias", got.output_bias == wanted.output_bias);
  alike("--add-head-bias", got.head_bias == wanted.head_bias);
  alike("--embed-layernorm", got.embedding_norm == wanted.embedding_norm);
  alike("--apply-layernorm-1p", got.gains_from_one == wanted.gains_from_one);
  alike("--no-norm-gain", got.norm_gains == wanted.norm_gains);
  alike("--post-norm", got.end_norms == wanted.end_norms);
  alike("--parallel-residual, --single-norm",
        got.parallel_residual == wanted.parallel_residual && got.single_norm == wanted.single_norm);
  alike("--no-pre-norm", got.start_norms == wanted.start_norms);
  alike("--input-embeds-norm", got.scaled_embedding == wanted.scaled_embedding);
  alike("--embedding-multiplier", got.embedding_factor == wanted.embedding_factor);
  alike("--attention-multiplier", got.score_factor == wanted.score_factor);
  alike("--residual-multiplier", got.branch_factor == wanted.branch_factor);
  alike("--logits-scaling", got.logit_divisor == wanted.logit_divisor);
  alike("--query-pre-attn-scalar", got.query_scalar == wanted.query_scalar);
  alike("--rotary-reversed", got.rotary_reversed == wanted.rotary_reversed);
  alike("--normalized-head", got.normalized_head == wanted.normalized_head);
  alike(
      "--apply-residual-connection-post-layernorm, --bert-no-binary-head, --token-types, "
      "--first-position, --exact-gelu-head",
      got.encoder == wanted.encoder);
  alike("--encoder-num-layers, --relative-attention-num-buckets, --relative-attention-max-distance",
        got.encoder_decoder == wanted.encoder_decoder);
  alike("--qk-layernorm, --qk-layernorm-joint",
        got.head_norms == wanted.head_norms && got.joint_head_norms == wanted.joint_head_norms);
  alike("--untie-embeddings-and-output-weights", got.tied == wanted.tied);
  same("--mtp-num-layers", got.mtp_layers, wanted.mtp_layers);
  same("--num-labels", got.labels, wanted.labels);
  alike("--problem-type",
        got.regression == wanted.regression && got.several_labels == wanted.several_labels);
  same("--label-names", fmt::format("{}", fmt::join(got.label_names, " ")),
       fmt::format("{}", fmt::join(wanted.label_names, " ")));
}

std::optional<OpenedModel> adopt_foreign_model(PretrainOptions& options) {
  const std::string folder = folder_to_load(options.loop).string();
  std::optional<OpenedModel> foreign = open_foreign_model(options);
  if (!foreign) {
    if (!folder.empty() && !describe_a_model(options.model)) {
      if (!std::filesystem::exists(folder)) {
        const std::string& save = options.loop.save;
        throw Error(
            Fault::kUsage,
            "--load: there is no {}, and no model is named; check the path, or name the model "
            "of a new run (--model, or its sizes){}",
            folder,
            !save.empty() && latest_iteration(save)
                ? fmt::format("; piton resume {} continues the run that is there", shell_word(save))
                : "");
      }
      find_checkpoint(folder);  // or says why there is none
    }
    return std::nullopt;
  }
  if (foreign->model.dtype == DType::kBF16 && !options.model.bf16) {
    foreign->notes.push_back(fmt::format(
        "{}: its weights are bf16, and this run trains in fp32; --bf16 trains in bf16", folder));
  }
  foreign->model.dtype = DType::kF32;  // the run's own choice
  leave_out_later_layers(options.model, *foreign);
  if (stores_codes(*foreign->source)) {
    foreign->notes.push_back(fmt::format(
        "{}: some of its weights are quantized; the run trains and saves their values", folder));
  }
  const ModelConfig& model = foreign->model;
  if (!options.model.model.empty()) {
    throw Error(Fault::kUsage, "--model: got {}, but {} says what the model is; leave the flag out",
                options.model.model, foreign->source->where());
  }
  if (model.encoder && !model.encoder->word_head && model.labels == 0) {
    throw Error(Fault::kData,
                "{}: an encoder without a head for masked words has nothing to train; piton embed "
                "reads it, and --stage classify gives it labels",
                foreign->source->where());
  }
  refuse_other_kind(options.model, model, foreign->source->where());
  ModelOptions theirs = ModelOptions::of(model);
  const ModelConfig said = theirs.resolve(model.vocabulary);
  if (said != model) {
    throw Error(Fault::kData,
                "{}: no flag of pretrain expresses {}; use the model with piton score or generate",
                foreign->source->where(), model_difference(model, said));
  }
  const RotaryOptions& rotary = options.model.rotary;
  if (rotary.scaling_type || rotary.use_rope_scaling || rotary.interpolation_factor) {
    theirs.rotary = {.base = theirs.rotary.base,
                     .local_base = theirs.rotary.local_base,
                     .percent = theirs.rotary.percent};
  }
  // Its vocabulary has an end of documents after the ids that --vocab-size counts.
  const bool null = options.tokenizer.is_null();
  if (null) theirs.vocabulary = model.vocabulary - 1;
  if (gives_whole_model(options.model, model)) {
    // The run is that of its flags, so that the same script continues it.
    if (!options.model.vocabulary) options.model.vocabulary = theirs.vocabulary;
  } else {
    fill_open_options(options.model, theirs);
  }
  refuse_contradictions(resolve_model(options.model, options.tokenizer, {}), model, folder);
  if (!null && options.tokenizer.empty()) {
    options.tokenizer.name_or_path = place_of_tokenizer(*foreign, options.loop.save);
    // One without files, such as ByteTokenizer.
    if (options.tokenizer.empty()) take_tokenizer(foreign->tokenizer.options, options.tokenizer);
  }
  return foreign;
}

}  // namespace piton
