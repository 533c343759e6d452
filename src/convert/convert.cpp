#include "convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/listed.h"
#include "convert/coded_weights.h"
#include "convert/source_checks.h"
#include "convert/target.h"
#include "convert/targets.h"
#include "convert/without_later_layers.h"
#include "gguf/architectures.h"
#include "gguf/gguf_source.h"
#include "huggingface/config_keys.h"
#include "huggingface/files/quantized_matrix.h"
#include "huggingface/hf_source.h"
#include "megatron/format/norm_gains.h"
#include "model_files/opened_adapter.h"
#include "text/compare_tokenizers.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGgufEnd = ".gguf";

ModelFormat format_of(const std::string& word) {
  return word == "hf"     ? ModelFormat::kHuggingFace
         : word == "mg"   ? ModelFormat::kMegatron
         : word == "gguf" ? ModelFormat::kGguf
                          : ModelFormat::kPiton;
}

// "model.ggufx", "model.safetensors": the name of a file, of which --to says nothing. Folders have
// dots in their names too ("llama-3.2", "model.v2").
void refuse_unknown_ending(const std::string& save) {
  const std::string ending = fs::path(save).extension().string();
  const bool is_file = ending.starts_with(".gg") || ending == ".safetensors" || ending == ".bin" ||
                       ending == ".pt" || ending == ".pth";
  if (!is_file) return;
  throw Error(Fault::kUsage,
              "--save: got {}, which looks like the name of a file of an unknown format; wanted a "
              "file NAME.gguf or a folder, or --to hf, mg, piton or gguf",
              save);
}

// What --to says, or --save and the source where it says nothing.
ModelFormat target_format(const ConvertOptions& options, ModelFormat from) {
  const bool names_gguf = options.save.ends_with(kGgufEnd);
  if (options.save_model_type.empty()) {
    if (names_gguf) return ModelFormat::kGguf;
    if (!options.megatron_flag().empty()) return ModelFormat::kMegatron;
    refuse_unknown_ending(options.save);
    return from == ModelFormat::kPiton ? ModelFormat::kHuggingFace : ModelFormat::kPiton;
  }
  const ModelFormat format = format_of(options.save_model_type);
  if (names_gguf != (format == ModelFormat::kGguf)) {
    throw Error(Fault::kUsage, "--save: got {}, wanted {} with --to {}", options.save,
                format == ModelFormat::kGguf ? "a file NAME.gguf" : "a folder", name(format));
  }
  return format;
}

// Types are named in the words of the format, and only some are divided.
void check_format_flags(const ConvertOptions& options, ModelFormat from, ModelFormat to) {
  // MindSpeed's scripts say of one rank of each kind, and of the source's modules, to hf too.
  ConvertOptions divided = options;
  if (divided.tensor == 1) divided.tensor.reset();
  if (divided.pipeline == 1) divided.pipeline.reset();
  const bool of_runs = from == ModelFormat::kPiton && to == ModelFormat::kHuggingFace;
  if (from == ModelFormat::kMegatron || of_runs) divided.core = false;
  if (from == ModelFormat::kMegatron && to != from) {
    divided.core_layers.clear();
    divided.apart_heads = false;
  }
  if (to != ModelFormat::kMegatron && !divided.megatron_flag().empty()) {
    throw Error(Fault::kUsage, "{}: is for --to mg, and this writes {}, which any layout loads",
                divided.megatron_flag(), name(to));
  }
  if (to != ModelFormat::kHuggingFace && options.tokenizer_ids) {
    throw Error(Fault::kUsage, "--tokenizer-special-ids: is for --to hf, and this writes {}",
                name(to));
  }
  if (to == ModelFormat::kGguf && !options.dtype.empty()) {
    throw Error(
        Fault::kUsage,
        "--params-dtype: is for hf, mg and piton; name the type of a GGUF file by --outtype");
  }
  if (to != ModelFormat::kGguf && !options.outtype.empty()) {
    throw Error(Fault::kUsage, "--outtype: is for gguf; name the type of {} by --params-dtype",
                name(to));
  }
}

// Counts bytes, and shows them.
class Counter {
 public:
  Counter(std::int64_t total, Progress& progress) : total_(total), shown_(progress, total) {}

  void add(std::int64_t bytes) {
    done_ += bytes;
    shown_.at(done_, [&] {
      return fmt::format("{:.1f} of {:.1f} GB", static_cast<double>(done_) * 1e-9,
                         static_cast<double>(total_) * 1e-9);
    });
  }
  std::int64_t done() const { return done_; }
  double seconds() const { return shown_.seconds(); }

 private:
  std::int64_t total_;
  ThrottledProgress shown_;
  std::int64_t done_ = 0;
};

// About what will be written.
std::int64_t bytes_of(const TensorSource& source, const ConvertOptions& options) {
  const std::optional<DType> dtype = chosen_dtype(options);
  const std::optional<GgmlType> type = chosen_ggml_type(options);
  std::int64_t bytes = 0;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) {
    const std::int64_t elements = one.shape.elements();
    if (options.coded && is_coded_matrix(one)) {
      bytes += elements * options.coded->format.bits / 8;
      continue;
    }
    bytes += type ? elements * block_bytes(*type) / block_values(*type)
                  : elements * size_bytes(dtype.value_or(one.dtype));
  }
  return bytes;
}

// A model computes in the type of its weights here, whatever its format says: both sides of a
// conversion are compared so.
OpenedModel open_side(const OpenRequest& request) {
  OpenedModel opened = open_model(request);
  opened.model.dtype = opened.weights_dtype;
  return opened;
}

// The rows of a table without padding, as a folder of Hugging Face says.
std::optional<std::int64_t> vocabulary_in(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  if (!fs::is_regular_file(file)) return std::nullopt;
  const auto config = read_json_or_discarded<nlohmann::json>(read_text_file(file, 1 << 24));
  if (!config.is_object() || !config.contains("vocab_size")) return std::nullopt;
  const nlohmann::json& size = config["vocab_size"];
  if (!size.is_number_integer()) return std::nullopt;
  return size.get<std::int64_t>();
}

OpenedModel open_source(const Machine& machine, const ConvertOptions& options,
                        const ModelPaths& paths) {
  // Used only where a checkpoint of Megatron does not have it itself.
  MegatronGiven given{.vocabulary = options.model.vocabulary};
  if (!given.vocabulary && is_huggingface_folder(options.save))
    given.vocabulary = vocabulary_in(options.save);
  if (options.model.describes_model()) {
    given.model = [&](std::int64_t padded) { return options.model.resolve(padded); };
  }
  OpenedModel from = open_side({.path = paths.base, .given = given, .average = options.average});
  if (!paths.adapters.empty()) {
    const auto ranks = make_group_of_all(machine.world, "convert");
    OpenedAdapter adapter = open_adapter(paths.adapters, from, *ranks);
    check_adapters(options, &adapter.adapters);
    merge_adapters(from, std::move(adapter));
  } else {
    check_adapters(options, nullptr);
  }
  if (from.has_optimizer) {
    from.notes.push_back(
        fmt::format("{}: the optimizer's state stays behind", from.source->where()));
  }
  return from;
}

// Of a format, or a family of Hugging Face, that has no layers that predict later tokens.
void leave_out_later_layers(OpenedModel& from, ModelFormat to, const ConvertOptions& options) {
  if (from.model.mtp_layers == 0 || to == ModelFormat::kPiton) return;
  if (to == ModelFormat::kMegatron && (options.core || options.is_torch_dist())) return;
  if (to == ModelFormat::kHuggingFace) {
    try {
      static_cast<void>(hf_config_of(from.model, from.origin));
      return;
    } catch (const Error&) {  // one that says why follows if it is something else
    }
  }
  from.model.mtp_layers = 0;
  from.source = std::make_unique<WithoutLaterLayers>(std::move(from.source));
  from.notes.push_back(
      fmt::format("{}: the layers that predict later tokens stay behind", from.source->where()));
}

// A format may lack words for what the model does: then even equal weights mean something else.
void check_description(const OpenedModel& from, const OpenedModel& result, ModelFormat format) {
  const bool gguf = format == ModelFormat::kGguf;
  const std::string lost =
      model_difference(gguf ? model_in_gguf(from.model) : from.model, result.model);
  if (lost.empty()) return;
  throw Error(Fault::kData, "{}: {} cannot be expressed in the format {}; convert it to another",
              from.source->where(), lost, name(format));
}

struct Conversion {
  const Machine& machine;
  const OpenedModel& from;
  const OpenedModel& result;
  const fs::path& target;
  const SourceStamps& stamps;
  Progress& progress;
  CodedSource* coded;  // or null
};

// Throws, and so withdraws the draft, where the result is not `wanted`, which is what the format
// makes of the source.
VerifyReport verified(const Conversion& made, TensorSource& wanted) {
  const OpenedModel& from = made.from;
  VerifyReport report =
      verify(made.machine, {wanted, from.model}, {*made.result.source, made.result.model},
             made.progress, from.source.get());
  made.stamps.check();
  if (!report.beyond_type.empty()) {
    throw Error(Fault::kData, "{}: {} in the type of {}; wanted a type of more range: bf16 or fp32",
                from.source->where(), report.beyond_type, made.target.string());
  }
  if (report.equal()) return report;
  throw Error(Fault::kData,
              "{}: differs from {} and was removed: {}, logits differ by {}; please report "
              "this",
              made.target.string(), from.source->where(),
              report.differing.empty() ? "all weights are equal" : report.differing.front(),
              report.largest_difference);
}

void verify_result(const Conversion& made, ConvertReport& report) {
  const OpenedModel& from = made.from;
  const GgufSource* gguf = made.result.gguf;
  if (gguf == nullptr && made.result.format == ModelFormat::kMegatron) {
    std::optional<DType> gains;  // in the file
    for (const CanonicalTensor& one : made.result.source->tensors(TensorKind::kWeight))
      if (one.name.ends_with(".delta.output.weight")) gains = one.dtype;  // written_dtype()
    ShiftedGains stored(*from.source, from.model, -1);
    ShiftedGains wanted(stored, from.model, 1, gains);
    report.verified = verified(made, wanted);
  } else if (gguf == nullptr) {
    report.verified = verified(made, made.coded != nullptr ? *made.coded : *from.source);
  } else {
    AsGgufHolds wanted(*from.source, *gguf);
    report.verified = verified(made, wanted);
  }
  if (made.coded != nullptr || (gguf != nullptr && stores_codes(*gguf))) {
    report.quantization = compare_outputs(made.machine, {*from.source, from.model},
                                          {*made.result.source, made.result.model}, made.progress);
  }
}

// Null where there is none that can be used; a note says why.
std::unique_ptr<Tokenizer> tokenizer_or_none(const OpenedModel& model) {
  try {
    return open_tokenizer_of(model);
  } catch (const Error&) {
    return nullptr;
  }
}

// Throws, and so withdraws the draft, where the two tokenizers give other ids.
void verify_tokenizers(const Conversion& made, ConvertReport& report) {
  const std::unique_ptr<Tokenizer> theirs = tokenizer_or_none(made.from);
  const std::unique_ptr<Tokenizer> ours = tokenizer_or_none(made.result);
  if (!theirs || !ours) return;
  std::vector<std::string> texts = varied_texts(*theirs);
  const auto difference_of = [&](const std::vector<std::string>& some) {
    // Texts of an encoder get [CLS] and [SEP] whatever the files say (api/encoder.h), and it writes
    // no text: Megatron's BERT tokenizers put a space before a full stop, Transformers' does not.
    const ModelConfig& model = made.from.model;
    return text_difference({*theirs, "the source"}, {*ours, "the result"}, some,
                           {.special_tokens = !model.encoder && !model.encoder_decoder,
                            .decoded_text = !model.encoder});
  };
  // llama.cpp puts a space before every text, the `tokenizers` library's Metaspace before those
  // that do not begin with one. No entry says which.
  const auto spaced = std::stable_partition(
      texts.begin(), texts.end(), [](const std::string& text) { return !text.starts_with(' '); });
  const std::vector<std::string> with_space(spaced, texts.end());
  const std::string beyond =
      report.to == ModelFormat::kGguf ? difference_of(with_space) : std::string();
  if (!beyond.empty()) {
    texts.erase(spaced, texts.end());
    report.notes.push_back(fmt::format(
        "texts that begin with a space get one more from a GGUF file's tokenizer: {}", beyond));
  }
  const std::string difference = difference_of(texts);
  if (!difference.empty()) {
    throw Error(Fault::kData,
                "{}: its tokenizer differs from that of {}, so it was removed: {}; --no-verify "
                "keeps it",
                made.target.string(), made.from.source->where(), difference);
  }
  report.texts = std::ssize(texts);
}

void check_names(const ConvertOptions& options) {
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of one");
  if (options.save.empty())
    throw Error(Fault::kUsage, "--save: no folder is named; wanted one that is not there yet");
  if (options.max_shard_bytes <= 0) {
    throw Error(Fault::kUsage, "--max-shard-size: got {}, wanted a number of bytes",
                options.max_shard_bytes);
  }
}

struct Planned {
  OpenedModel from;
  std::unique_ptr<SourceStamps> stamps;
  ModelFormat to = ModelFormat::kPiton;
  fs::path save;
};

// MindSpeed-LLM's converter is given the folder of Hugging Face that a model of Megatron came from
// as the target, and writes into this folder there.
constexpr const char* kMegatronToHf = "mg2hf";

// --save, or the folder above; then the model has the tokenizer of --save, if it has none.
fs::path target_path(const ConvertOptions& options, ModelFormat to, OpenedModel& from) {
  const fs::path save(options.save);
  const bool has_original = from.format == ModelFormat::kMegatron &&
                            to == ModelFormat::kHuggingFace && is_huggingface_folder(save);
  if (!has_original) return save;
  const bool takes_tokenizer = from.tokenizer.empty() && from.tokenizer.folder.empty();
  if (takes_tokenizer) from.tokenizer = tokenizer_of_folder(save);
  from.notes.push_back(fmt::format("--save: {} is a folder of Hugging Face; the result is in {}{}",
                                   options.save, (save / kMegatronToHf).string(),
                                   takes_tokenizer ? ", with its tokenizer" : ""));
  return save / kMegatronToHf;
}

// The source, which has been compared with the options.
Planned plan_of(const Machine& machine, const ConvertOptions& options) {
  const ModelPaths paths = model_paths(options.load, options.lora_load);
  Planned planned{.from = open_source(machine, options, paths), .stamps = nullptr};
  OpenedModel& from = planned.from;
  planned.stamps = std::make_unique<SourceStamps>(from);
  check_source(options, from);
  // What was trained goes to other programs.
  planned.to = target_format(options, paths.adapters.empty() ? from.format : ModelFormat::kPiton);
  check_format_flags(options, from.format, planned.to);
  leave_out_later_layers(from, planned.to, options);
  planned.save = target_path(options, planned.to, from);
  check_target_holds(from, planned.to, options);
  return planned;
}

std::unique_ptr<Target> target_of(const Planned& planned) {
  if (planned.to == ModelFormat::kGguf) return std::make_unique<Target>(planned.save, kGgufDraft);
  return std::make_unique<Target>(planned.save);
}

}  // namespace

void check_conversion(const Machine& machine, const ConvertOptions& options) {
  check_names(options);
  const Planned planned = plan_of(machine, options);
  if (options.coded) check_coded(planned.from, *options.coded);
  Target::check(planned.save, planned.to == ModelFormat::kGguf);
}

ConvertReport convert(const Machine& machine, const ConvertOptions& options, Progress& progress) {
  check_names(options);
  if (options.save_model_type == "peft" || options.save_model_type == "gguf-lora")
    return convert_adapters(machine, options, progress);
  const Planned planned = plan_of(machine, options);
  const OpenedModel& from = planned.from;
  const SourceStamps& stamps = *planned.stamps;
  ConvertReport report{
      .from = from.format, .to = planned.to, .save = planned.save.string(), .notes = from.notes};
  report.parameters = from.model.parameters();
  const std::unique_ptr<Target> target = target_of(planned);
  const fs::path codes_folder = target->draft() / "codes";  // while they are made
  std::unique_ptr<CodedSource> coded;
  if (options.coded) {
    CodedWeights wanted = *options.coded;
    coded = make_coded({machine, from, codes_folder, progress}, wanted);
  }
  Counter counter(bytes_of(*from.source, options), progress);
  const TargetContext context{.options = options,
                              .wrote = [&](std::int64_t bytes) { counter.add(bytes); },
                              .threads = machine.threads,
                              .notes = report.notes,
                              .coded = coded.get()};
  switch (report.to) {
    case ModelFormat::kHuggingFace:
      make_huggingface(target->draft(), from, context);
      break;
    case ModelFormat::kMegatron:
      make_megatron(target->draft(), from, context);
      break;
    case ModelFormat::kGguf:
      make_gguf(target->draft(), from, context);
      break;
    case ModelFormat::kPiton:
      make_checkpoint(target->draft(), from, context);
      break;
  }
  report.bytes = counter.done();
  report.seconds = counter.seconds();
  progress.finish();
  stamps.check();
  {
    const OpenedModel result = open_side({.path = target->result()});
    check_description(from, result, report.to);
    if (!options.no_verify) {
      const Conversion made{machine, from, result, planned.save, stamps, progress, coded.get()};
      verify_result(made, report);
      verify_tokenizers(made, report);
    }
    if (report.verified && !report.verified->not_finite.empty()) {
      report.notes.push_back(fmt::format("{}: values that are not finite in {}; is it damaged?",
                                         from.source->where(),
                                         listed(report.verified->not_finite)));
    }
  }
  coded.reset();
  fs::remove_all(codes_folder);
  target->publish();
  return report;
}

}  // namespace piton
