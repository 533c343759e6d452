#include "train/run/adapter_run.h"

#include <algorithm>
#include <utility>

#include "adapters/peft_writer.h"
#include "base/error.h"
#include "checkpoint/manifest.h"
#include "huggingface/config_keys.h"
#include "model/label_head.h"
#include "model_files/checked_source.h"
#include "model_files/opened_adapter.h"
#include "train/run/checkpoint_choice.h"
#include "train/run/foreign_model.h"
#include "train/run/run_folder.h"
#include "train/run/run_start.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// What a folder of PEFT is written with.
struct PeftAdapter {
  ModelConfig model;
  HfFamily family;
  Adapters adapters;
  std::string base;
  std::string base_template;

  PeftWritten written() const {
    return {.model = model, .family = family, .adapters = adapters, .base = base};
  }
};

// A pooler that the base does not have is trained and saved with the adapters.
void save_new_pooler(OpenedModel& base, std::vector<std::string>& modules_to_save) {
  constexpr const char* kPoolerModule = "pooler";
  if (base.drawn.empty() || head_has_pooler(base.model) ||
      std::ranges::find(modules_to_save, kPoolerModule) != modules_to_save.end())
    return;
  modules_to_save.emplace_back(kPoolerModule);
  base.notes.push_back(
      fmt::format("{}: has no pooler; a new one is trained in full with the adapters "
                  "(--lora-modules-to-save {})",
                  base.name, kPoolerModule));
}

}  // namespace

void check_adapter_options(const PretrainOptions& options) {
  const LoopOptions& loop = options.loop;
  if (!options.lora.given()) {
    if (options.lora.quantized_base) {
      throw Error(Fault::kUsage,
                  "--qlora: needs --lora-target-modules: weights of 4 bits are not trained, only "
                  "adapters of them");
    }
    if (options.learning_rate.lora_plus_ratio) {
      throw Error(Fault::kUsage,
                  "--lora-plus-lr-ratio: needs --lora-target-modules, the linears that get "
                  "adapters");
    }
    if (loop.lora_load.empty()) return;
    throw Error(Fault::kUsage,
                "--lora-load: needs --lora-target-modules, the linears that {} has adapters of",
                loop.lora_load);
  }
  if (loop.upcycles) {
    throw Error(Fault::kUsage,
                "--moe-use-upcycling: makes other weights than those of {}, which adapters are of; "
                "leave --lora-target-modules out",
                loop.load);
  }
  if (loop.load.empty()) {
    throw Error(Fault::kUsage,
                "--lora-target-modules: needs --load DIR, the model that gets the adapters");
  }
  if (!loop.save.empty() && continues(loop.load, loop.save)) {
    throw Error(Fault::kUsage,
                "--save: {} is the base of the adapters too (--load); give another folder, or "
                "piton resume RUN to continue a run",
                loop.save);
  }
  if (!loop.lora_load.empty()) check_holds_adapter(loop.lora_load);
}

std::optional<fs::path> checkpoint_of_started_adapters(const LoopOptions& loop) {
  if (loop.save.empty() || loop.finetune) return std::nullopt;
  return checkpoint_of_run_started_from(loop.load, loop);
}

LoopOptions loop_of_adapters(LoopOptions loop) {
  loop.load = is_adapter_alone(loop.lora_load) ? "" : loop.lora_load;
  loop.ckpt_step.reset();  // of the base
  loop.finetune = loop.finetune && !loop.load.empty();
  return loop;
}

OpenedModel adopt_base(PretrainOptions& options) {
  PretrainOptions starting = options;
  starting.loop.finetune = true;  // weights alone, also of a run of Megatron
  std::optional<OpenedModel> foreign = adopt_foreign_model(starting);
  if (!foreign) adopt_checkpoint(starting, /*same_command=*/false);
  options.model = starting.model;
  options.tokenizer = starting.tokenizer;
  if (foreign) {
    save_new_pooler(*foreign, options.lora.modules_to_save);
    return std::move(*foreign);
  }
  const fs::path load = folder_to_load(options.loop);
  OpenedModel base = open_model({.path = load});
  base.facts = facts_of_base(base);
  keep_start(load, base.facts);
  return base;
}

std::function<void(const fs::path&)> writer_of_adapter(const OpenedModel& base,
                                                       const Adapters& adapters) {
  const PeftAdapter adapter{
      .model = base.model,
      .family = hf_config_of(base.model, base.origin).family,
      .adapters = adapters,
      .base = base.format == ModelFormat::kHuggingFace ? base.source->where() : "",
      .base_template = default_chat_template(base.chat_templates.files)};
  check_peft(adapter.written());
  return [adapter](const fs::path& checkpoint) {
    const fs::path folder = checkpoint / kAdapterFolder;
    fs::create_directory(folder);
    CheckedSource source(checkpoint, read_manifest(checkpoint), WeightsKind::kTrained);
    write_peft(folder, source, adapter.written());
    write_adapter_template(chat_templates_of_run_in(checkpoint).files, adapter.base_template,
                           folder);
  };
}

}  // namespace piton
