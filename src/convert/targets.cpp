#include "convert/targets.h"

#include <algorithm>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/option_range.h"
#include "checkpoint/write_source.h"
#include "huggingface/config_keys.h"
#include "huggingface/hf_writer.h"
#include "huggingface/tensor_files.h"
#include "megatron/megatron_writer.h"
#include "train/pretrain_options.h"
#include "train/resume_rules.h"
#include "train/run_tokenizer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostRanks = 4096;

// The tokenizer of the model, null where there is none or it cannot be read.
std::unique_ptr<Tokenizer> usable_tokenizer(const OpenedModel& model,
                                            std::vector<std::string>& notes) {
  try {
    return open_tokenizer_of(model);
  } catch (const Error& error) {
    notes.push_back(fmt::format("its tokenizer cannot be used here: {}", error.what()));
    return nullptr;
  }
}

// Files of the tokenizer, its template, and how the model generates; byte by byte.
void copy_companions(const OpenedModel& from, const fs::path& to) {
  for (const auto& [name, content] : from.tokenizer_files) write_text_file(to / name, content);
  if (from.tokenizer_folder.empty()) return;
  create_folders(to);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(from.tokenizer_folder, ignored)) {
    if (!entry.is_regular_file(ignored) || !belongs_to_tokenizer(entry.path())) continue;
    check_huggingface_link(entry.path());
    write_text_file(to / entry.path().filename(), read_text_file(entry.path()));
  }
}

void set_special_ids(const SpecialIds& special, Json& config) {
  const auto set = [&](const char* key, const std::optional<std::int32_t>& id) {
    config[key] = id ? Json(*id) : Json();
  };
  set("bos_token_id", special.bos);
  set("eos_token_id", special.eos ? special.eos : special.eod);
  set("pad_token_id", special.pad);
}

// A folder of torch_dist holds whole tensors.
void check_torch_dist(const ConvertOptions& options) {
  const char* flag = options.deepspeed               ? "--deepspeed"
                     : options.apart_mlp             ? "--no-merge-mlp"
                     : !options.stage_layers.empty() ? "--num-layer-list"
                     : !options.empty_layers.empty() ? "--noop-layers"
                     : options.layers_of_virtual_stage != 0
                         ? "--num-layers-per-virtual-pipeline-stage"
                         : "";
  if (*flag == '\0') return;
  throw Error(Fault::kUsage,
              "{}: has no meaning with --ckpt-format torch_dist, whose tensors are whole and are "
              "loaded under any layout; leave one of the flags out",
              flag);
}

// What AscendSpeed's converters make of --deepspeed.
void check_deepspeed(const ConvertOptions& options, MegatronLayout& layout,
                     const ModelConfig& model) {
  if (options.core) {
    throw Error(Fault::kUsage,
                "--deepspeed: is of the older module tree; leave out --use-mcore-models");
  }
  if (layout.chunks > 1 || !layout.empty_layers.empty()) {
    throw Error(Fault::kUsage,
                "--deepspeed: has neither virtual stages nor places without a layer");
  }
  if (layout.pipeline > 1 && !is_deepspeed_pipeline(model)) {
    throw Error(Fault::kUsage,
                "--deepspeed: got {} pipeline ranks, but only Bloom is divided into stages there; "
                "leave out --target-pipeline-parallel-size",
                layout.pipeline);
  }
  layout.head_copy = false;
}

MegatronLayout layout_of(const ConvertOptions& options, const ModelConfig& model) {
  check_range("--target-tensor-parallel-size", options.tensor.value_or(1), 1, kMostRanks);
  check_range("--target-pipeline-parallel-size", options.pipeline.value_or(1), 1, kMostRanks);
  MegatronLayout layout{.tensor = static_cast<int>(options.tensor.value_or(1)),
                        .pipeline = static_cast<int>(options.pipeline.value_or(1)),
                        .fused_mlp = !options.apart_mlp,
                        .stage_layers = options.stage_layers,
                        .empty_layers = options.empty_layers};
  check_range("--added-token-num", options.added_tokens, 0, kLargestSize);
  check_range("--make-vocab-size-divisible-by", options.vocabulary_multiple, 1, kLargestSize);
  layout.padded_vocabulary = megatron_padded_vocabulary(model.vocabulary + options.added_tokens,
                                                        options.vocabulary_multiple, layout.tensor);
  if (options.is_torch_dist()) check_torch_dist(options);
  const std::int64_t stage = options.layers_of_virtual_stage;
  if (stage != 0) {
    const std::int64_t own = (model.layers + std::ssize(layout.empty_layers)) / layout.pipeline;
    if (stage < 0 || own % stage != 0) {
      throw Error(
          Fault::kUsage,
          "--num-layers-per-virtual-pipeline-stage: got {}, wanted a divisor of the {} layers "
          "of each pipeline rank",
          stage, own);
    }
    layout.chunks = static_cast<int>(own / stage);
  }
  if (options.apart_mlp && options.core) {
    throw Error(Fault::kUsage,
                "--no-merge-mlp: Megatron-core (--use-mcore-models) has gate and up as one tensor; "
                "leave one of the flags out");
  }
  if (options.deepspeed) check_deepspeed(options, layout, model);
  layout.check(model);
  return layout;
}

}  // namespace

std::optional<DType> chosen_dtype(const ConvertOptions& options) {
  if (options.dtype.empty()) return std::nullopt;
  return options.dtype == "fp32"   ? DType::kF32
         : options.dtype == "bf16" ? DType::kBF16
                                   : DType::kF16;
}

void make_huggingface(const fs::path& draft, const OpenedModel& from,
                      const TargetContext& context) {
  copy_companions(from, draft);
  HfDescription description;
  if (from.origin) {
    description = {from.origin->family, from.origin->config};
  } else {
    description = hf_config_of(from.model, from.family);
    const std::unique_ptr<Tokenizer> tokenizer = usable_tokenizer(from, context.notes);
    set_special_ids(tokenizer ? tokenizer->special() : SpecialIds{}, description.config);
    if (tokenizer && !fs::exists(draft / "generation_config.json")) {
      Json generation = {{"_from_model_config", true}};
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        if (!description.config[key].is_null()) generation[key] = description.config[key];
      }
      write_text_file(draft / "generation_config.json", generation.dump(2) + "\n");
    }
  }
  write_huggingface(draft, *from.source, from.model, description.family, description.config,
                    {.dtype = chosen_dtype(context.options),
                     .max_shard_bytes = context.options.max_shard_bytes,
                     .wrote = context.wrote,
                     .threads = &context.threads});
}

void make_checkpoint(const fs::path& draft, const OpenedModel& from, const TargetContext& context) {
  const std::optional<DType> dtype = chosen_dtype(context.options);
  PretrainOptions stored;
  ModelConfig model = from.model;
  model.dtype = dtype.value_or(model.dtype) == DType::kBF16 ? DType::kBF16 : DType::kF32;
  stored.model = ModelOptions::of(model);
  stored.model.bf16 = model.dtype == DType::kBF16;
  if (stored.model.resolve(model.vocabulary) != model) {
    throw Error(Fault::kData,
                "{}: describes a model that no flags of pretrain do, so it cannot be a checkpoint "
                "of Piton; it can be used as it is",
                from.source->where());
  }
  if (from.tokenizer_files.empty()) {
    const std::unique_ptr<Tokenizer> tokenizer = usable_tokenizer(from, context.notes);
    if (tokenizer) {
      stored.tokenizer = from.tokenizer;
      keep_tokenizer(from.tokenizer, *tokenizer, draft);
    }
  } else {
    // A run keeps its tokenizer in this folder.
    copy_companions(from, draft / kTokenizerFolder);
    stored.tokenizer.name_or_path =
        (fs::absolute(context.options.save) / kTokenizerFolder).string();
  }
  const std::string config = configuration_of(stored);
  write_text_file(draft / kConfigName, config);
  write_checkpoint(draft, *from.source, {.iteration = from.iteration}, config,
                   {.dtype = dtype,
                    .file_bytes = context.options.max_shard_bytes,
                    .wrote = context.wrote,
                    .threads = &context.threads});
}

void make_megatron(const fs::path& draft, const OpenedModel& from, const TargetContext& context) {
  const ConvertOptions& options = context.options;
  copy_companions(from, draft);
  const std::string beyond = beyond_megatron(from.model);
  if (!beyond.empty()) {
    context.notes.push_back(fmt::format(
        "{}: has {}, which Megatron-LM does not know: its arguments say it to Piton alone, and "
        "other programs compute without it",
        from.source->where(), beyond));
  }
  write_megatron(draft, *from.source, from.model,
                 {.layout = layout_of(options, from.model),
                  .form = options.is_torch_dist() ? MegatronForm::kTorchDist
                          : options.deepspeed     ? MegatronForm::kDeepSpeed
                                                  : MegatronForm::kRankFiles,
                  .tree = !options.core                    ? MegatronTree::kLegacy
                          : options.core_layers == "local" ? MegatronTree::kCore
                                                           : MegatronTree::kTransformer,
                  .dtype = chosen_dtype(options),
                  .iteration = from.iteration,
                  .model_type = from.family,
                  .arguments = options.arguments,
                  .max_file_bytes = options.max_shard_bytes,
                  .wrote = context.wrote,
                  .threads = &context.threads});
}

}  // namespace piton
