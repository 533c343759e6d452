#include "model_files/opened_adapter.h"

#include "adapters/base_hash.h"
#include "adapters/merged_source.h"
#include "adapters/peft_source.h"
#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/collective.h"
#include "checkpoint/manifest.h"
#include "checkpoint/store.h"
#include "gguf/gguf_file.h"
#include "huggingface/config_keys.h"
#include "model_files/checked_source.h"
#include "model_files/gguf_adapter.h"
#include "model_files/label_base.h"
#include "model_files/native_config.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// What a head of `count` rows gives: as the adapter says, else the base's config.json; without
// either one of the labels, and of one row rewards.
WantedLabels labels_of_peft(const fs::path& folder, const OpenedModel& base, std::int64_t count) {
  std::string problem = problem_of_adapter(folder);
  if (problem.empty() && base.origin.is_object()) {
    const auto found = base.origin.find(kPeftProblem);
    if (found != base.origin.end() && found->is_string()) problem = found->get<std::string>();
  }
  const bool one = count == 1;
  if ((problem == kRegression && !one) || (problem == kOneOfLabels && one)) {
    throw Error(Fault::kData, "{}: {} is {}, and its head has {} row{}; wanted {}", folder.string(),
                kPeftProblem, problem, count, one ? "" : "s",
                one ? fmt::format("{} or {}", kRegression, kSeveralLabels)
                    : fmt::format("{} or {}", kOneOfLabels, kSeveralLabels));
  }
  return {
      .count = count, .regression = problem == kRegression, .several = problem == kSeveralLabels};
}

OpenedAdapter open_peft(const fs::path& folder, OpenedModel& base) {
  if (const std::int64_t labels = labels_of_adapter(folder); labels > 0)
    make_classifier(base, labels_of_peft(folder, base, labels));
  OpenedAdapter opened{.kind = "adapter of PEFT"};
  auto source = std::make_unique<PeftSource>(folder, base.model,
                                             hf_config_of(base.model, base.origin).family);
  opened.adapters = source->adapters();
  opened.source = std::move(source);
  opened.chat_templates = chat_templates_in(folder);
  return opened;
}

OpenedAdapter open_gguf(const fs::path& path, const OpenedModel& base) {
  OpenedAdapter opened{.kind = "adapter of llama.cpp"};
  auto source = std::make_unique<GgufAdapterSource>(path, base.model);
  opened.adapters = source->adapters();
  opened.source = std::move(source);
  return opened;
}

void set_head(const NativeConfig& adapters, OpenedModel& base) {
  const LabelOptions& labels = adapters.model.labels;
  if (labels.number() > 0) make_classifier(base, labels.wanted());
}

OpenedAdapter open_checkpoint(const fs::path& checkpoint, OpenedModel& base) {
  const NativeConfig config = read_native_config(checkpoint);
  if (!config.lora.given()) {
    throw Error(Fault::kData,
                "{}: is a checkpoint of a whole model, wanted one of a run with "
                "--lora-target-modules",
                checkpoint.string());
  }
  set_head(config, base);
  OpenedAdapter opened{.kind = "adapters of a run"};
  opened.adapters = config.lora.resolve(base.model);
  const Manifest manifest = read_manifest(checkpoint);
  opened.source = std::make_unique<CheckedSource>(checkpoint, manifest, WeightsKind::kTrained);
  opened.facts = read_state(checkpoint, manifest).facts;
  opened.tokenizer = tokenizer_of_checkpoint(config.tokenizer, checkpoint);
  const auto hash = opened.facts.find(kBaseFact);
  if (hash != opened.facts.end()) opened.base_hash = hash->second;
  return opened;
}

// Puts `own` in the place of `templates`, whose special tokens stay where `own` has none; not if
// there are none. Returns a line about it, "" if nothing changes.
std::string replace_templates(const ModelChatTemplates& own, ModelChatTemplates& templates) {
  if (own.files.templates.empty() && own.fault.empty()) return "";
  const bool same = own.fault.empty() &&
                    default_chat_template(own.files) == default_chat_template(templates.files);
  nlohmann::ordered_json special_tokens = templates.files.special_tokens;
  if (!special_tokens.is_object()) special_tokens = nlohmann::ordered_json::object();
  if (own.files.special_tokens.is_object()) special_tokens.update(own.files.special_tokens);
  templates = own;
  templates.files.special_tokens = std::move(special_tokens);
  return same ? "" : fmt::format("chat template: that of {}, not the base's", own.files.where);
}

// Owns both parts.
class MergedModel final : public TensorSource {
 public:
  MergedModel(std::unique_ptr<TensorSource> base, std::unique_ptr<TensorSource> adapter,
              const Adapters& adapters)
      : base_(std::move(base)),
        adapter_(std::move(adapter)),
        merged_(*base_, *adapter_, adapters) {}
  std::string where() const override { return merged_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return merged_.tensors(kind);
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    merged_.read(name, run, dtype, dst);
  }
  bool reads_in_parallel() const override { return merged_.reads_in_parallel(); }

 private:
  std::unique_ptr<TensorSource> base_;
  std::unique_ptr<TensorSource> adapter_;
  MergedSource merged_;
};

// Does nothing if the base of the adapters is not known.
void check_base(const OpenedAdapter& adapter, OpenedModel& base, Communicator& ranks) {
  if (adapter.base_hash.empty()) return;
  const std::string got = weights_hash(*base.source, ranks);
  if (got == adapter.base_hash) return;
  phase(ranks, 0, [&] {
    throw Error(
        Fault::kData,
        "{}: was trained on a model whose weights have the hash {}, got {} with {}; give the "
        "model that it was trained on as --load",
        adapter.source->where(), adapter.base_hash, base.source->where(), got);
  });
}

// A pooler that neither the base nor the adapter has would be 0.
void check_pooler(const OpenedAdapter& adapter, const OpenedModel& base) {
  for (const std::string& name : base.drawn) {
    if (adapter.adapters.trained.contains(name)) continue;
    throw Error(Fault::kData,
                "{}: has no {}, nor has {}; wanted a model with a pooler, or an adapter that saves "
                "one (modules_to_save)",
                adapter.source->where(), name, base.name);
  }
}

// The base of the run in `path`, or of the run of that checkpoint, as its configuration names it;
// "" if it is no run that trains adapters. Throws Error(kData) for a damaged checkpoint.
std::string base_of_adapters(const fs::path& path) {
  if (model_format_of(path) != ModelFormat::kPiton || !holds_checkpoint(path)) return "";
  const NativeConfig config = read_native_config(find_checkpoint(path));
  return config.lora.given() ? config.base : "";
}

}  // namespace

void check_holds_adapter(const fs::path& path) {
  if (is_adapter_alone(path) || holds_checkpoint(path)) return;
  std::error_code ignored;
  throw Error(Fault::kData,
              "{}: {}; wanted a run that trained adapters, one of its checkpoints, an "
              "adapter of PEFT (a folder with adapter_config.json), or one in a GGUF file",
              path.string(),
              fs::exists(path, ignored) ? "holds no adapter" : "there is no such folder or file");
}

bool is_adapter_alone(const fs::path& path) { return is_peft_folder(path) || is_gguf_file(path); }

OpenedAdapter open_adapter(const fs::path& path, OpenedModel& base, Communicator& ranks) {
  phase(ranks, 0, [&] { check_holds_adapter(path); });
  const fs::path place = is_adapter_alone(path) ? path : fs::path(found_by_first(ranks, [&] {
    return find_checkpoint(path).string();
  }));
  OpenedAdapter opened;
  phase(ranks, std::nullopt, [&] {
    opened = is_peft_folder(place) ? open_peft(place, base)
             : is_gguf_file(place) ? open_gguf(place, base)
                                   : open_checkpoint(place, base);
    check_pooler(opened, base);
  });
  check_base(opened, base, ranks);
  return opened;
}

ModelPaths model_paths(const fs::path& load, const fs::path& lora_load) {
  const std::string base = base_of_adapters(load);
  if (!lora_load.empty()) {
    if (base.empty()) return {load, lora_load};
    throw Error(Fault::kUsage,
                "--load: {} is a run of adapters, and --lora-load names other ones; give its base, "
                "--load {}",
                load.string(), base);
  }
  if (base.empty()) return {load, {}};
  if (!fs::exists(base)) {
    throw Error(Fault::kData,
                "{}: has adapters of {}, which is not there; give --load BASE --lora-load {}",
                load.string(), base, load.string());
  }
  return {base, load};
}

ModelConfig described_model(const fs::path& path) {
  const ModelPaths paths = model_paths(path, "");
  OpenedModel opened = open_model({.path = paths.base});
  if (!paths.adapters.empty())
    set_head(read_native_config(find_checkpoint(paths.adapters)), opened);
  return opened.model;
}

void take_chat_templates(const OpenedAdapter& adapter, OpenedModel& base) {
  if (!adapter.tokenizer.empty()) {
    base.chat_templates = chat_templates_in(adapter.tokenizer.folder);
    return;
  }
  replace_templates(adapter.chat_templates, base.chat_templates);
}

std::string take_chat_templates(const fs::path& path, ModelChatTemplates& templates) {
  if (is_gguf_file(path)) return "";
  return replace_templates(
      is_peft_folder(path) ? chat_templates_in(path) : chat_templates_of_run_in(path), templates);
}

void write_adapter_template(const ChatTemplateFiles& own, const std::string& base,
                            const fs::path& folder) {
  const std::string text = default_chat_template(own);
  if (text.empty() || text == base) return;
  write_text_file(folder / "chat_template.jinja", text);
}

ModelChatTemplates chat_templates_of_run_in(const fs::path& path) {
  const bool is_checkpoint = fs::exists(path / kManifestName);
  const fs::path run = is_checkpoint ? (fs::absolute(path) / "").parent_path().parent_path() : path;
  return chat_templates_in(run / kTokenizerFolder);
}

void merge_adapters(OpenedModel& base, OpenedAdapter adapter) {
  take_chat_templates(adapter, base);
  if (adapter.tokenizer.empty() && !adapter.chat_templates.files.templates.empty()) {
    base.adapter_template = default_chat_template(adapter.chat_templates.files);
    base.notes.push_back(fmt::format("{}: its chat template is that of the merged model",
                                     adapter.chat_templates.files.where));
  }
  base.source = std::make_unique<MergedModel>(std::move(base.source), std::move(adapter.source),
                                              adapter.adapters);
  if (adapter.tokenizer.empty()) return;
  base.tokenizer = std::move(adapter.tokenizer);
}

}  // namespace piton
