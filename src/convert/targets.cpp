#include "convert/targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/options/option_range.h"
#include "checkpoint/write_source.h"
#include "convert/megatron_layout.h"
#include "gguf/architectures.h"
#include "huggingface/config_keys.h"
#include "huggingface/files/origin.h"
#include "huggingface/files/tensor_files.h"
#include "huggingface/hf_writer.h"
#include "megatron/format/arguments.h"
#include "megatron/megatron_writer.h"
#include "megatron/torch_dist_writer.h"
#include "text/files/byte_tokenizer.h"
#include "train/run/pretrain_options.h"
#include "train/run/resume_rules.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The tokenizer of the model, null where there is none, or a note says why it cannot be used.
std::unique_ptr<Tokenizer> usable_tokenizer(const OpenedModel& model,
                                            std::vector<std::string>& notes) {
  try {
    std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(model);
    if (tokenizer) check_rows_for(*tokenizer, model.model, model.tokenizer.folder.string());
    return tokenizer;
  } catch (const Error& error) {
    notes.push_back(fmt::format("its tokenizer cannot be used here: {}", error.what()));
    return nullptr;
  }
}

// Files of the tokenizer, its template, and how the model generates; byte by byte.
void copy_companions(const OpenedModel& from, const fs::path& to) {
  for (const auto& [name, content] : from.tokenizer.texts) write_text_file(to / name, content);
  const fs::path& folder = from.tokenizer.folder;
  if (!folder.empty()) create_folders(to);
  for (const fs::path& file : tokenizer_files_in(folder)) {
    check_huggingface_link(file, folder);
    write_text_file(to / file.lexically_relative(folder), read_text_file(file));
  }
  if (from.adapter_template.empty()) return;
  create_folders(to);
  write_text_file(to / "chat_template.jinja", from.adapter_template);
}

// OpenAI's names of GPT-2's files, which Transformers does not look for. Without settings it takes
// the class of the model's family, which may read other files.
void name_merges_files(const fs::path& draft) {
  if (fs::exists(draft / "tokenizer.json")) return;
  for (const auto& [theirs, name] :
       {std::pair{"encoder.json", "vocab.json"}, {"vocab.bpe", "merges.txt"}}) {
    if (fs::exists(draft / theirs) && !fs::exists(draft / name))
      fs::rename(draft / theirs, draft / name);
  }
  if (fs::exists(draft / "tokenizer_config.json")) return;
  const Json json = {{"tokenizer_class", "GPT2Tokenizer"}};
  write_text_file(draft / "tokenizer_config.json", json.dump(2) + "\n");
}

// The files that flags name (--vocab-file, --merge-file), under the names that Transformers looks
// for. A vocab.txt says nothing of capitals, and Transformers would lower the case of them all. The
// tokenizer of bytes has no files, and gets some.
void name_vocabulary_files(const OpenedModel& from, const fs::path& draft) {
  const TokenizerOptions& options = from.tokenizer.options;
  const std::string& file = options.vocab_file.empty() ? options.name_or_path : options.vocab_file;
  const auto put = [&](const std::string& path, const char* name, const char* other) {
    if (!fs::is_regular_file(path) || fs::exists(draft / name) || fs::exists(draft / other)) return;
    write_text_file(draft / name, read_text_file(path));
  };
  if (options.type == "ByteTokenizer") {
    const ByteTokenizerFiles files = byte_tokenizer_files();
    write_text_file(draft / "tokenizer.json", files.tokenizer_json);
    write_text_file(draft / "tokenizer_config.json", files.tokenizer_config_json);
  } else if (!options.merge_file.empty()) {
    put(file, "vocab.json", "encoder.json");
    put(options.merge_file, "merges.txt", "vocab.bpe");
    name_merges_files(draft);
  } else if (fs::exists(draft / "vocab.bpe")) {
    name_merges_files(draft);
  } else if (file.ends_with(".model")) {
    put(file, "tokenizer.model", "spiece.model");
  } else if (file.ends_with(".txt") || options.type.starts_with("BertWordPiece")) {
    put(file, "vocab.txt", "vocab.txt");
    if (fs::exists(draft / "tokenizer_config.json") || !fs::exists(draft / "vocab.txt")) return;
    const bool lower = options.type != "BertWordPieceCase";
    const Json json = {{"tokenizer_class", "BertTokenizer"},
                       {"do_lower_case", lower},
                       {"strip_accents", lower},
                       {"tokenize_chinese_chars", true}};
    write_text_file(draft / "tokenizer_config.json", json.dump(2) + "\n");
  }
}

// Modules in Python of a model that Transformers lacks; "auto_map" names some, which import others.
// They are copied and never run. A checkpoint of Piton does not have them.
void copy_modules(const OpenedModel& from, const fs::path& draft, const Json& config,
                  std::vector<std::string>& notes) {
  if (!config.contains("auto_map")) return;
  if (from.format != ModelFormat::kHuggingFace) {
    notes.push_back(
        "config.json names modules in Python (auto_map) that are not here: copy the *.py files of "
        "the folder that the weights come from, if Transformers is to load it");
    return;
  }
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(from.tokenizer.folder, ignored)) {
    if (!entry.is_regular_file(ignored) || entry.path().extension() != ".py") continue;
    check_huggingface_link(entry.path(), from.tokenizer.folder);
    write_text_file(draft / entry.path().filename(), read_text_file(entry.path()));
  }
}

bool is_encoder(const ModelConfig& model) { return model.encoder || model.encoder_decoder; }

constexpr const char* kSpecialIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr const char* kDecoderStart = "decoder_start_token_id";

// Whether config.json names ids that end a text, and `end` is none of them.
bool ends_by_another(const Json& config, std::optional<std::int32_t> end) {
  const Json said = config.value("eos_token_id", Json());
  if (said.is_null()) return false;
  const Json ids = said.is_array() ? said : Json::array({said});
  return std::ranges::none_of(ids, [&](const Json& id) { return end && id == *end; });
}

// Ids that the weights' origin says stay as they are: they may be more than the tokenizer knows. A
// new config.json says null of those that are not known, for Transformers' own are others.
// `asked`: --tokenizer-special-ids. Without it another tokenizer than the origin's sets none.
void set_special_ids(const OpenedModel& from, const fs::path& draft, Json& config, bool asked,
                     std::vector<std::string>& notes) {
  std::unique_ptr<Tokenizer> tokenizer = usable_tokenizer(from, notes);
  const SpecialIds special = tokenizer ? tokenizer->special() : SpecialIds{};
  const std::optional<std::int32_t> end = special.eos ? special.eos : special.eod;
  if (asked && tokenizer) {
    for (const char* key : kSpecialIds) config.erase(key);
  } else if (tokenizer && (from.has_other_tokenizer() || ends_by_another(config, end))) {
    notes.push_back(fmt::format(
        "config.json keeps eos_token_id {} of the model that the weights come from, and the "
        "tokenizer of the run ends a text by {} (--tokenizer-special-ids writes that)",
        config.value("eos_token_id", Json()).dump(), end ? std::to_string(*end) : "no id"));
    if (from.has_other_tokenizer()) {
      fs::remove(draft / "generation_config.json");  // of that tokenizer
      tokenizer = nullptr;
    }
  }
  const auto is_given = [&](const char* key) { return config.contains(key); };
  const bool is_new = from.origin.size() <= 1;           // "model_type" at most
  if (is_new && tokenizer && is_given(kDecoderStart)) {  // so far those of T5's own tokenizers
    for (const char* key : kSpecialIds) config.erase(key);
    config[kDecoderStart] = special.bos.value_or(special.pad.value_or(0));
  }
  if ((tokenizer || is_new) && std::ranges::none_of(kSpecialIds, is_given)) {
    const std::optional<std::int32_t> ids[] = {special.bos, end, special.pad};
    for (std::size_t i = 0; i < std::size(ids); ++i)
      config[kSpecialIds[i]] = tokenizer && ids[i] ? Json(*ids[i]) : Json();
  }
  if ((!tokenizer && !from.has_other_tokenizer()) || fs::exists(draft / "generation_config.json"))
    return;
  Json generation = {{"_from_model_config", true}};
  for (const char* key : kSpecialIds) {
    if (is_given(key) && !config[key].is_null()) generation[key] = config[key];
  }
  write_text_file(draft / "generation_config.json", generation.dump(2) + "\n");
}

// By this id Transformers finds the last tokens of texts in a batch, from which a decoder's labels
// are read; it refuses a batch without it.
void set_padding(const OpenedModel& from, Json& config) {
  const bool is_there = from.format == ModelFormat::kHuggingFace && !from.new_head;
  if (!from.model.classifies() || from.model.encoder || is_there) return;
  if (config.contains("pad_token_id") && !config["pad_token_id"].is_null()) return;
  std::vector<std::string> said_before;
  const std::unique_ptr<Tokenizer> tokenizer = usable_tokenizer(from, said_before);
  if (tokenizer == nullptr) return;
  const SpecialIds& special = tokenizer->special();
  const std::optional<std::int32_t> end = special.eos ? special.eos : special.eod;
  if (special.pad || end) config["pad_token_id"] = special.pad ? *special.pad : *end;
}

// Weights of a checkpoint are of the type that the run computes in.
ModelConfig checkpoint_model(const OpenedModel& from, const ConvertOptions& options) {
  ModelConfig model = from.model;
  model.dtype =
      chosen_dtype(options).value_or(model.dtype) == DType::kBF16 ? DType::kBF16 : DType::kF32;
  return model;
}

ModelOptions flags_of(const ModelConfig& model) {
  ModelOptions flags = ModelOptions::of(model);
  flags.bf16 = model.dtype == DType::kBF16;
  return flags;
}

void check_checkpoint(const OpenedModel& from, const ConvertOptions& options) {
  const ModelConfig model = checkpoint_model(from, options);
  const ModelConfig said = flags_of(model).resolve(model.vocabulary);
  if (said == model) return;
  throw Error(Fault::kData,
              "{}: no flag of pretrain expresses {}, so it cannot be a checkpoint of Piton; use it "
              "as it is",
              from.source->where(), model_difference(model, said));
}

// Why the format mg does not hold the model; "" where its arguments say the whole model.
std::string beyond_arguments(const OpenedModel& from) {
  constexpr const char* kNot = "cannot be expressed in the format mg";
  try {
    const std::string lost = model_difference(from.model, model_in_megatron(from.model));
    return lost.empty()
               ? ""
               : fmt::format("{} {}, as Megatron's arguments have no words for it", lost, kNot);
  } catch (const Error& error) {
    return fmt::format("{} ({})", kNot, error.what());
  }
}

// "use --to piton or --to gguf": other formats than the source's that hold its model.
std::string suitable_formats(const OpenedModel& from, const ConvertOptions& options) {
  std::vector<std::string> words;
  for (const ModelFormat one :
       {ModelFormat::kPiton, ModelFormat::kHuggingFace, ModelFormat::kGguf}) {
    if (one == from.format) continue;
    try {
      check_target_holds(from, one, options);
      words.push_back(fmt::format("--to {}", name(one)));
    } catch (const Error&) {
      // Not this one.
    }
  }
  return words.empty() ? "it can be used as it is"
                       : fmt::format("use {}", fmt::join(words, " or "));
}

// Throws for `what` of a model, if anything, that only Megatron-core's modules have.
void check_modules(const char* what, const OpenedModel& from, const ConvertOptions& options) {
  if (what == nullptr || options.core || options.is_torch_dist()) return;
  throw Error(Fault::kData,
              "{}: {}, which Piton writes in the format mg with "
              "--use-mcore-models or --ckpt-format torch_dist alone, not with older modules; or {}",
              from.source->where(), what, suitable_formats(from, options));
}

void check_megatron(const OpenedModel& from, const ConvertOptions& options) {
  const char* what = from.model.experts       ? "is a mixture of experts"
                     : from.model.latent      ? "has latent attention"
                     : from.model.delta       ? "has the gated delta rule"
                     : from.model.state_space ? "has layers of Mamba-2"
                                              : nullptr;
  check_modules(what, from, options);
  const std::string lost = beyond_arguments(from);
  if (!lost.empty()) {
    throw Error(Fault::kData, "{}: {}; {}", from.source->where(), lost,
                suitable_formats(from, options));
  }
  const bool yarn = from.model.rotary_scaling.kind == RotaryScaling::Kind::kYarn;
  check_modules(from.model.window_before                        ? "has an attention window"
                : yarn                                          ? "has yarn"
                : from.model.softmax == SoftmaxKind::kLearnable ? "has learned sinks"
                                                                : nullptr,
                from, options);
  static_cast<void>(megatron_layout(options, from));
}

void refuse_quantization(const OpenedModel& from, const ConvertOptions& options) {
  const bool quantizes = options.coded || options.outtype.starts_with("q");
  if (!quantizes || !is_encoder(from.model)) return;
  throw Error(Fault::kUsage, "quantize: {} is {} ({}); wanted a decoder", from.source->where(),
              from.model.encoder ? "an encoder" : "an encoder with a decoder", from.model.family);
}

void refuse_encoder(const OpenedModel& from, ModelFormat to) {
  if (!is_encoder(from.model)) return;
  throw Error(Fault::kData,
              "{}: an encoder ({}) cannot be expressed in the format {}, which Piton writes for "
              "decoders alone; use --to piton or --to hf",
              from.source->where(), from.model.family, name(to));
}

}  // namespace

void check_target_holds(const OpenedModel& from, ModelFormat to, const ConvertOptions& options) {
  refuse_quantization(from, options);
  if (from.model.encoder && !from.model.encoder->word_head && from.model.labels == 0) {
    throw Error(
        Fault::kData,
        "{}: an encoder without a head for masked words is not converted; piton embed reads "
        "it",
        from.source->where());
  }
  switch (to) {
    case ModelFormat::kHuggingFace:
      static_cast<void>(hf_config_of(from.model, from.origin));
      return;
    case ModelFormat::kMegatron:
      return check_megatron(from, options);
    case ModelFormat::kGguf:
      refuse_encoder(from, to);
      static_cast<void>(describe_gguf(from.model, family_of(from), from.source->where()));
      return;
    case ModelFormat::kPiton:
      return check_checkpoint(from, options);
  }
}

std::optional<DType> chosen_dtype(const ConvertOptions& options) {
  if (options.dtype.empty()) return std::nullopt;
  return options.dtype == "fp32"   ? DType::kF32
         : options.dtype == "bf16" ? DType::kBF16
                                   : DType::kF16;
}

void make_huggingface(const fs::path& draft, const OpenedModel& from,
                      const TargetContext& context) {
  copy_companions(from, draft);
  name_vocabulary_files(from, draft);
  HfDescription description = hf_config_of(from.model, from.origin);
  if (!description.note.empty()) {
    context.notes.push_back(fmt::format("{}: {}", from.source->where(), description.note));
  }
  copy_modules(from, draft, description.config, context.notes);
  if (from.format == ModelFormat::kHuggingFace && !context.options.tokenizer_ids) {
    usable_tokenizer(from, context.notes);  // for the note
  } else {
    set_special_ids(from, draft, description.config, context.options.tokenizer_ids, context.notes);
  }
  set_padding(from, description.config);
  TensorSource& source = context.coded != nullptr ? *context.coded : *from.source;
  write_huggingface(
      draft, source, {from.model, description.family, description.config},
      {.dtype = chosen_dtype(context.options),
       .codes = context.coded != nullptr ? std::optional(context.coded->format()) : std::nullopt,
       .max_shard_bytes = context.options.max_shard_bytes,
       .wrote = context.wrote,
       .threads = &context.threads});
}

void make_checkpoint(const fs::path& draft, const OpenedModel& from, const TargetContext& context) {
  PretrainOptions stored;
  stored.model = flags_of(checkpoint_model(from, context.options));
  if (from.tokenizer.texts.empty()) {
    const std::unique_ptr<Tokenizer> tokenizer = usable_tokenizer(from, context.notes);
    if (tokenizer) {
      stored.tokenizer = from.tokenizer.options;
      keep_tokenizer(from.tokenizer, *tokenizer, draft);
    }
  } else {
    // A run keeps its tokenizer in this folder.
    copy_companions(from, draft / kTokenizerFolder);
    stored.tokenizer.name_or_path =
        (fs::absolute(context.options.save) / kTokenizerFolder).string();
  }
  keep_chat_template(from.adapter_template, draft);
  const std::string config = configuration_of(stored);
  write_text_file(draft / kConfigName, config);
  TrainState state{.iteration = from.iteration};
  keep_origin(from.origin, state.facts);
  write_checkpoint(draft, *from.source, state, config,
                   {.dtype = chosen_dtype(context.options),
                    .file_bytes = context.options.max_shard_bytes,
                    .wrote = context.wrote,
                    .threads = &context.threads});
}

void make_megatron(const fs::path& draft, const OpenedModel& from, const TargetContext& context) {
  const ConvertOptions& options = context.options;
  copy_companions(from, draft);
  usable_tokenizer(from, context.notes);  // for the note
  const std::string beyond = beyond_megatron(from.model);
  if (!beyond.empty()) {
    context.notes.push_back(fmt::format(
        "{}: has {}, which Megatron-LM does not know: its arguments say it to Piton alone, and "
        "other programs compute without it",
        from.source->where(), beyond));
  }
  write_megatron(draft, *from.source, from.model,
                 {.layout = megatron_layout(options, from),
                  .form = options.is_torch_dist() ? MegatronForm::kTorchDist
                          : options.deepspeed     ? MegatronForm::kDeepSpeed
                                                  : MegatronForm::kRankFiles,
                  .tree = megatron_tree(options, from.model),
                  .dtype = chosen_dtype(options),
                  .iteration = from.iteration,
                  .model_type = family_of(from),
                  .arguments = options.arguments,
                  .max_file_bytes = options.max_shard_bytes,
                  .wrote = context.wrote,
                  .threads = &context.threads});
}

}  // namespace piton
