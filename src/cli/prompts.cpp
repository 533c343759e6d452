#include "cli/prompts.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/nesting.h"
#include "cli/standard_input.h"

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

Prompt encoded(std::string text, const Model& model) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  Prompt prompt{.text = std::move(text)};
  prompt.ids = tokenizer.encode(prompt.text, {.add_special_tokens = true});
  if (!prompt.ids.empty()) return prompt;
  // Nothing to continue: start as a document starts, with <s> or after the end of another document.
  const SpecialIds& special = tokenizer.special();
  const std::optional<std::int32_t> first = special.bos ? special.bos : special.eod;
  if (!first) {
    throw Error(Fault::kUsage,
                "--prompt: is empty, and the tokenizer has no token that begins a text; give a "
                "word");
  }
  prompt.ids = {*first};
  return prompt;
}

// The prompt of a line of JSON. `where`: file and line.
std::string prompt_of_json(const std::string& line, const std::string& where) {
  check_json_depth(line, where);
  const auto json = read_json_or_discarded<nlohmann::json>(line);
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("prompt") && json["prompt"].is_string()) {
    return json["prompt"].get<std::string>();
  }
  throw Error(Fault::kData, "{}: wanted a JSON string, or an object with \"prompt\"", where);
}

std::vector<Prompt> prompts_of_file(const std::string& path, const Model& model) {
  const std::string text = read_text(path);
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (path.ends_with(".jsonl")) {
      line = prompt_of_json(line, fmt::format("{}: line {}", path, number));
    }
    prompts.push_back(encoded(std::move(line), model));
  }
  if (prompts.empty()) throw Error(Fault::kData, "{}: no prompt in it; write one a line", path);
  return prompts;
}

}  // namespace

std::vector<Prompt> read_prompts(const PromptOptions& options, bool text_given,
                                 const Model& model) {
  const int given =
      static_cast<int>(text_given) + static_cast<int>(!options.prompt_ids_text.empty()) +
      static_cast<int>(!options.prompt_file.empty()) + static_cast<int>(!options.prompts.empty());
  if (given > 1 || (given == 0 && !has_standard_input()))
    throw Error(Fault::kUsage,
                "--prompt, --prompt-ids, --prompt-file, --prompts: got {} of them, wanted exactly "
                "one, or the text on standard input",
                given);
  if (!options.prompt_ids_text.empty()) return {{"", parse_prompt_ids(options.prompt_ids_text)}};
  if (!options.prompts.empty()) return prompts_of_file(options.prompts, model);
  std::string text = options.prompt;
  if (!text_given || text == "-") {
    text = read_text(options.prompt_file.empty() ? "-" : options.prompt_file);
  }
  return {encoded(std::move(text), model)};
}

}  // namespace piton::cli
