// piton preprocess: raw files to token files.
#include "data/preprocess/preprocess.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "base/shell_word.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/compatibility/preprocess_flags.h"
#include "data/corpus/corpus_card.h"
#include "data/preprocess/merge_corpora.h"
#include "data/preprocess/preprocess_cards.h"
#include "model_files/chosen_tokenizer.h"
#include "text/special_tokens.h"

namespace piton::cli {
namespace {

struct OutputOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print the result as one JSON object"}, json);
  }
};

struct Nouns {
  const char* one;
  const char* several;
};

void report_left_out(const LeftOut& left_out, Nouns nouns, Log& log) {
  if (left_out.count == 0) return;
  for (const BadRecord& record : left_out.first) log.warning(describe(record));
  log.warning(fmt::format("{} {} left out{}", left_out.count,
                          left_out.count == 1 ? fmt::format("{} was", nouns.one)
                                              : fmt::format("{} were", nouns.several),
                          left_out.count > static_cast<std::int64_t>(left_out.first.size())
                              ? "; the first ones are shown"
                              : ""));
}

void report(const PreprocessReport& done, bool json, Log& log) {
  report_left_out(done.bad, {"bad record", "bad records"}, log);
  report_left_out(done.too_long, {"sample that is too long", "samples that are too long"}, log);
  report_left_out(done.unteaching, {"sample that teaches nothing", "samples that teach nothing"},
                  log);
  if (json) {
    nlohmann::ordered_json corpora = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
      corpora.push_back({{"prefix", done.prefixes[i]}, {"tokens", done.tokens[i]}});
    }
    nlohmann::ordered_json object = {{"corpora", corpora},
                                     {"documents", done.documents},
                                     {"duplicates", done.duplicates},
                                     {"bad_records", done.bad.count},
                                     {"text_bytes", done.text_bytes},
                                     {"seconds", done.seconds},
                                     {"resumed", done.resumed}};
    if (!done.prompt.empty()) {
      object.update({{"handler", done.handler},
                     {"prompt", done.prompt},
                     {"samples", done.samples},
                     {"taught_tokens", done.taught_tokens},
                     {"too_long", done.too_long.count},
                     {"teaches_nothing", done.unteaching.count}});
    }
    const std::string text =
        object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::fputs(text.c_str(), stdout);
    return;
  }
  for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
    const std::string line = fmt::format("{}.bin: {} documents, {} tokens\n", done.prefixes[i],
                                         done.documents, done.tokens[i]);
    std::fputs(line.c_str(), stdout);
  }
  std::string line = fmt::format("preprocess: {:.1f} MB of text in {:.1f} s",
                                 static_cast<double>(done.text_bytes) / 1e6, done.seconds);
  if (done.duplicates > 0) line += fmt::format(", {} duplicates left out", done.duplicates);
  log.info(line);
  if (!done.prompt.empty()) {
    log.info(fmt::format("{} ({} prompt): {} samples, {} tokens to learn of {}", done.handler,
                         done.prompt, done.samples, done.taught_tokens, done.tokens.at(0)));
  } else if (!done.prefixes.empty()) {
    std::vector<std::string> words;
    for (const std::string& prefix : done.prefixes) words.push_back(shell_word(prefix));
    log.info(fmt::format("next: piton pretrain --data-path {} ..., or piton inspect {}",
                         fmt::join(words, " "), words.front()));
  }
}

// The rule for special tokens, for the log; "" where there are none to add.
std::string special_tokens_line(const PreprocessOptions& options, bool given,
                                const Tokenizer& tokenizer) {
  if (given) {
    return describe_rule(rule_of({.add = options.add_special_tokens}, {}), tokenizer);
  }
  const std::string frame = describe_frame(tokenizer);
  if (frame == "none") return "";
  return fmt::format(
      "special tokens: none (the default of preprocess, as of Megatron; --add-special-tokens adds "
      "{})",
      frame);
}

// A merged corpus has a card if all its parts have one; these must be of one tokenizer.
std::optional<CorpusCard> joined_card(const std::vector<std::string>& prefixes) {
  std::optional<CorpusCard> joined;
  std::string first;
  bool all = true;
  for (const std::string& prefix : prefixes) {
    const std::optional<CorpusCard> card = read_card(prefix);
    all = all && card.has_value();
    if (!card) continue;
    if (joined && joined->tokenizer_hash != card->tokenizer_hash) {
      throw Error(Fault::kData,
                  "--merge: {} was made by the tokenizer {} and {} by {}; one corpus has one",
                  first, joined->tokenizer_name, prefix, card->tokenizer_name);
    }
    if (!joined) {
      joined = card;
      first = prefix;
    }
  }
  return all ? joined : std::nullopt;
}

PreprocessReport merge(const std::vector<std::string>& prefixes, const std::string& output_prefix,
                       bool overwrite) {
  std::optional<CorpusCard> card = joined_card(prefixes);
  PreprocessReport done = merge_corpora(prefixes, output_prefix, overwrite);
  if (card) {
    card->documents = done.documents;
    card->tokens = done.tokens.at(0);
    write_card(output_prefix, *card);
  }
  return done;
}

PreprocessReport merge_groups(const PreprocessOptions& options) {
  if (options.input.size() != 1 || !options.datasets.empty() || options.output_prefix.empty()) {
    throw Error(Fault::kUsage,
                "--merge-group-keys needs one --input, the folder of the corpora, and "
                "--output-prefix");
  }
  PreprocessReport all;
  for (const CorpusGroup& group : corpus_groups(options.input[0], options.merge_group_keys)) {
    const PreprocessReport one =
        merge(group.prefixes, options.output_prefix + "_" + group.key, options.overwrite);
    if (!all.prefixes.empty() && all.documents != one.documents) {
      throw Error(Fault::kData,
                  "--merge-group-keys: {} has {} documents, and {} has {}; the corpora "
                  "do not belong together",
                  all.prefixes.back(), all.documents, one.prefixes[0], one.documents);
    }
    all.prefixes.push_back(one.prefixes[0]);
    all.tokens.push_back(one.tokens[0]);
    all.documents = one.documents;
    all.seconds += one.seconds;
  }
  return all;
}

}  // namespace

int run_preprocess(Invocation& invocation) {
  GeneralOptions general;
  OutputOptions output;
  PreprocessOptions options;
  TokenizerOptions tokenizer;
  OptionSet set;
  PreprocessFlags foreign;
  set.set_foreign(&foreign);
  set.add("Input and output", options);
  set.add("Tokenizer", tokenizer);
  set.add("Report", output);
  refuse_more_arguments(invocation.parse(set, general), 0);
  foreign.report(invocation.log);
  if (!options.merge.empty()) {
    if (!options.input.empty() || !options.datasets.empty()) {
      throw Error(Fault::kUsage,
                  "both --merge and --input are given; join corpora in a separate run");
    }
    const PreprocessReport merged = merge(options.merge, options.output_prefix, options.overwrite);
    invocation.warn_of_root(general);
    report(merged, output.json, invocation.log);
    return 0;
  }
  if (!options.merge_group_keys.empty()) {
    const PreprocessReport merged = merge_groups(options);
    invocation.warn_of_root(general);
    report(merged, output.json, invocation.log);
    return 0;
  }
  if (tokenizer.empty()) {
    throw Error(Fault::kUsage,
                "no tokenizer; give --tokenizer-name-or-path DIR, or --tokenizer-type "
                "with its files");
  }
  ChosenTokenizer chosen = chosen_tokenizer(tokenizer);
  const std::unique_ptr<Tokenizer> opened = open_tokenizer(chosen);
  // --padded-vocab-size is of the model that will read these ids.
  static_cast<void>(padded_vocabulary_size(opened->vocabulary_size(), tokenizer));
  options.chat_templates = std::move(chosen.chat_templates);
  const std::string special =
      special_tokens_line(options, set.given("add-special-tokens"), *opened);
  const bool texts = options.instruct.handler_name.empty() && !options.instruct.asks_for_answers();
  if (texts && !special.empty()) invocation.log.info(special);
  const PreprocessReport done = preprocess(options, *opened, invocation.log, invocation.progress);
  write_cards(options, *opened, done, std::string(build_info().version));
  invocation.warn_of_root(general);
  report(done, output.json, invocation.log);
  return 0;
}

}  // namespace piton::cli
