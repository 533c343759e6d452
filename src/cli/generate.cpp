// piton generate: continues a prompt.
#include <nlohmann/json.hpp>

#include "api/model.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/standard_input.h"

namespace piton::cli {
namespace {

struct GenerateOptions {
  std::string load;
  std::string prompt;
  std::string prompt_ids_text;
  std::string prompt_file;
  bool stream = false;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load", "run, checkpoint or Hugging Face folder of the model", {.placeholder = "DIR"}},
      load);
    v(Option{"prompt",
             "text to continue (- or none: standard input; \"\": from the model's first token)",
             {.placeholder = "TEXT"}},
      prompt);
    v(Option{"prompt-ids", "token ids to continue, separated by commas", {.placeholder = "1,2,3"}},
      prompt_ids_text);
    v(Option{"prompt-file", "file whose text is continued", {.placeholder = "FILE"}}, prompt_file);
    v(Option{"stream", "print each piece of text as it is made"}, stream);
    v(Option{"json", "print one JSON object: text, ids, log_probabilities"}, json);
  }
};

std::vector<std::int32_t> parse_ids(const std::string& text) {
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

struct Prompt {
  std::string text;  // "" if ids were given
  std::vector<std::int32_t> ids;
};

// The text of the prompt: from the flags, else from standard input.
std::string prompt_text(const GenerateOptions& options, bool given) {
  if (given && options.prompt != "-") return options.prompt;
  if (!options.prompt_file.empty()) return read_text(options.prompt_file);
  return read_text("-");
}

Prompt prompt_of(const GenerateOptions& options, bool text_given, const Model& model) {
  const int given = static_cast<int>(text_given) +
                    static_cast<int>(!options.prompt_ids_text.empty()) +
                    static_cast<int>(!options.prompt_file.empty());
  if (given > 1 || (given == 0 && !has_standard_input()))
    throw Error(Fault::kUsage,
                "--prompt, --prompt-ids, --prompt-file: got {} of them, wanted exactly one, or the "
                "text on standard input",
                given);
  if (!options.prompt_ids_text.empty()) return {"", parse_ids(options.prompt_ids_text)};
  const Tokenizer& tokenizer = model.require_tokenizer();
  Prompt prompt{.text = prompt_text(options, text_given)};
  prompt.ids = tokenizer.encode(prompt.text, {.add_special_tokens = true});
  if (prompt.ids.empty()) {
    // Empty prompt: begin where a document begins, which is after the end of another.
    const SpecialIds& special = tokenizer.special();
    const std::optional<std::int32_t> first = special.bos ? special.bos : special.eod;
    if (!first) {
      throw Error(Fault::kUsage,
                  "--prompt: is empty, and the tokenizer has no token that begins a text; give a "
                  "word");
    }
    prompt.ids = {*first};
  }
  return prompt;
}

// Logs why there are fewer tokens than requested, unless the model ended the text.
void say_why_it_ended(const Model& model, std::size_t prompt, std::size_t written,
                      const SamplingOptions& sampling, Log& log) {
  const std::int64_t length = model.config().max_positions;
  if (static_cast<std::int64_t>(written) >= sampling.max_new_tokens) return;
  if (static_cast<std::int64_t>(prompt + written) < length) return;
  log.info(
      fmt::format("stopped after {} tokens: with the {} of the prompt they fill the {} that "
                  "the model was trained on",
                  written, prompt, length));
}

}  // namespace

int run_generate(Invocation& invocation) {
  GeneralOptions general;
  GenerateOptions options;
  SamplingOptions sampling;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Generation", options);
  set.add("Sampling", sampling);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  refuse_more_arguments(invocation.parse(set, general));
  if (sampling.temperature == 0) {
    sampling.greedy = true;
    sampling.temperature = 1;
  }
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  Engine engine(engine_options(general), invocation.log);
  const auto model = Model::load(engine.machine(), options.load, tokenizer, layout);
  const Prompt prompt = prompt_of(options, set.given("prompt"), *model);

  const Tokenizer* words = model->tokenizer();
  std::optional<StreamDecoder> decoder;
  if (words != nullptr) decoder.emplace(*words, DecodeOptions{.skip_special_tokens = true});
  const bool leads = engine.world().rank() == 0;
  const bool talks = is_conversation() && !options.json && words != nullptr;
  const bool prints = (options.stream || talks) && !options.json && words != nullptr;
  const auto show = [leads](const std::string& text) {
    if (!leads) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  if (talks) show(prompt.text);
  std::string text;
  const std::vector<GeneratedToken> tokens =
      model->generate(prompt.ids, sampling, [&](const GeneratedToken& token) {
        if (decoder) {
          const std::string piece = decoder->push(token.id);
          if (prints) show(piece);
          text += piece;
        }
        return true;
      });
  if (decoder) {
    const std::string rest = decoder->finish();
    if (prints) show(rest);
    text += rest;
  }
  if (options.json) {
    nlohmann::ordered_json out;
    out["text"] = text;
    out["prompt_ids"] = prompt.ids;
    for (const GeneratedToken& token : tokens) {
      out["ids"].push_back(token.id);
      out["log_probabilities"].push_back(token.log_probability);
    }
    const std::string line =
        out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    show(line);
  } else if (words != nullptr) {
    show(prints ? "\n" : text + "\n");
  } else {
    std::string line;
    for (const GeneratedToken& token : tokens)
      line += fmt::format("{}{}", line.empty() ? "" : " ", token.id);
    show(line + "\n");
  }
  if (leads) say_why_it_ended(*model, prompt.ids.size(), tokens.size(), sampling, invocation.log);
  if (leads && talks) {
    invocation.log.info(
        fmt::format("next: piton score --load {} FILE, the loss on a text of yours", options.load));
  }
  return 0;
}

}  // namespace piton::cli
