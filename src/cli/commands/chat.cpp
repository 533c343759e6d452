// piton chat: a conversation with a model, by the chat template that it was trained with.
#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>

#include "api/model.h"
#include "api/speculation.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "checkpoint/collective.h"
#include "cli/chat_variables.h"
#include "cli/command.h"
#include "cli/commands/continuation.h"
#include "cli/commands/dialogue.h"
#include "cli/commands/model_chat_template.h"
#include "cli/commands/model_to_load.h"
#include "cli/compatibility/inference_flags.h"
#include "cli/launch.h"
#include "cli/terminal/interrupts.h"
#include "cli/terminal/print.h"
#include "cli/terminal/standard_input.h"
#include "text/chat/chat_template_files.h"
#include "text/chat/turn_ends.h"
#include "text/unicode/utf8.h"

namespace piton::cli {
namespace {

struct ChatOptions {
  ModelToLoad model;
  std::string system;
  std::string chat_template;
  ChatVariables variables;
  std::int64_t history_turns = 0;
  std::vector<std::string> stop;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    v(Option{"system",
             "text of the system message (default: that of the template)",
             {.placeholder = "TEXT"}},
      system);
    v(Option{"chat-template",
             "file of a chat template in Jinja, the name of one of the model's, or one of "
             "--prompt-type (default: the model's own)",
             {.placeholder = "FILE"}},
      chat_template);
    variables.visit(v);
    v(Option{"history-turns",
             "number of questions that the model sees, with their answers (0: all that fit)"},
      history_turns);
    v(Option{"stop", "words that end an answer; they are not printed", {.placeholder = "WORD"}},
      stop);
  }

  void check() const {
    if (model.load.empty())
      throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a model");
    static_cast<void>(variables.json());  // before the model is read
    check_range("--history-turns", history_turns, 0, std::int64_t{1} << 30);
  }
};

// The next line that the first rank reads, on all ranks; nullopt at the end of the input.
std::optional<std::string> next_line(Communicator& ranks) {
  std::string mine;
  if (ranks.rank() == 0) {
    std::string line;
    if (std::getline(std::cin, line)) mine = "+" + line;
  }
  mine = ranks.gather_bytes(mine)[0];
  if (mine.empty()) return std::nullopt;
  mine.erase(0, 1);
  if (mine.ends_with('\r')) mine.pop_back();
  return replace_bad_utf8(mine);
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

// `interruptible`: Ctrl-C ends it.
std::string answer_to(Continuer& continuer, const std::vector<std::int32_t>& ids,
                      const std::function<void(const std::string&)>& show, bool interruptible) {
  std::optional<Interrupts::Answer> answer;
  if (interruptible) answer.emplace();
  continuer.set_interruption([&] { return answer && answer->interrupted(); });
  const Prompt whole{.text = "", .ids = ids};
  const auto found = continuer.run(std::span(&whole, 1), show);
  show("\n");
  return found.front().front().text;
}

// Where a person types, a question that is too long is taken back, with a warning, and there is no
// prompt.
std::optional<Dialogue::Prompt> prompt_of(Dialogue& dialogue, bool talks, bool leads, Log& log) {
  try {
    return dialogue.prompt();
  } catch (const Error& error) {
    if (error.fault() != Fault::kUsage || !talks) throw;
    if (leads) log.warning(error.what());
    dialogue.take_back();
    return std::nullopt;
  }
}

// `count`: questions that no longer fit.
void report_left_out(std::int64_t count, Log& log) {
  if (count == 1) log.info("the model no longer sees the first question");
  if (count > 1) log.info(fmt::format("the model no longer sees the first {} questions", count));
}

// T5 answers no conversations.
void check_is_decoder(const ModelConfig& model, const std::string& load) {
  if (!model.encoder_decoder) return;
  throw Error(Fault::kData,
              "--load: {} has an encoder and a decoder ({}), wanted a decoder; piton generate "
              "--load {} --prompt TEXT gives its texts",
              load, model.family, load);
}

// A small model keeps room for a question.
std::int64_t usual_length(std::int64_t most, const ModelConfig& model) {
  return std::min(most, std::max<std::int64_t>(model.max_positions / 2, 1));
}

}  // namespace

int run_chat(Invocation& invocation) {
  GeneralOptions general;
  ChatOptions options;
  SamplingOptions sampling{.max_new_tokens = 512};
  BeamOptions beams;
  SpeculationOptions speculation;
  InferenceOptions layout;
  TokenizerOptions tokenizer_options;
  OptionSet set;
  set.add("Chat", options);
  set.add("Sampling", sampling);
  set.add("Speculative decoding", speculation);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer_options);
  InferenceFlags others(InferenceCommand::kChat, set);
  refuse_more_arguments(invocation.parse(set, general));
  options.check();
  sampling.settle();
  sampling.check();
  speculation.check();
  Interrupts interrupts;
  Engine engine(engine_options(general), invocation.log);
  invocation.together([&] { layout.check(engine.world().size()); });
  interrupts.threads_are_made();
  const auto ranks = make_group_of_all(engine.world(), "chat");
  layout.drafts_later = speculation.draft_mtp > 0;
  const auto model = Model::load(engine.machine(), options.model.load, tokenizer_options, layout,
                                 options.model.lora_load);
  others.check(model->config(), options.model.load, invocation.log_of_all());
  check_is_decoder(model->config(), options.model.load);
  if (!set.given("max-new-tokens"))
    sampling.max_new_tokens = usual_length(sampling.max_new_tokens, model->config());
  const Speculation drafts(engine.machine(), speculation, *model, layout);
  const Tokenizer& tokenizer = model->require_tokenizer();
  ChatTemplate chat_template =
      model_chat_template(*model, options.chat_template, options.model.load);
  options.variables.set_in(chat_template);
  for (const std::int32_t id : turn_ends(chat_template, tokenizer))
    options.stop.push_back(tokenizer.piece(id));
  Continuer continuer(*model, sampling, beams, options.stop);
  const std::int64_t room = model->config().max_positions - sampling.max_new_tokens;
  check_range("--max-new-tokens", sampling.max_new_tokens, 1, model->config().max_positions - 1);
  Dialogue dialogue(chat_template, tokenizer, options.system,
                    {.turns = options.history_turns, .tokens = room});

  const bool leads = ranks->rank() == 0;
  const bool talks = is_conversation();
  // Ranks of a launcher get its signals, and would have to agree.
  const bool interruptible = talks && ranks->size() == 1;
  const auto show = [leads](const std::string& text) {
    if (leads) print_at_once(text);
  };
  if (leads && talks) {
    invocation.log.info(
        "type a question; Ctrl-C ends an answer, clear begins a new conversation, exit (or Ctrl-D) "
        "ends");
  }
  while (true) {
    if (talks) show("You >> ");
    const std::optional<std::string> line = next_line(*ranks);
    if (!line) {
      if (talks) show("\n");
      break;
    }
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    if (is_one_of(*line, {"q", "quit", "exit"})) break;
    if (is_one_of(*line, {"clear", "new", "reset"})) {
      dialogue.clear();
      continue;
    }
    dialogue.ask(*line);
    const auto prompt = prompt_of(dialogue, talks, leads, invocation.log);
    if (!prompt) continue;
    if (leads && options.history_turns == 0) report_left_out(prompt->left_out, invocation.log);
    if (talks) show("Piton: ");
    dialogue.answer(answer_to(continuer, prompt->ids, show, interruptible));
  }
  if (leads) report_drafts(model->counts(), invocation.log);
  return 0;
}

}  // namespace piton::cli
