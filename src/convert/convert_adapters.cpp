// piton convert --to peft|gguf-lora: the adapters of a run alone, as a folder that PEFT loads or a
// file of llama.cpp.
#include <chrono>
#include <memory>
#include <utility>

#include "adapters/merged_source.h"
#include "adapters/peft_source.h"
#include "adapters/peft_writer.h"
#include "base/error.h"
#include "base/seconds.h"
#include "convert/convert.h"
#include "convert/source_checks.h"
#include "convert/target.h"
#include "gguf/architectures.h"
#include "gguf/gguf_header.h"
#include "huggingface/config_keys.h"
#include "model_files/gguf_adapter.h"
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

// The templates that the data of the adapter's run had.
ChatTemplateFiles templates_of(const OpenedAdapter& adapter) {
  return adapter.tokenizer.folder.empty() ? adapter.chat_templates.files
                                          : chat_templates_in(adapter.tokenizer.folder).files;
}

// A model with adapters, whose values are computed and not rounded to the type of its files.
class UnroundedSource final : public TensorSource {
 public:
  explicit UnroundedSource(TensorSource& source) : source_(source) {}

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all = source_.tensors(kind);
    for (CanonicalTensor& one : all) one.dtype = DType::kF32;
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    source_.read(name, run, dtype, dst);
  }
  bool reads_in_parallel() const override { return source_.reads_in_parallel(); }

 private:
  TensorSource& source_;
};

// With the scales that a GGUF file can hold, whose alpha (scale times rank) is fp32.
Adapters with_scales_of_gguf(Adapters adapters) {
  for (auto& [linear, shape] : adapters.shapes) {
    const auto rank = static_cast<double>(shape.rank);
    shape.scale = GgufValue::f32(shape.scale * rank).number() / rank;
  }
  return adapters;
}

// Writes the adapters into the draft of `target`, and opens them again.
OpenedAdapter write_adapters(const Target& target, const ConvertOptions& options,
                             const OpenedModel& base, const OpenedAdapter& adapter) {
  OpenedAdapter written;
  if (options.save_model_type == "peft") {
    const HfFamily family = hf_config_of(base.model, base.origin).family;
    write_peft(target.result(), *adapter.source,
               {.model = base.model,
                .family = family,
                .adapters = adapter.adapters,
                .base = name_for_peft(base)});
    write_adapter_template(templates_of(adapter), default_chat_template(base.chat_templates.files),
                           target.result());
    auto source = std::make_unique<PeftSource>(target.result(), base.model, family);
    written.adapters = source->adapters();
    written.source = std::move(source);
    return written;
  }
  ModelConfig model = base.model;
  model.mtp_layers = 0;  // which have no adapters, and no place in such a file
  write_gguf_adapter(
      target.result(), *adapter.source,
      {.model = model,
       .architecture = describe_gguf(model, family_of(base), base.source->where()).architecture,
       .adapters = adapter.adapters,
       .name = base.name});
  auto source = std::make_unique<GgufAdapterSource>(target.result(), model);
  written.adapters = source->adapters();
  written.source = std::move(source);
  return written;
}

}  // namespace

ConvertReport convert_adapters(const Machine& machine, const ConvertOptions& options,
                               Progress& progress) {
  const std::string& to = options.save_model_type;
  const ModelPaths paths = model_paths(options.load, options.lora_load);
  if (paths.adapters.empty()) {
    throw Error(Fault::kUsage,
                "--to {}: {} has no adapters; wanted a run with --lora-target-modules, or "
                "--lora-load DIR",
                to, options.load);
  }
  OpenedModel base = open_model({.path = paths.base});
  base.model.dtype = base.weights_dtype;
  const auto ranks = make_group_of_all(machine.world, "convert");
  const OpenedAdapter adapter = open_adapter(paths.adapters, base, *ranks);
  check_adapters(options, &adapter.adapters);
  const std::filesystem::path save(options.save);
  const bool is_file = to == "gguf-lora";
  if (is_file && save.extension() != ".gguf")
    throw Error(Fault::kUsage, "--save: got {}, wanted NAME.gguf for --to gguf-lora", options.save);
  Target target(save, is_file ? save.filename().string() : "");
  const auto start = std::chrono::steady_clock::now();
  const OpenedAdapter written = write_adapters(target, options, base, adapter);
  ConvertReport report{.from = base.format,
                       .to = ModelFormat::kHuggingFace,
                       .save = options.save,
                       .parameters = elements_of(*adapter.source),
                       .bytes = bytes_of(*adapter.source),
                       .seconds = seconds_since(start),
                       .notes = base.notes,
                       .adapter_format = to};
  if (!options.no_verify) {
    MergedSource wanted(*base.source, *adapter.source,
                        is_file ? with_scales_of_gguf(adapter.adapters) : adapter.adapters);
    MergedSource got(*base.source, *written.source, written.adapters);
    UnroundedSource exactly(got);
    report.verified = verify(machine, {wanted, base.model}, {exactly, base.model}, progress);
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
