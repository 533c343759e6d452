#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "convert/targets.h"
#include "gguf/gguf_source.h"
#include "gguf/gguf_writer.h"
#include "gguf/vocabulary/vocabulary.h"
#include "kernels/recurrent/delta_rule.h"
#include "model_files/generation_ends.h"

namespace piton {
namespace {

// Of most of the weights.
GgmlType main_type(const TensorSource& source) {
  std::map<GgmlType, std::int64_t> elements;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    elements[ggml_type_of(one.dtype)] += one.shape.elements();
  return std::ranges::max_element(elements, {}, [](const auto& one) { return one.second; })->first;
}

// What a file says of itself before its model. Of another GGUF file its words are kept.
std::vector<GgufEntry> general_entries(const OpenedModel& from, const std::string& architecture,
                                       GgmlType type) {
  std::vector<GgufEntry> entries = {
      {"general.architecture", GgufValue::string(architecture)},
      {"general.type", GgufValue::string("model")},
      {"general.file_type", GgufValue::u32(ggml_file_type(type))},
      {"general.quantization_version", GgufValue::u32(2)},
  };
  const auto add = [&](const GgufEntry& entry) {
    if (std::ranges::find(entries, entry.key, &GgufEntry::key) == entries.end())
      entries.push_back(entry);
  };
  if (from.gguf != nullptr) {
    for (const GgufEntry& entry : from.gguf->file().header().entries) {
      if (entry.key.starts_with("general.") && entry.key != "general.alignment") add(entry);
    }
  }
  add({"general.name", GgufValue::string(from.name)});
  return entries;
}

std::vector<GgufEntry> vocabulary_of(const OpenedModel& from, std::vector<std::string>& notes) {
  const std::string& own_template = from.adapter_template;
  if (from.gguf != nullptr) {
    std::vector<GgufEntry> entries;
    for (const GgufEntry& entry : from.gguf->file().header().entries) {
      const bool replaced = !own_template.empty() && entry.key == kGgufTemplateKey;
      if (entry.key.starts_with("tokenizer.") && !replaced) entries.push_back(entry);
    }
    if (!own_template.empty())
      entries.push_back({kGgufTemplateKey, GgufValue::string(own_template)});
    return entries;
  }
  if (from.tokenizer.empty()) return vocabulary_entries({});
  const std::vector<std::int32_t> ends = generation_ends(from);
  try {
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(from);
    GgufVocabulary vocabulary =
        vocabulary_of_files(from.tokenizer.options, *tokenizer, from.model.vocabulary);
    if (!own_template.empty()) vocabulary.chat_template = own_template;
    const std::vector<std::int32_t> left = add_ends(ends, vocabulary);
    if (!left.empty()) {
      notes.push_back(
          fmt::format("texts of the model end at more ids than a GGUF file can name (of a text, a "
                      "turn and a message): {} {} left out",
                      fmt::join(left, ", "), left.size() > 1 ? "are" : "is"));
    }
    return vocabulary_entries(vocabulary);
  } catch (const Error& error) {
    notes.push_back(fmt::format("the file has no tokenizer: {}", error.what()));
    return vocabulary_entries({});
  }
}

// Adds notes about what llama.cpp computes differently from the trained model, within its longest
// sequence or beyond it.
void note_differences(const ModelConfig& model, const std::string& name,
                      std::vector<std::string>& notes) {
  const GgufArchitecture architecture = gguf_architecture(name, "");
  if (model.window_before && !architecture.has_window) {
    notes.push_back(
        fmt::format("llama.cpp has no attention window in models of architecture {}: after {} "
                    "tokens it sees more keys than this model was trained with",
                    name, *model.window_before + 1));
  }
  if (model.rotary_scaling.kind == RotaryScaling::Kind::kYarn && architecture.fractional_pairs) {
    notes.push_back(
        "llama.cpp rounds the ends of the blend of yarn to whole pairs of channels, which this "
        "model does not: its angles differ a little");
  }
  if (model.experts && model.experts->groups.divide() && model.experts->groups.largest == 1) {
    notes.push_back(
        "llama.cpp scores a group of experts by its two best ones, this model by the best one: it "
        "may choose other experts");
  }
  if (model.latent && model.latent->norm_eps != 0) {
    notes.push_back(
        fmt::format("llama.cpp adds the epsilon of the other norms ({}) in norms of latents too, "
                    "this model {}: its logits differ a little",
                    model.norm_eps, model.latent->norm_eps));
  }
  if (model.delta && model_in_gguf(model).norm_eps != kDeltaNormEps) {
    notes.push_back(
        fmt::format("llama.cpp adds the epsilon of norms ({}) to lengths of queries and keys of "
                    "the gated delta rule too, this model {}: its logits differ a little",
                    model.norm_eps, kDeltaNormEps));
  }
  if (model.rotary_scaling.kind == RotaryScaling::Kind::kDynamic) {
    notes.push_back(
        fmt::format("its rotary scaling (dynamic) is left out: it begins after the {} tokens of "
                    "the file's context",
                    model.max_positions));
  }
}

void note_types(const GgufWritten& written, std::vector<std::string>& notes) {
  const auto note = [&](const std::vector<std::string>& names, std::string_view type, int values) {
    if (names.empty()) return;
    notes.push_back(fmt::format("{} matrices are {}, as their rows are no multiple of {}: {}{}",
                                names.size(), type, values, names.front(),
                                names.size() > 1 ? ", ..." : ""));
  };
  note(written.in_short_blocks, "Q8_0", 256);
  note(written.not_in_blocks, "F16", 32);
}

}  // namespace

std::optional<GgmlType> chosen_ggml_type(const ConvertOptions& options) {
  return ggml_type_of_word(options.outtype);
}

void make_gguf(const std::filesystem::path& draft, const OpenedModel& from,
               const TargetContext& context) {
  const ModelConfig model = model_in_gguf(from.model);
  const GgufDescription description =
      describe_gguf(from.model, family_of(from), from.source->where());
  const std::optional<GgmlType> type = chosen_ggml_type(context.options);
  note_differences(from.model, description.architecture, context.notes);
  const GgufWritten written =
      write_gguf(draft / kGgufDraft, *from.source, model, description,
                 {.type = type,
                  .entries = general_entries(from, description.architecture,
                                             type.value_or(main_type(*from.source))),
                  .vocabulary = vocabulary_of(from, context.notes),
                  .wrote = context.wrote,
                  .threads = &context.threads});
  note_types(written, context.notes);
}

}  // namespace piton
