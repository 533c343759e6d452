#include "data/preprocess/instruct_plan.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "data/instruct/model_prompt.h"
#include "data/instruct/named_prompt.h"
#include "data/instruct/prompt_chat_template.h"
#include "data/instruct/seed_prompt.h"
#include "data/records/whole_record_parser.h"

namespace piton {
namespace {

// The first record that can be parsed. A discarded value if there is none; `wrong` then gets where
// the first bad record is and what is wrong with it, "" if there are no records.
nlohmann::ordered_json first_record(const PreprocessOptions& options,
                                    const std::vector<InputFile>& files, BlockReader::Rules rules,
                                    std::string& wrong) {
  rules.block_bytes = 1 << 16;
  BlockReader reader(files, std::move(rules), {});
  nlohmann::ordered_json record;
  std::string reason;
  while (auto block = reader.next()) {
    const auto parser = make_whole_record_parser(*block->file, options.sample_by);
    const std::size_t records = records_of(*block, entries_of_record(*block->file));
    for (std::size_t i = 0; i < records; ++i) {
      const Parsed parsed = parser->parse(*block, i, record, reason);
      if (parsed == Parsed::kRecord) return record;
      if (parsed != Parsed::kBad || !wrong.empty()) continue;
      BadRecord bad = place_of(*block, i, entries_of_record(*block->file));
      bad.reason = reason;
      wrong = describe(bad);
    }
  }
  return nlohmann::ordered_json::value_t::discarded;
}

bool reads_standard_input(const std::vector<InputFile>& files) {
  return std::any_of(files.begin(), files.end(),
                     [](const InputFile& file) { return file.path == "-"; });
}

const Handler& detected_handler(const PreprocessOptions& options,
                                const std::vector<InputFile>& files, Log& log) {
  if (reads_standard_input(files)) {
    throw Error(Fault::kUsage,
                "standard input is read once, so that its format cannot be looked at "
                "first; name it with --handler-name");
  }
  if (!options.map_keys.empty()) {
    throw Error(Fault::kUsage, "--map-keys names the keys of a handler; give --handler-name too");
  }
  std::string wrong;
  const auto record = first_record(
      options, files,
      {.sample_by = options.sample_by,
       .optional_columns = {"messages", "conversations", "instruction", "input", "output", "prompt",
                            "completion", "chosen", "rejected", "kto_tag", "label", "text"},
       .any_type = true},
      wrong);
  if (record.is_discarded()) {
    throw Error(Fault::kData, "{}",
                wrong.empty() ? fmt::format("{}: no record; is it empty?", files.at(0).path)
                              : fmt::format("{}; no record of the input can be read", wrong));
  }
  try {
    const Handler& handler = handler_of(record, options.wanted_form);
    log.info(fmt::format("records: {} (from the keys of the first one)", handler.name));
    return handler;
  } catch (const Error& error) {
    throw Error(error.fault(), fmt::format("{}: {}", files.at(0).path, error.what()));
  }
}

LengthRules lengths_of(const InstructOptions& options) {
  LengthRules rules{options.cutoff_len};
  // Samples of --seq-length tokens or more would be left out.
  if (options.seq_length && (options.cutoff_len || options.neat_pack)) {
    rules.cutoff =
        std::min(options.cutoff_len.value_or(*options.seq_length), *options.seq_length - 1);
  }
  return rules;
}

// As LabelOptions (model/label_head.h): one text with commas is a list.
KnownLabels labels_of(const InstructOptions& options) {
  KnownLabels labels{.names = options.label_names};
  if (labels.names.size() == 1) {
    std::stringstream all(options.label_names.front());
    labels.names.clear();
    for (std::string one; std::getline(all, one, ',');) labels.names.push_back(one);
  }
  labels.count = std::ssize(labels.names);
  labels.several = options.problem_type == kSeveralLabels;
  if (options.problem_type == kRegression) {
    if (labels.count > 0 || options.num_labels.value_or(1) != 1) {
      throw Error(Fault::kUsage,
                  "--problem-type: got regression, which is of one number; leave --num-labels and "
                  "--label-names out");
    }
    labels.count = 1;
    return labels;
  }
  if (!options.num_labels) return labels;
  if (*options.num_labels < 1 || (labels.count != 0 && labels.count != *options.num_labels)) {
    throw Error(Fault::kUsage, "--num-labels: got {}, wanted {}", *options.num_labels,
                labels.count != 0 ? fmt::format("the {} of --label-names", labels.count)
                                  : "2 or more, or 1 for numbers");
  }
  labels.count = *options.num_labels;
  return labels;
}

void set_prompt(const PreprocessOptions& options, const Tokenizer& tokenizer, InstructPlan& plan) {
  const InstructOptions& instruct = options.instruct;
  const LengthRules lengths = lengths_of(instruct);
  const bool named = plan.handler->prompt == PromptRule::kNamed;
  if (!named && (!instruct.prompt_type.empty() || !instruct.prompt_type_path.empty())) {
    throw Error(Fault::kUsage,
                "--prompt-type: {} has its own prompt; AlpacaStyleInstructionHandler and "
                "SharegptStyleInstructionHandler take a template",
                plan.handler->name);
  }
  const SeedPromptRules seed{.every_turn = plan.handler->prompt == PromptRule::kSeedEveryTurn,
                             .append_eod = options.append_eod,
                             .lengths = lengths};
  if (plan.handler->prompt == PromptRule::kBaichuan) {
    plan.prompt = std::make_shared<BaichuanPrompt>(tokenizer, seed);  // checks the tokenizer
    plan.chat_template =
        chat_template_of(baichuan_template(tokenizer), tokenizer, instruct.thinking);
    plan.prompt_name = "Baichuan's";
  } else if (plan.handler->prompt == PromptRule::kPlain) {
    plan.prompt = std::make_shared<LabelPrompt>(tokenizer);
    plan.prompt_name = "no";
  } else if (!named) {
    plan.chat_template = seed_chat_template(tokenizer);
    plan.prompt = std::make_shared<SeedPrompt>(tokenizer, seed);
    plan.prompt_name = "AscendSpeed's";
  } else if (instruct.prompt_type.empty()) {
    const auto own = std::make_shared<ModelPrompt>(
        options.chat_templates, tokenizer,
        ModelPromptRules{
            .thinking = instruct.thinking, .append_eod = options.append_eod, .lengths = lengths});
    plan.work = own->source();
    plan.prompt = own;
    plan.prompt_name = "the model's own";
  } else {
    const PromptTemplate prompt = prompt_template(instruct.prompt_type, instruct.prompt_type_path);
    plan.chat_template = chat_template_of(prompt, tokenizer, instruct.thinking);
    plan.prompt = std::make_shared<NamedPrompt>(
        prompt, tokenizer,
        NamedPromptRules{
            .thinking = instruct.thinking, .append_eod = options.append_eod, .lengths = lengths});
    plan.prompt_name = instruct.prompt_type;
  }
}

std::string work_of(const PreprocessOptions& options, const InstructPlan& plan) {
  const InstructOptions& instruct = options.instruct;
  const auto number = [](const std::optional<std::int64_t>& value) { return value.value_or(-1); };
  return fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}", plan.handler->name, plan.prompt_name, plan.labels.count,
      fmt::join(plan.labels.names, "|"),
      instruct.prompt_type_path.empty() ? "" : read_text_file(instruct.prompt_type_path, 16 << 20),
      name(instruct.thinking), number(lengths_of(instruct).cutoff), number(instruct.seq_length));
}

constexpr std::size_t kMostShown = 4000;  // bytes of the first sample

// As JSON, so that a line of the log stays one; its beginning, if it is long.
std::string shortened(std::string text) {
  const std::size_t size = text.size();
  if (size > kMostShown) text.resize(kMostShown);
  std::string shown =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (size > kMostShown) shown += fmt::format("... ({} bytes)", size);
  return shown;
}

// The first sample, with the text that is learned between [learned: and ].
std::string shown(const TaughtText& sample, const Tokenizer& tokenizer) {
  std::string text;
  std::size_t at = 0;
  while (at < sample.ids.size()) {
    const bool learned = sample.labels[at] != kIgnoredLabel && at > 0;
    std::size_t end = at + 1;
    while (end < sample.ids.size() && (sample.labels[end] != kIgnoredLabel) == learned) ++end;
    const std::string part =
        tokenizer.decode(std::span(sample.ids).subspan(at, end - at), DecodeOptions{});
    text += learned ? "[learned: " + part + "]" : part;
    at = end;
  }
  return text;
}

std::string shown_label(const KnownLabels& known, const Conversation& text) {
  if (known.are_values() && text.label) return fmt::to_string(KnownLabels::value_of(*text.label));
  return fmt::format("{}", fmt::join(known.stored(text), ", "));
}

void report_first(const PreprocessOptions& options, const Tokenizer& tokenizer,
                  const std::vector<InputFile>& files, const InstructPlan& plan, Log& log) {
  if (reads_standard_input(files)) return;
  std::string wrong;  // the run reports bad records
  const auto record = first_record(options, files, reader_rules(options, plan), wrong);
  if (record.is_discarded()) return;
  try {
    const Conversation conversation = read_conversation(*plan.handler, plan.fields, record);
    const std::vector<TaughtText> samples = plan.prompt->encode(conversation);
    if (plan.handler->form == SampleForm::kLabels) {
      log.info(fmt::format("first sample: {} tokens, label {}: {}", samples.at(0).ids.size(),
                           shown_label(plan.labels, conversation),
                           shortened(tokenizer.decode(samples[0].ids))));
      return;
    }
    log.info(fmt::format("first sample: {} tokens, {} of them learned: {}",
                         samples.at(0).ids.size(), taught_tokens(samples[0]),
                         shortened(shown(samples[0], tokenizer))));
    if (options.instruct.prompt_type.empty()) return;
    const std::string difference =
        difference_from_model(options.chat_templates, tokenizer, conversation, samples[0]);
    if (!difference.empty()) log.warning(difference);
  } catch (const Error&) {
    // The run reports bad records with their places.
  }
}

}  // namespace

BlockReader::Rules reader_rules(const PreprocessOptions& options, const InstructPlan& plan) {
  return {.sample_by = options.sample_by,
          .columns = plan.fields.required(),
          .max_record_bytes = options.max_record_bytes,
          .optional_columns = plan.fields.optional(),
          .any_type = plan.handler->form != SampleForm::kTexts};
}

void check_instruct_options(const PreprocessOptions& options) {
  const InstructOptions& instruct = options.instruct;
  const auto positive = [](const std::optional<std::int64_t>& value, const char* name,
                           std::int64_t least) {
    if (value && *value < least) {
      throw Error(Fault::kUsage, "--{}: got {}, wanted {} or more", name, *value, least);
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // of a corpus
    if (value && *value > kMost)
      throw Error(Fault::kUsage, "--{}: got {}, wanted {} or less", name, *value, kMost);
  };
  positive(instruct.cutoff_len, "cutoff-len", 2);
  positive(instruct.seq_length, "seq-length", 3);
  positive(instruct.max_samples, "max-samples", 1);
  if (options.n_subs < 1 || options.n_subs > 1024) {
    throw Error(Fault::kUsage, "--n-subs: got {}, wanted 1 to 1024", options.n_subs);
  }
  if (instruct.packs() && !instruct.seq_length) {
    throw Error(Fault::kUsage, "--pack: no --seq-length; packed sequences have that many tokens");
  }
  if (!instruct.prompt_type_path.empty() && instruct.prompt_type.empty()) {
    throw Error(Fault::kUsage, "--prompt-type-path: no --prompt-type; name a template of the file");
  }
  if (!instruct.interleave_probs.empty() && instruct.mix_strategy == MixStrategy::kConcat) {
    throw Error(Fault::kUsage,
                "--interleave-probs needs --mix-strategy interleave_under or "
                "interleave_over");
  }
  if (instruct.mix_strategy != MixStrategy::kConcat && options.partition_index) {
    throw Error(Fault::kUsage,
                "--mix-strategy and --partition-index cannot be combined; mix the whole "
                "input");
  }
}

std::optional<InstructPlan> make_instruct_plan(const PreprocessOptions& options,
                                               const Tokenizer& tokenizer,
                                               const std::vector<InputFile>& files, Log& log) {
  const InstructOptions& instruct = options.instruct;
  const bool automatic = instruct.handler_name == "auto" ||
                         (instruct.handler_name.empty() && instruct.asks_for_answers());
  if (instruct.handler_name.empty() && !automatic) return {};
  InstructPlan plan;
  plan.handler =
      automatic ? &detected_handler(options, files, log) : &handler_named(instruct.handler_name);
  if (options.wanted_form && plan.handler->form != *options.wanted_form) {
    throw Error(Fault::kData, "{}: {} has {}, wanted {}{}", files.at(0).path, plan.handler->name,
                name(plan.handler->form), name(*options.wanted_form),
                plan.handler->form == SampleForm::kPairs
                    ? "; --stage dpo, or another one of preferences, learns from pairs"
                    : "");
  }
  if (plan.handler->form == SampleForm::kTexts && instruct.asks_for_answers()) {
    throw Error(Fault::kUsage,
                "{} writes texts, which have no answers; leave out --prompt-type, "
                "--seq-length, --cutoff-len, --pack and --enable-thinking, or name another "
                "--handler-name",
                plan.handler->name);
  }
  if (plan.handler->format == RecordFormat::kText) return {};
  if (options.split_sentences || options.json_keys != std::vector<std::string>{"text"}) {
    throw Error(Fault::kUsage,
                "{} reads its own keys (--map-keys); leave out --json-keys and "
                "--split-sentences",
                plan.handler->name);
  }
  if (plan.handler->form != SampleForm::kTexts &&
      (options.add_special_tokens || options.parse_special_tokens)) {
    throw Error(Fault::kUsage,
                "--add-special-tokens and --parse-special-tokens are for texts; the "
                "prompt decides which special tokens samples have");
  }
  const bool preferences =
      plan.handler->form == SampleForm::kPairs || plan.handler->form == SampleForm::kJudged;
  if (preferences && (instruct.packs() || options.append_eod)) {
    throw Error(Fault::kUsage, "{}: preferences are neither packed nor ended by --append-eod",
                plan.handler->name);
  }
  if (plan.handler->form == SampleForm::kLabels) {
    plan.labels = labels_of(instruct);
    if (instruct.asks_for_answers() || options.append_eod) {
      throw Error(Fault::kUsage,
                  "{}: has no prompt, and the run cuts its texts; leave out --prompt-type, "
                  "--seq-length, --cutoff-len, --pack, --enable-thinking and --append-eod",
                  plan.handler->name);
    }
  } else if (!instruct.label_names.empty() || instruct.num_labels || instruct.problem_type) {
    throw Error(Fault::kUsage,
                "--label-names, --num-labels, --problem-type: are for TextLabelHandler, got {}",
                plan.handler->name);
  }
  plan.fields = fields_of(*plan.handler, options.map_keys);
  if (plan.handler->form != SampleForm::kTexts) set_prompt(options, tokenizer, plan);
  plan.work += work_of(options, plan);
  if (plan.prompt != nullptr) report_first(options, tokenizer, files, plan, log);
  return plan;
}

}  // namespace piton
