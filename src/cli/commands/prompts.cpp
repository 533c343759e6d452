#include "cli/commands/prompts.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/nesting.h"
#include "cli/commands/ids_file.h"
#include "cli/terminal/standard_input.h"
#include "data/records/byte_stream.h"
#include "data/records/whole_text.h"

namespace piton::cli {
namespace {

std::vector<std::int32_t> parse_prompt_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    std::size_t used = 0;
    long id = -1;
    try {
      id = std::stol(word, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != word.size() || id < 0 || id > INT32_MAX) {
      throw Error(Fault::kUsage, "--prompt-ids: got \"{}\", wanted ids separated by commas", word);
    }
    ids.push_back(static_cast<std::int32_t>(id));
    at = comma + 1;
  }
  return ids;
}

Prompt encoded(std::string text, const Tokenizer& tokenizer, bool add_special_tokens) {
  Prompt prompt{.text = std::move(text)};
  // As of Transformers, vLLM and llama.cpp: who writes a prompt writes its special tokens too.
  prompt.ids = tokenizer.encode(
      prompt.text, {.add_special_tokens = add_special_tokens, .parse_special_tokens = true});
  if (!prompt.ids.empty()) return prompt;
  // Nothing to continue: start as a document starts, with <s> or after the end of another document.
  const SpecialIds& special = tokenizer.special();
  std::optional<std::int32_t> first = add_special_tokens ? special.bos : special.eod;
  if (!first) first = add_special_tokens ? special.eod : special.bos;
  if (!first) {
    throw Error(Fault::kUsage,
                "--prompt: is empty, and the tokenizer has no token that begins a text; give a "
                "word");
  }
  prompt.ids = {*first};
  return prompt;
}

// The models that a line can name.
struct ModelNames {
  std::string base;
  const std::vector<std::string>& adapters;

  // Throws Error(kData) for another one. `where`: file and line.
  std::optional<std::int64_t> adapter(const nlohmann::json& named, const std::string& where) const {
    if (named.is_null() || named == base) return std::nullopt;
    for (std::size_t i = 0; i < adapters.size(); ++i)
      if (named == adapters[i]) return static_cast<std::int64_t>(i);
    std::string names = nlohmann::json(base).dump();
    for (const std::string& one : adapters) names += ", " + nlohmann::json(one).dump();
    throw Error(Fault::kData, "{}: model: got {}, wanted one of {} (--lora-modules adds adapters)",
                where, named.dump(), names);
  }
};

struct PromptLine {
  std::string text;
  std::optional<std::int64_t> adapter;
};

// The prompt of a line of JSON. `where`: file and line.
PromptLine prompt_of_json(const std::string& line, const std::string& where,
                          const ModelNames& names) {
  check_json_depth(line, where);
  const auto json = read_json_or_discarded<nlohmann::json>(line);
  if (json.is_string()) return {json.get<std::string>(), std::nullopt};
  if (json.is_object() && json.contains("prompt") && json["prompt"].is_string()) {
    return {json["prompt"].get<std::string>(),
            names.adapter(json.value("model", nlohmann::json()), where)};
  }
  throw Error(Fault::kData, "{}: wanted a JSON string, or an object with \"prompt\"", where);
}

std::vector<Prompt> prompts_of_file(const std::string& path, const Tokenizer& tokenizer,
                                    bool add_special_tokens, const ModelNames& names) {
  const std::string text = read_whole_text(path);
  const bool lines_of_json = unpacked_name(path).ends_with(".jsonl");
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    PromptLine line{text.substr(at, end - at), std::nullopt};
    at = end + 1;
    ++number;
    if (line.text.ends_with('\r')) line.text.pop_back();
    if (line.text.empty()) continue;
    if (lines_of_json)
      line = prompt_of_json(line.text, fmt::format("{}: line {}", path, number), names);
    prompts.push_back(encoded(std::move(line.text), tokenizer, add_special_tokens));
    prompts.back().adapter = line.adapter;
  }
  if (prompts.empty()) throw Error(Fault::kData, "{}: no prompt in it; write one a line", path);
  return prompts;
}

int ways_given(const PromptOptions& options, bool text_given) {
  return static_cast<int>(text_given) + static_cast<int>(!options.prompt_ids_text.empty()) +
         static_cast<int>(!options.prompt_file.empty()) +
         static_cast<int>(!options.prompts.empty()) + static_cast<int>(!options.ids_file.empty());
}

[[noreturn]] void refuse_ways(int given) {
  throw Error(Fault::kUsage,
              "--prompt, --prompt-ids, --prompt-file, --prompts, --ids-file: got {} of them, "
              "wanted exactly one, or the text on standard input",
              given);
}

std::vector<Prompt> prompts_of_lists(const std::string& path) {
  std::vector<Prompt> prompts;
  for (std::vector<std::int32_t>& ids : ids_of_file(path)) {
    if (ids.empty()) {
      throw Error(Fault::kData, "{}: list {} is empty, wanted ids to continue", path,
                  prompts.size() + 1);
    }
    prompts.push_back({.ids = std::move(ids)});
  }
  if (prompts.empty()) throw Error(Fault::kData, "{}: no list in it, wanted some", path);
  return prompts;
}

}  // namespace

void check_one_way(const PromptOptions& options, bool text_given) {
  const int given = ways_given(options, text_given);
  if (given > 1) refuse_ways(given);
}

std::vector<Prompt> read_prompts(const PromptOptions& options, bool text_given, const Model& model,
                                 const std::string& name, Log& log) {
  check_one_way(options, text_given);
  if (ways_given(options, text_given) == 0 && !has_standard_input()) refuse_ways(0);
  const bool one_list = !options.prompt_ids_text.empty();
  if (one_list || !options.ids_file.empty()) {
    if (options.special_tokens.add) {
      throw Error(Fault::kUsage, "{}: is for text, and {} gives ids; leave it out",
                  options.special_tokens.flag(), one_list ? "--prompt-ids" : "--ids-file");
    }
    if (one_list) return {{.ids = parse_prompt_ids(options.prompt_ids_text)}};
    return prompts_of_lists(options.ids_file);
  }
  const Tokenizer& tokenizer = model.require_tokenizer();
  const SpecialTokensRule rule = rule_of(options.special_tokens, model.special_tokens());
  const std::string said = describe_rule(rule, tokenizer);
  if (!said.empty()) log.info(said);
  if (!options.prompts.empty()) {
    const ModelNames names{.base = name, .adapters = model.adapter_names()};
    return prompts_of_file(options.prompts, tokenizer, rule.add, names);
  }
  std::string text = options.prompt;
  if (!text_given || text == "-") {
    text = read_whole_text(options.prompt_file.empty() ? "-" : options.prompt_file);
  }
  return {encoded(std::move(text), tokenizer, rule.add)};
}

}  // namespace piton::cli
