// piton inspect: a checkpoint, model of another program, corpus, tokenizer, recipe, layout or
// samples, in words.
#include <filesystem>

#include "adapters/peft_source.h"
#include "api/model.h"
#include "base/amounts.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/read_newest.h"
#include "checkpoint/store.h"
#include "cli/command.h"
#include "cli/compatibility/megatron_flags.h"
#include "cli/inspect/inspect_adapter.h"
#include "cli/inspect/inspect_data.h"
#include "cli/inspect/inspect_foreign.h"
#include "cli/terminal/print.h"
#include "cli/terminal/text_plot.h"
#include "huggingface/hf_source.h"
#include "model_files/gguf_adapter.h"
#include "model_files/model_format.h"
#include "text/tokenizer.h"
#include "train/run/run_plan.h"
#include "train/sinks/metrics.h"

namespace piton::cli {
namespace {

struct InspectOptions {
  bool hash = false;
  bool loss = false;
  bool json = false;
  std::optional<std::int64_t> ranks;
  int count = 3;
  SamplePart part = SamplePart::kTrain;
  std::int64_t first = 0;
  bool scan_ids = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"hash",
             "print the hash of a model's weights and a checkpoint's optimizer state, the same for "
             "every layout and format"},
      hash);
    v(Option{"loss", "draw the losses of a run, from its metrics.jsonl"}, loss);
    v(Option{"json", "print one JSON object"}, json);
    v(Option{"world-size", "number of ranks of the layout to show (default: tensor x pipeline)"},
      ranks);
    v(Option{"count", "number of samples, or of sequences of a corpus, to show"}, count);
    v(Option{"first", "samples: index of the first one to show, as the run counts them"}, first);
    v(Option{"part", "samples: which part of the data to show"},
      Choice(part, {{"train", SamplePart::kTrain},
                    {"valid", SamplePart::kValid},
                    {"test", SamplePart::kTest}}));
    v(Option{"scan-ids", "read every id of a corpus to find the largest"}, scan_ids);
  }
};

// `optimizer`: "" for none.
void print_hashes(const std::string& weights, const std::string& optimizer, bool json) {
  if (json) {
    print(nlohmann::ordered_json{{"weights", weights}, {"optimizer", optimizer}}.dump() + "\n");
  } else {
    print(fmt::format("weights   {}\noptimizer {}\n", weights,
                      optimizer.empty() ? "none" : optimizer));
  }
}

// `run`: the folder of --save, or metrics.jsonl itself.
void print_losses(const std::filesystem::path& run) {
  const std::filesystem::path file =
      std::filesystem::is_directory(run) ? run / "metrics.jsonl" : run;
  PlotSeries training{.mark = '.', .name = "training loss"};
  PlotSeries validation{.mark = 'o', .name = "validation loss"};
  for (const StepMetrics& record : read_metrics(file)) {
    const auto x = static_cast<double>(record.iteration);
    training.points.push_back({x, record.lm_loss});
    if (record.validation_loss) validation.points.push_back({x, *record.validation_loss});
  }
  const std::string picture = text_plot({training, validation});
  if (picture.empty()) {
    throw Error(Fault::kData,
                "{}: has no loss to show; wanted the metrics of a run that took steps",
                file.string());
  }
  print(picture);
}

void print_checkpoint(const std::filesystem::path& folder, bool json) {
  const Manifest manifest = read_manifest(folder);
  const TrainState state = read_state(folder, manifest);
  std::int64_t weights = 0;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  std::string lines;
  for (const StoredTensor& stored : manifest.tensors) {
    if (stored.tensor.kind != TensorKind::kWeight) continue;
    std::int64_t elements = 1;
    std::vector<std::int64_t> shape;
    for (const std::int64_t size : stored.tensor.shape.sizes()) {
      shape.push_back(size);
      elements *= size;
    }
    weights += elements;
    tensors.push_back({{"name", stored.tensor.name},
                       {"dtype", std::string(name(stored.tensor.dtype))},
                       {"shape", shape}});
    lines += fmt::format("  {:44} {:5} {}\n", stored.tensor.name, name(stored.tensor.dtype),
                         to_string(stored.tensor.shape));
  }
  if (json) {
    print(nlohmann::ordered_json{{"iteration", state.iteration},
                                 {"consumed_samples", state.consumed_samples},
                                 {"consumed_tokens", state.consumed_tokens},
                                 {"parameters", weights},
                                 {"optimizer", manifest.has_optimizer()},
                                 {"tensors", tensors}}
              .dump() +
          "\n");
    return;
  }
  print(fmt::format("{}: iteration {}, {} samples, {} tokens, loss {:.6f}\n{} parameters{}\n{}",
                    folder.string(), state.iteration, state.consumed_samples, state.consumed_tokens,
                    state.lm_loss, weights,
                    manifest.has_optimizer() ? ", with optimizer state" : "", lines));
}

void print_recipe(const PretrainOptions& options, bool json) {
  std::int64_t vocabulary = 0;
  std::string tokenizer_name = "none named";
  if (!options.tokenizer.empty()) {
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options.tokenizer);
    vocabulary = tokenizer->vocabulary_size();
    tokenizer_name = fmt::format("{} of {} ids", tokenizer->name(), vocabulary);
  }
  const ModelConfig model =
      options.resolve_model(vocabulary > 0 ? std::optional(vocabulary) : std::nullopt);
  const std::int64_t sequence =
      options.loop.sequence > 0 ? options.loop.sequence : model.max_positions;
  const std::int64_t parameters = model.parameters();
  const std::int64_t weight_bytes = parameters * size_bytes(model.dtype);
  // Only 16-bit weights have main copies.
  const std::int64_t optimizer_bytes = parameters * (model.dtype == DType::kF32 ? 8 : 12);
  const double flops = 3 * model.forward_flops_per_token(sequence);
  if (json) {
    print(nlohmann::ordered_json{{"parameters", parameters},
                                 {"tokenizer", tokenizer_name},
                                 {"bytes",
                                  {{"weights", weight_bytes},
                                   {"gradients", 4 * parameters},
                                   {"optimizer", optimizer_bytes}}},
                                 {"flops_per_token", flops}}
              .dump() +
          "\n");
    return;
  }
  print(fmt::format(
      "{} parameters, {} layers of width {}, {} heads ({} groups) of {}, vocabulary {}\n"
      "tokenizer: {}\n"
      "weights {:.1f} MiB, gradients {:.1f} MiB, optimizer {:.1f} MiB; {:.3f} GFLOP a token of {} "
      "(forward and backward)\n",
      parameters, model.layers, model.hidden, model.heads, model.groups, model.head_size,
      model.vocabulary, tokenizer_name, mebibytes(weight_bytes), mebibytes(4 * parameters),
      mebibytes(optimizer_bytes), flops * 1e-9, sequence));
}

void print_layout(const PretrainOptions& options, std::optional<std::int64_t> world_size,
                  bool json) {
  const int ranks = options.parallel.planned_ranks(world_size);
  const MeshSizes sizes = options.parallel.check(ranks);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string text = "rank  tensor  context  expert  data  pipeline\n";
  for (int rank = 0; rank < ranks; ++rank) {
    const std::array<int, kAxes> at = coordinates_of(rank, sizes);
    list.push_back({{"rank", rank},
                    {"tensor", at[0]},
                    {"context", at[1]},
                    {"expert", at[2]},
                    {"data", at[3]},
                    {"pipeline", at[4]}});
    text += fmt::format("{:4}  {:6}  {:7}  {:6}  {:4}  {:8}\n", rank, at[0], at[1], at[2], at[3],
                        at[4]);
  }
  print(json ? nlohmann::ordered_json{{"ranks", list}}.dump() + "\n" : text);
}

// The files in `path` decide how it is described.
void print_path(const std::string& path, const InspectOptions& inspect,
                const PretrainOptions& options, Log& log) {
  const ModelFormat format = model_format_of(path);
  const bool is_foreign = format != ModelFormat::kPiton &&
                          (format != ModelFormat::kHuggingFace || has_huggingface_weights(path));
  if (inspect.loss) {
    print_losses(path);
  } else if (inspect.hash && is_foreign) {
    print_hashes(foreign_weights_hash(path, options.model), "", inspect.json);
  } else if (inspect.hash) {
    read_newest(path, [&](const auto& folder) {
      print_hashes(weights_hash(folder), optimizer_hash(folder), inspect.json);
    });
  } else if (const std::string prefix = corpus_prefix(path); !prefix.empty()) {
    print_corpus(prefix, options.tokenizer,
                 {.count = inspect.count, .scan = inspect.scan_ids, .json = inspect.json}, log);
  } else if (format == ModelFormat::kGguf && is_gguf_adapter(path)) {
    print_gguf_adapter(path, inspect.json);
  } else if (is_foreign) {
    print_foreign_model(path, options.model, inspect.json);
  } else if (is_peft_folder(path)) {
    print_adapter(path, inspect.json);
  } else if (holds_checkpoint(path)) {
    read_newest(path, [&](const auto& folder) { print_checkpoint(folder, inspect.json); });
  } else if (is_tokenizer(path)) {
    TokenizerOptions tokenizer = options.tokenizer;
    tokenizer.name_or_path = path;
    print_tokenizer(tokenizer, options.parallel.tensor, inspect.json);
  } else {
    std::error_code ignored;
    throw Error(
        Fault::kData,
        "inspect: {}: {}; wanted a checkpoint ({} or {}), a Hugging Face model (config.json and "
        "*.safetensors), an adapter of PEFT (adapter_config.json), a Megatron-LM checkpoint "
        "(mp_rank_*, .metadata), a GGUF file of a model or an adapter, a corpus prefix ({}.idx), a "
        "tokenizer "
        "(tokenizer.json, *.model, "
        "vocab.json, vocab.txt or *.tiktoken), a RECIPE.toml, samples or layout",
        path,
        std::filesystem::exists(path, ignored) ? "cannot be described"
                                               : "there is no such file or folder",
        kTrackerName, kManifestName, path);
  }
}

}  // namespace

int run_inspect(Invocation& invocation) {
  GeneralOptions general;
  InspectOptions inspect;
  PretrainOptions options;
  OptionSet set;
  set.add("Inspect", inspect);
  options.add_to(set);
  // A word before the recipe; parse() takes a recipe only from the first place.
  std::string what;
  if (!invocation.words.empty() &&
      (invocation.words[0] == "samples" || invocation.words[0] == "layout")) {
    what = invocation.words[0];
    invocation.words.erase(invocation.words.begin());
  }
  const bool recipe = !invocation.words.empty() && invocation.words[0].ends_with(".toml");
  MegatronFlags megatron;
  set.set_foreign(&megatron);
  const std::vector<std::string> arguments = invocation.parse(set, general, true);
  megatron.report(invocation.log);
  refuse_more_arguments(arguments, what.empty() ? 1 : 0);
  if (!arguments.empty()) what = arguments[0];
  if (inspect.count < 1)
    throw Error(Fault::kUsage, "--count: got {}, wanted 1 or more", inspect.count);
  if (inspect.first < 0)
    throw Error(Fault::kUsage, "--first: got {}, wanted 0 or more", inspect.first);
  if (what == "layout") {
    print_layout(options, inspect.ranks, inspect.json);
  } else if (what == "samples") {
    print_samples(options, {inspect.part, inspect.first, inspect.count, inspect.json},
                  invocation.log);
  } else if (!what.empty()) {
    print_path(what, inspect, options, invocation.log);
  } else if (recipe || !general.config.empty()) {
    print_recipe(options, inspect.json);
  } else if (!options.tokenizer.empty()) {
    print_tokenizer(options.tokenizer, options.parallel.tensor, inspect.json);
  } else {
    throw Error(Fault::kUsage,
                "inspect: nothing is named; wanted a checkpoint, a corpus prefix, a tokenizer, a "
                "RECIPE.toml, samples or layout");
  }
  return 0;
}

}  // namespace piton::cli
