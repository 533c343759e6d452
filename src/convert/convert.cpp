#include "convert/convert.h"

#include <chrono>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/write_source.h"
#include "convert/target_folder.h"
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
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

ModelFormat format_of(const std::string& word) {
  return word == "hf"   ? ModelFormat::kHuggingFace
         : word == "mg" ? ModelFormat::kMegatron
                        : ModelFormat::kPiton;
}

std::optional<DType> dtype_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  return word == "fp32" ? DType::kF32 : word == "bf16" ? DType::kBF16 : DType::kF16;
}

// Whether any flag of a model but its vocabulary was given.
bool is_named(ModelOptions options) {
  options.vocabulary.reset();
  ModelOptions none;
  OptionSet given;
  OptionSet empty;
  given.add("Model", options);
  empty.add("Model", none);
  return given.to_toml() != empty.to_toml();
}

// Counts bytes, and says so four times a second.
class Counter {
 public:
  Counter(std::int64_t total, Progress& progress) : total_(total), progress_(progress) {}

  void add(std::int64_t bytes) {
    done_ += bytes;
    const double now = seconds_since(start_);
    if (now < next_) return;
    next_ = now + 0.25;
    progress_.update({.done = done_,
                      .total = total_,
                      .seconds = now,
                      .note = fmt::format("{:.1f} of {:.1f} GB", static_cast<double>(done_) * 1e-9,
                                          static_cast<double>(total_) * 1e-9)});
  }
  std::int64_t done() const { return done_; }
  double seconds() const { return seconds_since(start_); }

 private:
  std::int64_t total_;
  Progress& progress_;
  std::int64_t done_ = 0;
  Clock::time_point start_ = Clock::now();
  double next_ = 0.25;
};

std::int64_t bytes_of(const TensorSource& source, std::optional<DType> dtype) {
  std::int64_t bytes = 0;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    bytes += one.shape.elements() * size_bytes(dtype.value_or(one.dtype));
  return bytes;
}

// The tokenizer of the model, null where there is none or it cannot be read.
std::unique_ptr<Tokenizer> tokenizer_of(const OpenedModel& model, std::vector<std::string>& notes) {
  if (model.tokenizer.empty()) return nullptr;
  try {
    return open_tokenizer(model.tokenizer);
  } catch (const Error& error) {
    notes.push_back(fmt::format("its tokenizer cannot be used here: {}", error.what()));
    return nullptr;
  }
}

// Files of the tokenizer, its template, and how the model generates; byte by byte.
void copy_companions(const fs::path& from, const fs::path& to) {
  if (from.empty()) return;
  create_folders(to);
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, ignored)) {
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

void make_huggingface(const fs::path& folder, const OpenedModel& from,
                      const ConvertOptions& options, Counter& counter,
                      std::vector<std::string>& notes) {
  const std::optional<DType> dtype = dtype_of(options.dtype);
  copy_companions(from.tokenizer_folder, folder);
  HfDescription description;
  if (from.origin) {
    description = {from.origin->family, from.origin->config};
  } else {
    description = hf_config_of(from.model);
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(from, notes);
    set_special_ids(tokenizer ? tokenizer->special() : SpecialIds{}, description.config);
    if (tokenizer && !fs::exists(folder / "generation_config.json")) {
      Json generation = {{"_from_model_config", true}};
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        if (!description.config[key].is_null()) generation[key] = description.config[key];
      }
      write_text_file(folder / "generation_config.json", generation.dump(2) + "\n");
    }
  }
  write_huggingface(folder, *from.source, from.model, description.family, description.config,
                    {.dtype = dtype,
                     .max_shard_bytes = options.max_shard_bytes,
                     .wrote = [&](std::int64_t bytes) { counter.add(bytes); }});
}

void make_checkpoint(const fs::path& folder, const OpenedModel& from, const ConvertOptions& options,
                     Counter& counter, std::vector<std::string>& notes) {
  const std::optional<DType> dtype = dtype_of(options.dtype);
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
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(from, notes);
  if (tokenizer) {
    stored.tokenizer = from.tokenizer;
    keep_tokenizer(from.tokenizer, *tokenizer, folder);
  }
  const std::string config = configuration_of(stored);
  write_text_file(folder / kConfigName, config);
  write_checkpoint(folder, *from.source, {.iteration = from.iteration}, config,
                   {.dtype = dtype,
                    .file_bytes = options.max_shard_bytes,
                    .wrote = [&](std::int64_t bytes) { counter.add(bytes); }});
}

MegatronLayout layout_of(const ConvertOptions& options, const ModelConfig& model) {
  MegatronLayout layout{.tensor = options.tensor, .pipeline = options.pipeline};
  layout.padded_vocabulary = megatron_padded_vocabulary(
      model.vocabulary, std::max<std::int64_t>(options.vocabulary_multiple, 1),
      std::max(options.tensor, 1));
  const std::int64_t stage = options.layers_of_virtual_stage;
  if (stage != 0) {
    const std::int64_t own = model.layers / std::max(options.pipeline, 1);
    if (stage < 0 || own % stage != 0) {
      throw Error(
          Fault::kUsage,
          "--num-layers-per-virtual-pipeline-stage: got {}, wanted a divisor of the {} layers "
          "of each pipeline rank",
          stage, own);
    }
    layout.chunks = static_cast<int>(own / stage);
  }
  layout.check(model);
  return layout;
}

void make_megatron(const fs::path& folder, const OpenedModel& from, const ConvertOptions& options,
                   Counter& counter) {
  copy_companions(from.tokenizer_folder, folder);
  write_megatron(folder, *from.source, from.model,
                 {.layout = layout_of(options, from.model),
                  .tree = !options.core                    ? MegatronTree::kLegacy
                          : options.core_layers == "local" ? MegatronTree::kCore
                                                           : MegatronTree::kTransformer,
                  .dtype = dtype_of(options.dtype),
                  .iteration = from.iteration,
                  .wrote = [&](std::int64_t bytes) { counter.add(bytes); }});
}

// What a checkpoint of Megatron has to be told, in the words of `options`; compared with none where
// the source says it itself.
MegatronGiven given_by(const ConvertOptions& options) {
  MegatronGiven given{.vocabulary = options.model.vocabulary};
  if (is_named(options.model)) {
    given.model = [options](std::int64_t padded) { return options.model.resolve(padded); };
  }
  return given;
}

// What the source says is not asked again.
void check_given(const ConvertOptions& options, const OpenedModel& from) {
  if (from.says_its_model && is_named(options.model)) {
    throw Error(
        Fault::kUsage,
        "--model, --num-layers and other flags of a model: {} says what its model is; leave "
        "them out",
        options.load);
  }
  if (from.format != ModelFormat::kMegatron && options.model.vocabulary) {
    throw Error(Fault::kUsage, "--vocab-size: {} says how many ids its model has; leave it out",
                options.load);
  }
}

// A format may lack words for what the model does: then even equal weights mean something else.
void check_description(const OpenedModel& from, const OpenedModel& result, ModelFormat format) {
  const std::string lost = model_difference(from.model, result.model);
  if (lost.empty()) return;
  throw Error(Fault::kData, "{}: {} cannot be said in the format {}; convert it to another",
              from.source->where(), lost, name(format));
}

// Throws, and so withdraws the draft, where the result is not the source.
VerifyReport verified(const Machine& machine, const OpenedModel& from, const OpenedModel& result,
                      const fs::path& target) {
  VerifyReport report = verify(machine, {*from.source, from.model}, {*result.source, result.model});
  if (report.equal()) return report;
  throw Error(Fault::kData,
              "{}: is not what {} holds, and was withdrawn: {}, logits differ by {}; please report "
              "this",
              target.string(), from.source->where(),
              report.differing.empty() ? "all weights are equal" : report.differing.front(),
              report.largest_difference);
}

}  // namespace

ConvertReport convert(const Machine& machine, const ConvertOptions& options, Progress& progress) {
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of one");
  if (options.save.empty())
    throw Error(Fault::kUsage, "--save: no folder is named; wanted one that is not there yet");
  if (options.max_shard_bytes <= 0) {
    throw Error(Fault::kUsage, "--max-shard-size: got {}, wanted a number of bytes",
                options.max_shard_bytes);
  }
  const OpenedModel from = open_model(options.load, given_by(options), options.average);
  if (!options.load_model_type.empty() && format_of(options.load_model_type) != from.format) {
    throw Error(Fault::kUsage, "--load-model-type: got {}, but {} is {}; leave the flag out",
                options.load_model_type, options.load, name(from.format));
  }
  check_given(options, from);
  ConvertReport report{.from = from.format, .notes = from.notes};
  report.to = !options.save_model_type.empty()     ? format_of(options.save_model_type)
              : from.format == ModelFormat::kPiton ? ModelFormat::kHuggingFace
                                                   : ModelFormat::kPiton;
  report.parameters = from.model.parameters();
  TargetFolder target(options.save);
  Counter counter(bytes_of(*from.source, dtype_of(options.dtype)), progress);
  switch (report.to) {
    case ModelFormat::kHuggingFace:
      make_huggingface(target.draft(), from, options, counter, report.notes);
      break;
    case ModelFormat::kMegatron:
      make_megatron(target.draft(), from, options, counter);
      break;
    case ModelFormat::kPiton:
      make_checkpoint(target.draft(), from, options, counter, report.notes);
      break;
  }
  report.bytes = counter.done();
  report.seconds = counter.seconds();
  progress.finish();
  const OpenedModel result = open_model(target.draft());
  check_description(from, result, report.to);
  if (!options.no_verify) report.verified = verified(machine, from, result, options.save);
  target.publish();
  return report;
}

}  // namespace piton
