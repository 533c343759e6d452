// piton generate: continues a prompt, or each of a file.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "api/model.h"
#include "api/speculation.h"
#include "base/options/option_range.h"
#include "base/shell_word.h"
#include "cli/command.h"
#include "cli/commands/adapter_choices.h"
#include "cli/commands/constraint_options.h"
#include "cli/commands/continuation.h"
#include "cli/commands/prompts.h"
#include "cli/compatibility/inference_flags.h"
#include "cli/launch.h"
#include "cli/terminal/print.h"
#include "cli/terminal/standard_input.h"

namespace piton::cli {
namespace {

struct GenerateOptions {
  ModelToLoad model;
  AdapterChoices adapters;
  std::vector<std::string> stop;
  std::optional<std::int64_t> max_length;
  std::int64_t num_samples = 1;
  bool stream = false;
  bool echo = false;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    adapters.visit(v, "objects of --prompts choose by these names in their field model");
    v(Option{"stop", "words that end the text; they are not printed", {.placeholder = "WORD"}},
      stop);
    v(Option{"max-length",
             "largest number of tokens of a prompt and its text together; with --max-new-tokens "
             "that counts",
             {.placeholder = "N"}},
      max_length);
    v(Option{"num-samples",
             "number of texts that are sampled for each prompt; with --num-beams of the best beams "
             "that are given",
             {.aliases = {"num-return-sequences"}}},
      num_samples);
    v(Option{"stream", "print each piece of text as soon as it is generated"}, stream);
    v(Option{"echo", "print the prompt before the text that continues it"}, echo);
    v(Option{"json", "print one JSON object: text, ids, log_probabilities"}, json);
  }
};

// Their keys and values are in memory at once.
constexpr std::int64_t kMostPromptsAtOnce = 4096;

struct GivenOptions {
  const GenerateOptions& options;
  const PromptOptions& prompts;
  const SamplingOptions& sampling;
  const BeamOptions& beams;
  const SpeculationOptions& speculation;
  const ConstraintOptions& constraint;
};

// Flags of draws that are not read.
void refuse_without_effect(const OptionSet& set, const SamplingOptions& sampling) {
  for (const char* flag : {"temperature", "dynatemp-range", "top-k", "top-p", "min-p", "typical-p",
                           "top-n-sigma", "xtc-probability", "xtc-threshold"}) {
    if (!set.given("greedy") || !set.given(flag)) continue;
    throw Error(Fault::kUsage,
                "--greedy: takes the most likely token, and --{} has no effect; "
                "leave one of them out",
                flag);
  }
  for (const char* flag :
       {"dry-base", "dry-allowed-length", "dry-penalty-last-n", "dry-sequence-breaker"}) {
    if (!set.given(flag) || sampling.dry.multiplier > 0) continue;
    throw Error(Fault::kUsage, "--{}: works only with --dry-multiplier; leave it out", flag);
  }
  if (set.given("xtc-threshold") && sampling.xtc_probability == 0)
    throw Error(Fault::kUsage, "--xtc-threshold: works only with --xtc-probability; leave it out");
  if (set.given("dynatemp-exp") && sampling.dynatemp_range == 0)
    throw Error(Fault::kUsage, "--dynatemp-exp: works only with --dynatemp-range; leave it out");
  for (const char* flag : {"mirostat-lr", "mirostat-ent"}) {
    if (!set.given(flag) || sampling.mirostat > 0) continue;
    throw Error(Fault::kUsage, "--{}: works only with --mirostat 2; leave it out", flag);
  }
}

void check_beams(const OptionSet& set, const GivenOptions& given) {
  const auto& [options, prompts, sampling, beams, speculation, constraint] = given;
  const std::string constrained = constraint.flag();
  if (beams.num_beams == 1) {
    for (const char* flag : {"early-stopping", "length-penalty"}) {
      if (!set.given(flag)) continue;
      throw Error(Fault::kUsage, "--{}: works only with --num-beams; leave it out", flag);
    }
    return;
  }
  if (!constrained.empty())
    throw Error(Fault::kUsage, "--num-beams: cannot be combined with {}; leave one of them out",
                constrained);
  if (set.given("lora-modules"))
    throw Error(Fault::kUsage,
                "--num-beams: cannot be combined with --lora-modules; leave one out");
  if (const auto guesses = speculation.flags(); !guesses.empty())
    throw Error(Fault::kUsage, "--num-beams: cannot be combined with {}; leave one of them out",
                guesses[0]);
  for (const char* name :
       {"temperature", "dynatemp-range", "top-k", "top-p", "min-p", "typical-p", "top-n-sigma",
        "xtc-probability", "mirostat", "dry-multiplier", "repetition-penalty", "presence-penalty",
        "frequency-penalty", "no-repeat-ngram-size", "logit-bias", "seed"}) {
    if (!set.given(name)) continue;
    throw Error(Fault::kUsage,
                "--num-beams: follows the likeliest tokens and draws none; leave "
                "--{} out",
                name);
  }
  if (beams.num_beams > 1 && options.num_samples > beams.num_beams)
    throw Error(Fault::kUsage, "--num-samples: got {}, wanted at most the {} of --num-beams",
                options.num_samples, beams.num_beams);
  if (options.stream || sampling.log_probabilities.value_or(0) > 0) {
    throw Error(Fault::kUsage, "--num-beams: cannot be combined with {}; leave one of them out",
                options.stream ? "--stream" : "--logprobs above 0");
  }
}

void check_together(const OptionSet& set, const GivenOptions& given) {
  const auto& [options, prompts, sampling, beams, speculation, constraint] = given;
  sampling.check();
  if (options.model.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  check_one_way(prompts, set.given("prompt"));
  check_range("--prompts-at-once", prompts.prompts_at_once, 1, kMostPromptsAtOnce);
  for (const char* many : {"prompts", "ids-file"}) {
    if (!options.stream || !set.given(many)) continue;
    throw Error(Fault::kUsage,
                "--stream: works only with one prompt; --{} prints an object when each is done",
                many);
  }
  check_range("--num-samples", options.num_samples, 1, kMostPromptsAtOnce);
  if (options.max_length) check_range("--max-length", *options.max_length, 1, kLargestSize);
  if (options.num_samples > 1 && beams.num_beams == 1 && (options.stream || sampling.greedy)) {
    throw Error(Fault::kUsage, "--num-samples: {}; leave one of them out",
                options.stream ? "--stream prints one text"
                               : "all texts would be the most likely one under --greedy");
  }
  speculation.check();
  if (set.given("lora-modules") && !prompts.prompts.ends_with(".jsonl")) {
    throw Error(Fault::kUsage,
                "--lora-modules: works only with --prompts FILE.jsonl, whose objects name one as "
                "model; for an adapter of every text give --lora-load");
  }
  refuse_without_effect(set, sampling);
  check_beams(set, given);
}

// Logs why there are fewer tokens than requested, unless the model ended the text.
void print_end_reason(const Model& model, std::size_t prompt, std::size_t written,
                      const SamplingOptions& sampling, Log& log) {
  const std::int64_t length = model.config().max_positions;
  if (model.config().encoder_decoder) prompt = 1;  // it is not a part of the text
  if (static_cast<std::int64_t>(written) >= sampling.max_new_tokens) return;
  if (static_cast<std::int64_t>(prompt + written) < length) return;
  log.info(
      fmt::format("stopped after {} tokens: with the {} of the prompt they fill the {} that "
                  "the model was trained on",
                  written, prompt, length));
}

// Of texts that `flag` constrains.
void report_cut(std::span<const Continuation> all, const std::string& flag, Log& log) {
  const auto cut = std::ranges::count_if(all, &Continuation::is_cut);
  if (cut == 0) return;
  log.warning(fmt::format("{}: {} of {} texts are cut: they need more tokens (--max-new-tokens)",
                          flag, cut, all.size()));
}

std::string ids_line(std::span<const std::int32_t> prompt, const Continuation& one) {
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  for (const GeneratedToken& token : one.tokens) ids.push_back(token.id);
  return fmt::format("{}\n", fmt::join(ids, " "));
}

void suggest_score(const std::string& load, Log& log) {
  log.info(fmt::format("next: piton score --load {} FILE, the loss on a text of yours",
                       shell_word(load)));
}

// --max-length, unless there is --max-new-tokens.
void set_longest(const OptionSet& set, std::int64_t tokens, std::span<const Prompt> prompts,
                 SamplingOptions& sampling, Continuer& continuer) {
  if (set.given("max-new-tokens")) return;
  sampling.max_new_tokens = tokens;
  continuer.set_longest(tokens, prompts);
}

// The first of them, which are printed as text.
std::span<const Continuation> printed(const std::vector<Continuation>& all, std::int64_t most) {
  return std::span(all).first(std::min(all.size(), static_cast<std::size_t>(most)));
}

}  // namespace

int run_generate(Invocation& invocation) {
  GeneralOptions general;
  GenerateOptions options;
  PromptOptions prompt_options;
  SamplingOptions sampling;
  BeamOptions beams;
  SpeculationOptions speculation;
  ConstraintOptions constraint;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Generation", options);
  set.add("Prompt", prompt_options);
  set.add("Sampling", sampling);
  set.add("Beams", beams);
  set.add("Constraint", constraint);
  set.add("Speculative decoding", speculation);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  InferenceFlags others(InferenceCommand::kGenerate, set);
  AdapterFiles adapters;
  invocation.together([&] {
    refuse_more_arguments(invocation.parse(set, general));
    sampling.settle();
    check_together(set, {options, prompt_options, sampling, beams, speculation, constraint});
    adapters = options.adapters.files(options.model, options.model.name());
  });
  Engine engine(engine_options(general), invocation.log);
  invocation.together([&] { layout.check(engine.world().size()); });
  layout.drafts_later = speculation.draft_mtp > 0;
  const auto model = Model::load(engine.machine(), options.model.load, tokenizer, layout, adapters);
  Log& log = invocation.log_of_all();
  others.check(model->config(), options.model.load, log);
  const Speculation drafts(engine.machine(), speculation, *model, layout);
  const bool has_text = set.given("prompt");
  if (prompt_options.reads_standard_input(has_text)) share_standard_input(engine.world());
  std::vector<Prompt> prompts;
  std::optional<Continuer> made;
  invocation.together([&] {
    prompts = read_prompts(prompt_options, has_text, *model, options.model.name(), log);
    made.emplace(*model, sampling, beams, options.stop, options.echo);
    made->set_constraint(constraint.text());
    if (options.max_length) set_longest(set, *options.max_length, prompts, sampling, *made);
  });

  const bool has_words = model->tokenizer() != nullptr;
  const bool as_json = options.json || prompt_options.many();
  const bool talks = is_conversation() && !as_json && has_words;
  const bool streams =
      (options.stream || talks) && !as_json && has_words && options.num_samples == 1;
  const auto show = [leads = engine.world().rank() == 0](const std::string& text) {
    if (leads) print_at_once(text);
  };
  if (streams && (talks || options.echo)) show(made->text_of(prompts.front()));
  const auto at_once = static_cast<std::size_t>(prompt_options.prompts_at_once);
  const std::int64_t texts = set.given("num-samples") ? options.num_samples : beams.num_beams;
  for (std::size_t begin = 0; begin < prompts.size(); begin += at_once) {
    const auto some = std::span(prompts).subspan(begin, std::min(at_once, prompts.size() - begin));
    const auto shown = [&](const std::string& text) {
      if (streams) show(text);
    };
    const auto found = made->run(some, shown, texts);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (as_json) show(made->json_line(some[i], found[i]));
      const std::string prompt = options.echo ? made->text_of(some[i]) : "";
      // Of beams the best one, unless more are asked for.
      for (const Continuation& one : printed(found[i], as_json ? 0 : options.num_samples)) {
        show(has_words ? (streams ? "" : prompt + one.text) + "\n"
                       : ids_line(options.echo ? some[i].ids : std::vector<std::int32_t>(), one));
        if (sampling.log_probabilities) show(made->token_lines(one));
      }
      report_cut(found[i], constraint.flag(), log);
      print_end_reason(*model, some[i].ids.size(), found[i].front().tokens.size(), sampling, log);
    }
  }
  report_drafts(model->counts(), log);
  if (talks && !model->config().encoder_decoder) suggest_score(options.model.load, log);
  return 0;
}

}  // namespace piton::cli
