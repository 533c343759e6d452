#include "cli/inspect/inspect_foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "adapters/base_hash.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "comm/communicator.h"
#include "device/host_device.h"
#include "gguf/gguf_source.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "model_files/opened_model.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShownTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct ShownModel {
  std::string format;  // as --json has it
  std::string title;   // "Hugging Face"
  std::string family;
  std::pair<std::string, Json> files;  // key and value, for --json
  std::string where;                   // the same in words: "2 files"
  const ModelConfig& model;
  std::vector<std::string> notes;
  std::vector<ShownTensor> tensors;
};

void print_model(const std::string& path, const ShownModel& shown, bool json) {
  const ModelConfig& model = shown.model;
  std::set<std::string> types;
  Json tensors = Json::array();
  std::string lines;
  for (const ShownTensor& tensor : shown.tensors) {
    types.insert(tensor.dtype);
    tensors.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    lines += fmt::format("  {:54} {:5} [{}]\n", tensor.name, tensor.dtype,
                         fmt::join(tensor.shape, ", "));
  }
  std::string text;
  if (json) {
    text = Json{{"format", shown.format},
                {"model_type", shown.family},
                {"parameters", model.parameters()},
                {"layers", model.layers},
                {"hidden", model.hidden},
                {"heads", model.heads},
                {"groups", model.groups},
                {"vocabulary", model.vocabulary},
                {"max_positions", model.max_positions},
                {"tied", model.tied},
                {shown.files.first, shown.files.second},
                {"notes", shown.notes},
                {"tensors", tensors}}
               .dump() +
           "\n";
  } else {
    text = fmt::format(
        "{}: {}, {}, {} in {}\n{} parameters, {} layers of width {}, {} heads ({} groups) of {}, "
        "vocabulary {}, {} positions, {}\n",
        path, shown.title, shown.family, fmt::join(types, " and "), shown.where, model.parameters(),
        model.layers, model.hidden, model.heads, model.groups, model.head_size, model.vocabulary,
        model.max_positions,
        model.gives_rewards()  ? "head of rewards"
        : model.regression     ? "head of a number"
        : model.several_labels ? fmt::format("head of {} labels, several of a text", model.labels)
        : model.labels > 0     ? fmt::format("head of {} labels", model.labels)
        : model.tied           ? "tied head"
                               : "separate head");
    for (const std::string& note : shown.notes) text += note + "\n";
    text += lines;
  }
  std::fputs(text.c_str(), stdout);
}

ShownModel shown_huggingface(const HfSource& source) {
  const std::vector<std::string>& files = source.files().names();
  ShownModel shown{.format = "huggingface",
                   .title = "Hugging Face",
                   .family = source.config().word("model_type"),
                   .files = {"files", files},
                   .where = fmt::format("{} file{}", files.size(), files.size() == 1 ? "" : "s"),
                   .model = source.model(),
                   .notes = source.notes()};
  for (const auto& [name, tensor] : source.files().tensors())
    shown.tensors.push_back({name, tensor.dtype, tensor.shape});
  return shown;
}

ShownModel shown_gguf(const GgufSource& source) {
  const GgufHeader& header = source.file().header();
  const GgufValue* tokenizer = header.find("tokenizer.ggml.model");
  const GgufValue* pre = header.find("tokenizer.ggml.pre");
  const std::string kind = tokenizer == nullptr ? "none" : tokenizer->text;
  ShownModel shown{
      .format = "gguf",
      .title = "GGUF",
      .family = source.architecture().name,
      .files = {"tokenizer", kind},
      .where = fmt::format("one file, tokenizer {}{}", kind, pre ? ", " + pre->text : ""),
      .model = source.model()};
  for (const GgufTensor& tensor : header.tensors)
    shown.tensors.push_back({tensor.name, std::string(name(tensor.type)), tensor.shape});
  return shown;
}

ShownModel shown_megatron(const MegatronSource& source) {
  const MegatronLayout& layout = source.layout();
  ShownModel shown{
      .format = "megatron",
      .title = "Megatron-LM",
      .family = source.model().family,
      .files = {"layout",
                {{"form", source.form()},
                 {"tensor", layout.tensor},
                 {"pipeline", layout.pipeline},
                 {"chunks", layout.chunks},
                 {"expert", layout.expert},
                 {"checkpoint_version", layout.version},
                 {"padded_vocabulary", layout.padded_vocabulary},
                 {"iteration", source.iteration()}}},
      .where = fmt::format(
          "{}, {} x {}{} ranks (tensor x pipeline{}){}, version {}, {} rows of the table",
          source.form(), layout.tensor, layout.pipeline,
          layout.expert > 1 ? fmt::format(" x {}", layout.expert) : "",
          layout.expert > 1 ? " x expert" : "",
          layout.chunks > 1 ? fmt::format(", {} virtual stages each", layout.chunks) : "",
          layout.version, layout.padded_vocabulary),
      .model = source.model(),
      .notes = source.notes()};
  for (const CanonicalTensor& tensor : source.tensors(TensorKind::kWeight)) {
    const auto sizes = tensor.shape.sizes();
    shown.tensors.push_back(
        {tensor.name, std::string(safetensors_name(tensor.dtype)), {sizes.begin(), sizes.end()}});
  }
  return shown;
}

OpenedModel open_foreign(const std::filesystem::path& path, const ModelOptions& options) {
  MegatronGiven given{.vocabulary = options.vocabulary};
  if (options.describes_model())
    given.model = [&](std::int64_t padded) { return options.resolve(padded); };
  return open_model({.path = path, .given = given});
}

}  // namespace

void print_foreign_model(const std::filesystem::path& path, const ModelOptions& options,
                         bool json) {
  const OpenedModel opened = open_foreign(path, options);
  print_model(path.string(),
              opened.huggingface ? shown_huggingface(*opened.huggingface)
              : opened.megatron  ? shown_megatron(*opened.megatron)
                                 : shown_gguf(*opened.gguf),
              json);
}

std::string foreign_weights_hash(const std::filesystem::path& path, const ModelOptions& options) {
  HostDevice device;
  const auto world = make_single_world(device);
  const auto alone = make_group_of_all(*world, "hash");
  return weights_hash(*open_foreign(path, options).source, *alone);
}

}  // namespace piton::cli
