#include "train/reference_model.h"

#include "adapters/base_hash.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "model_files/opened_adapter.h"
#include "model_files/opened_model.h"

namespace piton {
namespace {

void open_reference(const std::string& folder, const Machine& machine, Communicator& everyone,
                    Session& session, RunObjective& run) {
  ModelPaths paths;
  phase(everyone, std::nullopt, [&] { paths = model_paths(folder, ""); });
  OpenedModel opened = open_model({.path = paths.base, .ranks = &everyone});
  if (!paths.adapters.empty())
    merge_adapters(opened, open_adapter(paths.adapters, opened, everyone));
  const ModelConfig& own = session.settings().model;
  const ModelConfig& other = opened.model;
  if (other.layers != own.layers || other.hidden != own.hidden ||
      other.vocabulary != own.vocabulary) {
    throw Error(Fault::kUsage,
                "--ref-model: {} has {} layers of size {} and {} ids, wanted {} of size {} and {}, "
                "as the model in training; give a model of its shape",
                folder, other.layers, other.hidden, other.vocabulary, own.layers, own.hidden,
                own.vocabulary);
  }
  SessionSettings settings = session.settings();
  settings.use = SessionUse::kInference;
  settings.adapters = {};
  settings.codes = {};
  settings.offload = {};
  run.reference = std::make_unique<Session>(machine, session.mesh(), settings);
  const StoreContext context{.mesh = session.mesh(),
                             .device = machine.device,
                             .arena = machine.arena,
                             .stream = machine.stream,
                             .threads = &machine.threads};
  load_weights(*opened.source,
               {.parameters = run.reference->parameters(), .sharded = &run.reference->sharded()},
               context);
  run.reference->publish_values();
  run.reference_hash = weights_hash(*opened.source, everyone);
}

}  // namespace

void check_preference_options(const PretrainOptions& options) {
  const PreferenceOptions& preferences = options.preferences;
  preferences.check();
  const DataOptions& data = options.data;
  if (preferences.by_preferences() != data.is_pairwise_dataset) {
    throw Error(Fault::kUsage, "--stage {}: {}; piton finetune sets it by --stage",
                name(preferences.stage),
                data.is_pairwise_dataset
                    ? "learns labels, and --is-pairwise-dataset is set; name the stage, as "
                      "--stage dpo, or leave it out"
                    : "learns from preferences, and --is-pairwise-dataset is not set; add it");
  }
  if (!preferences.has_reference() || !preferences.ref_model.empty()) return;
  if (!options.lora.given()) {
    throw Error(Fault::kUsage,
                "--stage {}: no reference; give --ref-model DIR, usually the model of --load, or "
                "train adapters (--lora-target-modules), whose base is the reference",
                name(preferences.stage));
  }
  if (!options.lora.modules_to_save.empty()) {
    throw Error(Fault::kUsage,
                "--stage {}: no reference: --lora-modules-to-save changes weights of the base; "
                "give --ref-model DIR, or leave --lora-modules-to-save out",
                name(preferences.stage));
  }
}

RunObjective open_objective(const PreferenceOptions& options, const Machine& machine,
                            Communicator& everyone, Session& session) {
  RunObjective run;
  if (!options.by_preferences()) return run;
  if (!options.ref_model.empty())
    open_reference(options.ref_model, machine, everyone, session, run);
  run.objective = std::make_unique<PreferenceObjective>(options, run.reference.get());
  session.set_objective(run.objective.get());
  return run;
}

}  // namespace piton
