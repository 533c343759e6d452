// piton quantize: writes a model whose matrices are small integers.
#include <cmath>
#include <optional>

#include "api/engine.h"
#include "api/model.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "cli/commands/conversion.h"
#include "cli/commands/scored_text.h"
#include "cli/launch.h"

namespace piton::cli {
namespace {

struct QuantizeOptions {
  std::string load;
  std::string save;
  std::string weights;
  std::string granularity;
  std::optional<std::int64_t> group_size;
  bool zero_points = false;
  std::string method = "rtn";
  std::string calibration;
  std::int64_t calibration_samples = 128;
  std::int64_t calibration_length = 512;
  double damping = 0.01;
  std::string lora_load;
  std::string evaluate;
  bool no_verify = false;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint, Hugging Face or Megatron folder, or GGUF file to quantize",
             {.placeholder = "DIR"}},
      load);
    v(Option{"save",
             "folder of Hugging Face's layout to write (int8, int4), or NAME.gguf (other formats)",
             {.placeholder = "OUT"}},
      save);
    v(Option{"weights",
             "format of the matrices",
             {.aliases = {"to"},
              .choices = {"int8", "int4", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"}}},
      weights);
    v(Option{"granularity",
             "int8, int4: what has one scale: a matrix, a row (channel) of it, or a group of "
             "columns of a row (default: channel for int8, group for int4)",
             {.choices = {"tensor", "channel", "group"}}},
      granularity);
    v(Option{"group-size", "columns of a group (default: 128)", {.placeholder = "N"}}, group_size);
    v(Option{"zero-points",
             "int8, int4: codes reach from the least to the largest value, with a zero point for "
             "each scale; else they are symmetric"},
      zero_points);
    v(Option{"method",
             "int8, int4: round each weight to the nearest code (rtn), or spread its error over "
             "the other columns by the inputs that a text gives (gptq)",
             {.choices = {"rtn", "gptq"}}},
      method);
    v(Option{"calibration", "gptq: the text, or JSON lines with \"text\"", {.placeholder = "FILE"}},
      calibration);
    v(Option{"calibration-samples",
             "gptq: pieces of the text that are read at most",
             {.placeholder = "N"}},
      calibration_samples);
    v(Option{"calibration-length", "gptq: tokens of a piece", {.placeholder = "N"}},
      calibration_length);
    v(Option{"damping", "gptq: part of the mean square of the inputs that is added to each"},
      damping);
    v(Option{"lora-load",
             "adapters to merge into the weights first: folder of a run that trained them, or of "
             "an adapter of PEFT",
             {.placeholder = "DIR"}},
      lora_load);
    v(Option{"evaluate",
             "text whose perplexity is printed, of the model before and after",
             {.aliases = {"perplexity-text"}, .placeholder = "FILE"}},
      evaluate);
    v(Option{"no-verify", "do not compare the result with the source"}, no_verify);
    v(Option{"json", "print one JSON object"}, json);
  }

  bool is_integer() const { return weights == "int8" || weights == "int4"; }
};

constexpr std::int64_t kUsualGroup = 128;
constexpr std::int64_t kMostCalibration = 1 << 20;

struct Perplexities {
  double before = 0;
  double after = 0;
  std::int64_t tokens = 0;
};

// One model after the other is in memory. The text is read with the tokenizer of the first: what is
// written of a run may be a folder without one.
class PerplexityOfText {
 public:
  PerplexityOfText(Invocation& invocation, Engine& engine, const TokenizerOptions& tokenizer,
                   const std::string& file)
      : invocation_(invocation), engine_(engine), tokenizer_(tokenizer), file_(file) {}

  TextLoss of(const std::string& path, const std::string& adapters) {
    const auto model =
        Model::load(engine_.machine(), path, tokenizer_, InferenceOptions(), adapters);
    if (rows_.empty())
      rows_ = rows_to_score(file_, {}, SpecialTokensOptions(), *model, invocation_.log);
    const TextLoss loss = loss_of(*model, rows_, invocation_.progress);
    if (loss.tokens > 0) return loss;
    throw Error(Fault::kData, "--evaluate: {} has no token to score; wanted a longer text", file_);
  }

 private:
  Invocation& invocation_;
  Engine& engine_;
  TokenizerOptions tokenizer_;
  std::string file_;
  std::vector<std::vector<std::int32_t>> rows_;
};

// Flags that only some formats or methods have.
void check_flags(const OptionSet& set, const QuantizeOptions& options) {
  const auto refuse = [&](const char* flag, const std::string& with) {
    if (!set.given(flag)) return;
    throw Error(Fault::kUsage, "--{}: works only with {}; leave it out", flag, with);
  };
  if (!options.is_integer()) {
    for (const char* flag : {"granularity", "group-size", "zero-points", "method"})
      refuse(flag, "--weights int8 or int4");
  }
  if (!options.granularity.empty() && options.granularity != "group")
    refuse("group-size", "--granularity group");
  if (options.method == "gptq") {
    if (options.calibration.empty())
      throw Error(Fault::kUsage, "--method gptq: no text is named; wanted --calibration FILE");
    if (options.granularity == "tensor") {
      throw Error(Fault::kUsage,
                  "--method gptq: has scales of rows or groups; wanted --granularity channel or "
                  "group");
    }
    static_cast<void>(read_whole_text(options.calibration));
  } else {
    for (const char* flag : {"calibration", "calibration-samples", "calibration-length", "damping"})
      refuse(flag, "--method gptq");
  }
  check_range("--calibration-samples", options.calibration_samples, 1, kMostCalibration);
  check_range("--calibration-length", options.calibration_length, 1, kMostCalibration);
  if (!(options.damping > 0 && options.damping < 100)) {
    throw Error(Fault::kUsage, "--damping: got {}, wanted a positive number, such as 0.01",
                options.damping);
  }
}

// `models`: arguments without a flag.
void check(const std::vector<std::string>& models, const OptionSet& set, QuantizeOptions& options) {
  refuse_more_arguments(models, options.load.empty() ? 1 : 0);
  if (!models.empty()) options.load = models[0];
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder or file of one");
  if (options.weights.empty()) {
    throw Error(Fault::kUsage,
                "--weights: no format is named; wanted int8, int4, q8_0, q4_0, q4_k, q5_k or q6_k");
  }
  if (options.save.empty())
    throw Error(Fault::kUsage, "--save: no target is named; wanted a folder or NAME.gguf");
  if (options.save.ends_with(".gguf") == options.is_integer()) {
    throw Error(Fault::kUsage, "--save: got {}, wanted {} with --weights {}", options.save,
                options.is_integer() ? "a folder" : "NAME.gguf", options.weights);
  }
  check_flags(set, options);
  if (!options.evaluate.empty()) static_cast<void>(read_whole_text(options.evaluate));
  if (is_launched()) {
    throw Error(Fault::kUsage,
                "quantize: started as one of several ranks; one process makes the files of every "
                "layout: start it without mpirun");
  }
}

// What the flags say of a folder.
CodedWeights coded_weights(const QuantizeOptions& options, const TokenizerOptions& tokenizer) {
  const bool half = options.weights == "int4";
  const std::string usual = half ? "group" : "channel";
  const std::string granularity = !options.granularity.empty() ? options.granularity
                                  : options.group_size         ? "group"
                                                               : usual;
  CodedWeights coded{.gptq = options.method == "gptq",
                     .calibration = options.calibration,
                     .samples = options.calibration_samples,
                     .length = options.calibration_length,
                     .damping = options.damping,
                     .tokenizer = tokenizer};
  coded.format.bits = half ? 4 : 8;
  coded.format.symmetric = !options.zero_points;
  coded.format.whole_tensor = granularity == "tensor";
  if (granularity != "group") return coded;
  coded.format.group = options.group_size.value_or(kUsualGroup);
  check_range("--group-size", coded.format.group, 1, kLargestSize);
  if (half && coded.format.group % 2 != 0) {
    throw Error(Fault::kUsage, "--group-size: got {}, wanted an even number with int4",
                coded.format.group);
  }
  return coded;
}

ConvertOptions conversion_of(const QuantizeOptions& options, const TokenizerOptions& tokenizer) {
  ConvertOptions conversion;
  conversion.load = options.load;
  conversion.lora_load = options.lora_load;
  conversion.save = options.save;
  conversion.no_verify = options.no_verify;
  if (options.is_integer()) {
    conversion.save_model_type = "hf";
    conversion.coded = coded_weights(options, tokenizer);
  } else {
    conversion.outtype = options.weights;
  }
  return conversion;
}

}  // namespace

int run_quantize(Invocation& invocation) {
  StopSignals signals(invocation.log);
  GeneralOptions general;
  QuantizeOptions options;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Quantization", options);
  set.add("Tokenizer", tokenizer);
  const std::vector<std::string> models = invocation.parse(set, general);
  check(models, set, options);
  const ConvertOptions conversion = conversion_of(options, tokenizer);
  Engine engine(engine_options(general), invocation.log);
  PerplexityOfText text(invocation, engine, tokenizer, options.evaluate);
  std::optional<Perplexities> perplexities;
  if (!options.evaluate.empty()) {
    check_conversion(engine.machine(), conversion);
    const TextLoss before = text.of(options.load, options.lora_load);
    perplexities = {.before = std::exp(before.mean()), .tokens = before.tokens};
  }
  const std::optional<ConvertReport> report = until_stopped(
      invocation, signals,
      [&](Progress& progress) { return convert(engine.machine(), conversion, progress); });
  if (!report) return 128 + signals.first();
  invocation.warn_of_root(general);
  for (const std::string& note : report->notes) invocation.log.warning(note);
  if (perplexities) perplexities->after = std::exp(text.of(options.save, "").mean());
  if (options.json) {
    nlohmann::ordered_json out = json_of(*report);
    if (perplexities) {
      out["perplexity"] = {{"before", perplexities->before},
                           {"after", perplexities->after},
                           {"tokens", perplexities->tokens}};
    }
    std::fputs((out.dump() + "\n").c_str(), stdout);
    return 0;
  }
  std::fputs(lines_of(*report, options.save).c_str(), stdout);
  if (perplexities) {
    std::fputs(
        fmt::format("perplexity: {:.4f} before, {:.4f} after ({:+.2f} %), {} tokens\n",
                    perplexities->before, perplexities->after,
                    100 * (perplexities->after / perplexities->before - 1), perplexities->tokens)
            .c_str(),
        stdout);
  }
  return 0;
}

}  // namespace piton::cli
