// piton convert --to peft: the adapters of a run as a folder that PEFT loads.
#include <chrono>

#include "adapters/merged_source.h"
#include "adapters/peft_source.h"
#include "adapters/peft_writer.h"
#include "base/error.h"
#include "base/seconds.h"
#include "convert/convert.h"
#include "convert/target.h"
#include "huggingface/config_keys.h"
#include "model_files/opened_adapter.h"

namespace piton {
namespace {

std::int64_t bytes_of(const TensorSource& source) {
  std::int64_t bytes = 0;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    bytes += one.shape.elements() * size_bytes(one.dtype);
  return bytes;
}

std::int64_t elements_of(const TensorSource& source) {
  std::int64_t elements = 0;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    elements += one.shape.elements();
  return elements;
}

// --load of the base, as it is known to PEFT: the folder, if it is one of Hugging Face.
std::string name_for_peft(const OpenedModel& base) {
  return base.format == ModelFormat::kHuggingFace ? base.source->where() : "";
}

}  // namespace

ConvertReport convert_to_peft(const Machine& machine, const ConvertOptions& options,
                              Progress& progress) {
  const ModelPaths paths = model_paths(options.load, options.lora_load);
  if (paths.adapters.empty()) {
    throw Error(Fault::kUsage,
                "--to peft: {} has no adapters; wanted a run with --lora-target-modules, or "
                "--lora-load DIR",
                options.load);
  }
  OpenedModel base = open_model({.path = paths.base});
  base.model.dtype = base.weights_dtype;
  const auto ranks = make_group_of_all(machine.world, "convert");
  const OpenedAdapter adapter = open_adapter(paths.adapters, base, *ranks);
  const HfDescription description = hf_config_of(base.model, base.origin);
  Target target(options.save);
  const auto start = std::chrono::steady_clock::now();
  write_peft(target.draft(), *adapter.source,
             {.model = base.model,
              .family = description.family,
              .adapters = adapter.adapters,
              .base = name_for_peft(base)});
  PeftSource written(target.result(), base.model, description.family);
  ConvertReport report{.from = base.format,
                       .to = ModelFormat::kHuggingFace,
                       .parameters = elements_of(*adapter.source),
                       .bytes = bytes_of(*adapter.source),
                       .seconds = seconds_since(start),
                       .notes = base.notes,
                       .is_adapter = true};
  if (!options.no_verify) {
    MergedSource wanted(*base.source, *adapter.source, adapter.adapters);
    MergedSource got(*base.source, written, written.adapters());
    report.verified = verify(machine, {wanted, base.model}, {got, base.model}, progress);
    if (!report.verified->equal()) {
      throw Error(Fault::kData, "{}: differs from {} and was removed: {}; please report this",
                  options.save, adapter.source->where(),
                  report.verified->differing.empty() ? "the logits differ"
                                                     : report.verified->differing.front());
    }
  }
  target.publish();
  return report;
}

}  // namespace piton
