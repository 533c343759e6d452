// piton preprocess: raw files to token files.
#include "data/preprocess/preprocess.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "data/corpus/corpus_card.h"
#include "text/files/tokenizer_options.h"
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

void report(const PreprocessReport& done, bool json, Log& log) {
  for (const BadRecord& bad : done.first_bad) log.warning(describe(bad));
  if (done.bad_records > 0) {
    log.warning(fmt::format("{} {} left out{}", done.bad_records,
                            done.bad_records == 1 ? "bad record was" : "bad records were",
                            done.bad_records > static_cast<std::int64_t>(done.first_bad.size())
                                ? "; the first ones are shown"
                                : ""));
  }
  if (json) {
    nlohmann::ordered_json corpora = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
      corpora.push_back({{"prefix", done.prefixes[i]}, {"tokens", done.tokens[i]}});
    }
    const nlohmann::ordered_json object = {{"corpora", corpora},
                                           {"documents", done.documents},
                                           {"duplicates", done.duplicates},
                                           {"bad_records", done.bad_records},
                                           {"text_bytes", done.text_bytes},
                                           {"seconds", done.seconds},
                                           {"resumed", done.resumed}};
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
  if (!done.prefixes.empty()) {
    log.info(fmt::format("next: piton pretrain --data-path {} ..., or piton inspect {}",
                         fmt::join(done.prefixes, " "), done.prefixes.front()));
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

// Writes the card of each corpus.
void write_cards(const PreprocessOptions& options, const Tokenizer& tokenizer,
                 const PreprocessReport& done) {
  const std::string_view sample_by[] = {"line", "paragraph", "document"};
  for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
    write_card(
        done.prefixes[i],
        {.tokenizer_name = tokenizer.name(),
         .tokenizer_hash = tokenizer.content_hash(),
         .vocabulary = tokenizer.vocabulary_size(),
         .options = {{"json-key", options.json_keys[i]},
                     {"sample-by", std::string(sample_by[static_cast<int>(options.sample_by)])},
                     {"append-eod", options.append_eod ? "true" : "false"},
                     {"add-special-tokens", options.add_special_tokens ? "true" : "false"},
                     {"split-sentences", options.split_sentences ? "true" : "false"},
                     {"remove-duplicates", options.remove_duplicates ? "true" : "false"}},
         .documents = done.documents,
         .tokens = done.tokens[i],
         .made_by = std::string(build_info().version)});
  }
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

PreprocessReport merge(const PreprocessOptions& options) {
  std::optional<CorpusCard> card = joined_card(options.merge);
  PreprocessReport done = merge_corpora(options.merge, options.output_prefix, options.overwrite);
  if (card) {
    card->documents = done.documents;
    card->tokens = done.tokens.at(0);
    write_card(options.output_prefix, *card);
  }
  return done;
}

}  // namespace

int run_preprocess(Invocation& invocation) {
  GeneralOptions general;
  OutputOptions output;
  PreprocessOptions options;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Input and output", options);
  set.add("Tokenizer", tokenizer);
  set.add("Report", output);
  refuse_more_arguments(invocation.parse(set, general), 0);
  if (!options.merge.empty()) {
    if (!options.input.empty() || !options.datasets.empty()) {
      throw Error(
          Fault::kUsage,
          "preprocess: both --merge and --input are given; join corpora in a run of its own");
    }
    const PreprocessReport merged = merge(options);
    invocation.warn_of_root(general);
    report(merged, output.json, invocation.log);
    return 0;
  }
  if (tokenizer.empty()) {
    throw Error(Fault::kUsage,
                "preprocess: no tokenizer; give --tokenizer-name-or-path DIR, or --tokenizer-type "
                "with its files");
  }
  const std::unique_ptr<Tokenizer> opened = open_tokenizer(tokenizer);
  const std::string special =
      special_tokens_line(options, set.given("add-special-tokens"), *opened);
  if (!special.empty()) invocation.log.info(special);
  const PreprocessReport done = preprocess(options, *opened, invocation.log, invocation.progress);
  write_cards(options, *opened, done);
  invocation.warn_of_root(general);
  report(done, output.json, invocation.log);
  return 0;
}

}  // namespace piton::cli
