// piton classify: the labels of texts, by a classifier.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "api/model.h"
#include "base/json.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "cli/commands/model_to_load.h"
#include "cli/launch.h"
#include "cli/terminal/standard_input.h"
#include "data/labels/labeled_records.h"
#include "data/records/byte_stream.h"
#include "data/records/whole_text.h"
#include "model/label_head.h"
#include "session/label_counts.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kReadTogether = 1024;  // texts, between two writes

struct ClassifyOptions {
  ModelToLoad model;
  std::string map_keys;
  std::optional<std::int64_t> sequence;
  std::optional<double> threshold;
  bool metrics = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    v(Option{"map-keys",
             "names of a record's keys, as JSON: {\"text\": \"review\", \"label\": \"stars\"}",
             {.placeholder = "JSON"}},
      map_keys);
    v(Option{"seq-length",
             "cut texts to this number of tokens (default: as many as the model takes)",
             {.placeholder = "N"}},
      sequence);
    v(Option{"metrics",
             "print accuracy, macro F1 and Matthews' correlation of a file with labels as one JSON "
             "object, of several labels of a text the share of exact sets, micro F1 and macro F1, "
             "or of numbers the mean squared error and Pearson's and Spearman's correlation, in "
             "place of a line for each text"},
      metrics);
    v(Option{"threshold",
             "of a model for several labels of a text: the labels with at least this probability "
             "(default: 0.5)",
             {.placeholder = "P"}},
      threshold);
  }
};

struct TextOfFile {
  Conversation conversation;
  std::optional<std::int32_t> label;             // that the file has for it
  std::optional<float> number;                   // or, of a model of numbers
  std::optional<std::vector<std::uint8_t>> set;  // of several labels: 1 for each that it has
};

// What the file has for a text with a label or a list of them.
void set_label(const KnownLabels& known, TextOfFile& text) {
  const std::vector<std::int32_t> stored = known.stored(text.conversation);
  if (known.are_values()) {
    text.number = std::bit_cast<float>(stored[0]);
  } else if (known.several) {
    text.set.emplace(static_cast<std::size_t>(known.count));
    for (const std::int32_t label : stored) (*text.set)[static_cast<std::size_t>(label)] = 1;
  } else {
    text.label = stored[0];
  }
}

bool has_records(const std::string& file) {
  constexpr std::array<std::string_view, 5> kEnds = {".jsonl", ".ndjson", ".json", ".csv",
                                                     ".parquet"};
  const std::string end = std::filesystem::path(unpacked_name(file)).extension().string();
  return std::ranges::count(kEnds, end) > 0;
}

std::vector<TextOfFile> texts_of_records(const std::string& file, const std::string& map_keys,
                                         const KnownLabels& known, Log& log) {
  const RecordFields fields(kLabeledFields, "", map_keys);
  std::vector<TextOfFile> texts;
  for_each_labeled(file, fields, /*needs_label=*/false, log, [&](Conversation conversation) {
    TextOfFile text{.conversation = std::move(conversation)};
    if (text.conversation.label || text.conversation.label_list) set_label(known, text);
    texts.push_back(std::move(text));
  });
  return texts;
}

std::vector<TextOfFile> texts_of_lines(const std::string& file) {
  std::vector<TextOfFile> texts;
  for (std::string& line : read_whole_lines(file))
    texts.emplace_back().conversation.messages.push_back({MessageRole::kUser, std::move(line)});
  return texts;
}

// The tokens that the model reads. Throws Error(kData) that names the text.
TextToLabel to_label(const LabelPrompt& prompt, const TextOfFile& text, const ModelConfig& model,
                     std::int64_t most) {
  TaughtText tokens = prompt.encode(text.conversation).front();
  if (!cut_labeled(tokens, most)) {
    throw Error(Fault::kUsage, "--seq-length: got {}, and the special tokens of a text are more",
                most);
  }
  TextToLabel made{.ids = std::move(tokens.ids), .types = {}};
  if (model.encoder && model.encoder->token_types > 1) made.types = types_of_pair(tokens.labels);
  return made;
}

// {"number": y}; {"label": NAME, "probabilities": {NAME: p, ...}}; or, in place of the one label,
// {"labels": [NAME, ...], ...}.
Json line_of(const std::vector<float>& logits, const ModelConfig& config,
             const std::vector<std::string>& names, double threshold) {
  if (config.regression) return {{"number", logits[0]}};
  const std::vector<double> probabilities = label_probabilities(logits, config.several_labels);
  Json shares = Json::object();
  Json chosen = Json::array();
  for (std::size_t i = 0; i < names.size(); ++i) {
    shares[names[i]] = probabilities[i];
    if (probabilities[i] >= threshold) chosen.push_back(names[i]);
  }
  if (config.several_labels)
    return {{"labels", std::move(chosen)}, {"probabilities", std::move(shares)}};
  return {{"label", names[static_cast<std::size_t>(largest(logits))]},
          {"probabilities", std::move(shares)}};
}

// All texts, so that one that has no tokens is refused before others are computed.
std::vector<TextToLabel> all_to_label(const Model& model, const std::string& file,
                                      const std::vector<TextOfFile>& texts,
                                      const ClassifyOptions& options) {
  const ModelConfig& config = model.config();
  const LabelPrompt prompt(model.require_tokenizer());
  const std::int64_t most =
      std::min(options.sequence.value_or(config.longest_sequence()), config.longest_sequence());
  std::vector<TextToLabel> all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      all.push_back(to_label(prompt, texts[i], config, most));
    } catch (const Error& error) {
      throw Error(error.fault(), "{}: text {}: {}", file, i + 1, error.what());
    }
  }
  return all;
}

// Of the texts of `file`. Collective over the ranks of the model.
LabelCounts classify(Model& model, const std::string& file, const std::vector<TextOfFile>& texts,
                     const ClassifyOptions& options, bool prints) {
  const ModelConfig& config = model.config();
  const std::vector<std::string> names = names_of_labels(config);
  const double threshold = options.threshold.value_or(kLabelThreshold);
  const std::vector<TextToLabel> all = all_to_label(model, file, texts, options);
  LabelCounts counts;
  for (std::size_t begin = 0; begin < texts.size(); begin += kReadTogether) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::size_t count = std::min(texts.size() - begin, kReadTogether);
    const std::vector<TextToLabel> some(first, first + static_cast<std::ptrdiff_t>(count));
    const std::vector<std::vector<float>> logits = model.label_logits(some);
    std::string out;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const TextOfFile& text = texts[begin + i];
      if (text.label) counts.add(*text.label, largest(logits[i]), config.labels);
      if (text.number) counts.numbers.push_back({*text.number, logits[i][0]});
      if (text.set) counts.add_set(*text.set, logits[i], threshold);
      if (options.metrics) continue;
      const Json line = line_of(logits[i], config, names, threshold);
      out += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    if (prints) std::fwrite(out.data(), 1, out.size(), stdout);
  }
  return counts;
}

void say_figures(const std::string& file, const LabelCounts& counts, bool as_json, Log& log) {
  const bool numbers = !counts.numbers.empty();
  if (as_json) {
    Json out{{"texts", std::llround(counts.texts())}};
    for (const ObjectiveFigure& one : counts.figures()) out[one.name] = one.mean();
    std::fputs((out.dump() + "\n").c_str(), stdout);
  } else if (numbers) {
    log.info(fmt::format(
        "{}: mean squared error {:.4f}, Pearson's correlation {:.4f}, Spearman's {:.4f} of {} "
        "texts with numbers",
        file, counts.mean_square(), counts.pearson(), counts.spearman(), counts.texts()));
  } else if (counts.sets > 0) {
    log.info(fmt::format(
        "{}: accuracy of exact sets {:.4f}, micro F1 {:.4f}, macro F1 {:.4f} of {} texts with "
        "labels",
        file, counts.accuracy(), counts.micro_f1(), counts.macro_f1(), counts.texts()));
  } else {
    log.info(fmt::format(
        "{}: accuracy {:.4f}, macro F1 {:.4f}, Matthews' correlation {:.4f} of {} texts with "
        "labels",
        file, counts.accuracy(), counts.macro_f1(), counts.matthews(), counts.texts()));
  }
}

}  // namespace

int run_classify(Invocation& invocation) {
  GeneralOptions general;
  ClassifyOptions options;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Classification", options);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  const std::vector<std::string> files = invocation.parse(set, general);
  refuse_more_arguments(files, 1);
  if (options.model.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a classifier");
  if (files.empty() && !has_standard_input() && invocation.leads)
    throw Error(Fault::kUsage, "classify: wanted a FILE of lines or records (- is standard input)");
  if (options.sequence) check_range("--seq-length", *options.sequence, 1);
  const double threshold = options.threshold.value_or(kLabelThreshold);
  if (!(threshold >= 0 && threshold <= 1))
    throw Error(Fault::kUsage, "--threshold: got {}, wanted a number from 0 to 1", threshold);
  const std::string file = files.empty() ? "-" : files[0];
  Engine engine(engine_options(general), invocation.log);
  invocation.together([&] { layout.check(engine.world().size()); });
  const auto model =
      Model::load(engine.machine(), options.model.load, tokenizer, layout, options.model.lora_load);
  model->label_logits({});  // refuses a model without labels before the file is read
  const ModelConfig& config = model->config();
  if (options.threshold && !config.several_labels) {
    throw Error(Fault::kUsage,
                "--threshold: is of a model for several labels of a text, and this one gives {}; "
                "leave it out",
                config.regression ? "a number" : "one label");
  }
  if (file == "-") share_standard_input(engine.world());
  const KnownLabels known{config.label_names, config.labels, config.several_labels};
  const std::vector<TextOfFile> texts =
      has_records(file) ? texts_of_records(file, options.map_keys, known, invocation.log_of_all())
                        : texts_of_lines(file);
  if (texts.empty()) throw Error(Fault::kData, "{}: no text, wanted one or more", file);
  const bool leads = engine.world().rank() == 0;
  const LabelCounts counts = classify(*model, file, texts, options, leads);
  if (counts.empty()) {
    if (!options.metrics) return 0;
    throw Error(Fault::kData, "--metrics: {} has no labels, wanted \"label\" in its records", file);
  }
  if (!leads) return 0;
  say_figures(file, counts, options.metrics, invocation.log);
  return 0;
}

}  // namespace piton::cli
