// piton quantize: writes a model whose matrices are small integers.
#include <cmath>
#include <optional>

#include "api/engine.h"
#include "api/model.h"
#include "base/files/files.h"
#include "cli/commands/conversion.h"
#include "cli/commands/scored_text.h"
#include "cli/launch.h"

namespace piton::cli {
namespace {

struct QuantizeOptions {
  std::string to;
  std::string save;
  std::string lora_load;
  std::string perplexity_text;
  bool no_verify = false;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"to", "format of the matrices", {.choices = {"q8_0", "q4_0", "q4_k", "q5_k", "q6_k"}}},
      to);
    v(Option{"save", "NAME.gguf to write", {.placeholder = "OUT"}}, save);
    v(Option{"lora-load",
             "adapters to merge into the weights first: folder of a run that trained them, or of "
             "an adapter of PEFT",
             {.placeholder = "DIR"}},
      lora_load);
    v(Option{"perplexity-text",
             "text whose perplexity is printed, of the model before and after",
             {.placeholder = "FILE"}},
      perplexity_text);
    v(Option{"no-verify", "do not compare the result with the source"}, no_verify);
    v(Option{"json", "print one JSON object"}, json);
  }
};

struct Perplexities {
  double before = 0;
  double after = 0;
  std::int64_t tokens = 0;
};

// One model after the other is in memory.
class PerplexityOfText {
 public:
  PerplexityOfText(Invocation& invocation, Engine& engine, const TokenizerOptions& tokenizer,
                   const std::string& file)
      : invocation_(invocation), engine_(engine), tokenizer_(tokenizer), file_(file) {}

  TextLoss of(const std::string& path, const std::string& adapters) {
    const auto model =
        Model::load(engine_.machine(), path, tokenizer_, InferenceOptions(), adapters);
    const auto rows = rows_to_score(file_, {}, SpecialTokensOptions(), *model, invocation_.log);
    const TextLoss loss = loss_of(*model, rows, invocation_.progress);
    if (loss.tokens > 0) return loss;
    throw Error(Fault::kData, "--perplexity-text: {} has no token to score; wanted a longer text",
                file_);
  }

 private:
  Invocation& invocation_;
  Engine& engine_;
  TokenizerOptions tokenizer_;
  std::string file_;
};

void check(const std::vector<std::string>& models, const QuantizeOptions& options) {
  refuse_more_arguments(models, 1);
  if (models.empty())
    throw Error(Fault::kUsage, "quantize: no model is named; wanted the folder or file of one");
  if (options.to.empty())
    throw Error(Fault::kUsage, "--to: no format is named; wanted q8_0, q4_0, q4_k, q5_k or q6_k");
  if (options.save.empty())
    throw Error(Fault::kUsage, "--save: no target is named; wanted NAME.gguf");
  if (!options.save.ends_with(".gguf")) {
    throw Error(Fault::kUsage, "--save: got {}, wanted NAME.gguf with --to {}", options.save,
                options.to);
  }
  if (!options.perplexity_text.empty()) static_cast<void>(read_text_file(options.perplexity_text));
  if (is_launched()) {
    throw Error(Fault::kUsage,
                "quantize: started as one of several ranks; one process makes the files of every "
                "layout: start it without mpirun");
  }
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
  check(models, options);
  Engine engine(engine_options(general), invocation.log);
  PerplexityOfText text(invocation, engine, tokenizer, options.perplexity_text);
  std::optional<Perplexities> perplexities;
  if (!options.perplexity_text.empty()) {
    const TextLoss before = text.of(models[0], options.lora_load);
    perplexities = {.before = std::exp(before.mean()), .tokens = before.tokens};
  }
  ConvertOptions conversion;
  conversion.load = models[0];
  conversion.lora_load = options.lora_load;
  conversion.save = options.save;
  conversion.no_verify = options.no_verify;
  conversion.outtype = options.to;
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
