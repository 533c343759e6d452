#include "train/sample_prompts.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/options/option_range.h"
#include "data/records/byte_stream.h"
#include "data/records/whole_text.h"
#include "generate/batched_engine.h"
#include "generate/generator.h"
#include "generate/inference.h"
#include "rollouts/questions.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/conversations.h"
#include "text/chat/turn_ends.h"
#include "train/run/run_tokenizer.h"

namespace piton {
namespace {

constexpr std::int64_t kLargestFile = 4 << 20;
constexpr std::int64_t kMostTokens = 1 << 20;

// The last message of a conversation.
std::string shown(const ChatInput& input) {
  if (input.messages.empty()) return "";
  const auto& last = input.messages.back();
  const auto content = last.find("content");
  return content != last.end() && content->is_string() ? content->get<std::string>() : last.dump();
}

ChatTemplate template_for(const PromptReading& reading, bool with_tools) {
  if (!reading.own_template.empty())
    return {reading.own_template, reading.templates.special_tokens, "template of the corpora"};
  return choose_chat_template(reading.templates, "", with_tools);
}

}  // namespace

SamplePrompts::SamplePrompts(const SamplePromptOptions& options, const PromptReading& reading)
    : options_(options), ends_(reading.ends) {
  check_range("--sample-prompts-tokens", options.max_new_tokens, 1, kMostTokens);
  const std::string& file = options.file;
  static_cast<void>(RegularFile(file));  // refuses a pipe, which would be read once
  const std::string text = read_whole_text(file, kLargestFile);
  const std::string name = unpacked_name(file);
  if (name.ends_with(".json") || name.ends_with(".jsonl")) {
    read_conversations_of(text, reading);
  } else {
    read_lines(text, reading);
  }
  if (prompts_.empty()) {
    throw Error(Fault::kData, "--sample-prompts: {}: no prompt is in it, wanted one or more", file);
  }
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::int64_t length = std::ssize(ids_[i]);
    if (length > 0 && length + options.max_new_tokens <= reading.sequence) continue;
    throw Error(Fault::kUsage,
                "--sample-prompts: {}: prompt {} has {} tokens, wanted 1 to {}, so that an answer "
                "of {} (--sample-prompts-tokens) fits into --seq-length {}",
                file, i + 1, length, reading.sequence - options.max_new_tokens,
                options.max_new_tokens, reading.sequence);
  }
}

void SamplePrompts::read_conversations_of(const std::string& text, const PromptReading& reading) {
  for (ChatInput& input : read_conversations(text, options_.file)) {
    input.messages = without_answer(std::move(input.messages));
    const ChatTemplate chosen = template_for(reading, !input.tools.is_null());
    const RenderedChat chat = chosen.render(input, /*add_generation_prompt=*/true);
    prompts_.push_back(shown(input));
    ids_.push_back(encode_chat(reading.tokenizer, chat).ids);
    for (const std::int32_t id : turn_ends(chosen, reading.tokenizer)) {
      if (std::ranges::find(ends_, id) == ends_.end()) ends_.push_back(id);
    }
  }
}

void SamplePrompts::read_lines(const std::string& text, const PromptReading& reading) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    prompts_.push_back(line);
    ids_.push_back(reading.tokenizer.encode(
        line, {.add_special_tokens = reading.adds_special_tokens, .parse_special_tokens = true}));
  }
}

std::vector<PromptAnswer> SamplePrompts::answers(Session& session,
                                                 const Tokenizer& tokenizer) const {
  Inference inference(session.context(false), session.pipeline(), session.mesh(),
                      session.settings().model);
  const std::unique_ptr<DecodingEngine> engine = make_batched_engine(inference, {});
  const PromptBatch batch{.ids = ids_, .draws = {}, .ends = ends_};
  std::vector<StreamDecoder> decoders(
      ids_.size(), StreamDecoder(tokenizer, DecodeOptions{.skip_special_tokens = true}));
  std::vector<PromptAnswer> answers;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    decoders[i].start_after(ids_[i]);
    answers.push_back({prompts_[i], ""});
  }
  generate_batch(*engine, batch, {.max_new_tokens = options_.max_new_tokens, .greedy = true},
                 [&](std::size_t i, const GeneratedToken& token) {
                   answers[i].answer += decoders[i].push(token.id);
                   return true;
                 });
  for (std::size_t i = 0; i < ids_.size(); ++i) answers[i].answer += decoders[i].finish();
  return answers;
}

std::unique_ptr<SamplePrompts> open_sample_prompts(const RunPrompts& run) {
  const auto refuse = [](const char* why, const char* what) {
    throw Error(Fault::kUsage, "--sample-prompts: {}; {}", why, what);
  };
  const ModelConfig& model = run.plan.session.model;
  const ParallelOptions& parallel = run.options.parallel;
  if (run.tokenizer == nullptr)
    refuse("the run has no tokenizer", "name it with --tokenizer-type, or leave this out");
  if (model.encoder || model.labels > 0) refuse("the model continues no text", "leave it out");
  if (parallel.linears.sequence_parallel && parallel.tensor > 1)
    refuse("cannot be combined with --sequence-parallel", "leave one of the two out");
  if (!run.templates.fault.empty()) throw Error(Fault::kData, "{}", run.templates.fault);
  return std::make_unique<SamplePrompts>(
      run.options.sample_prompts,
      PromptReading{.tokenizer = *run.tokenizer,
                    .templates = run.templates.files,
                    .own_template = run.own_template,
                    .ends = text_ends_of_run(run.options.tokenizer, *run.tokenizer),
                    .adds_special_tokens = run.adds_special_tokens,
                    .sequence = std::min(run.plan.sequence, model.longest_sequence())});
}

}  // namespace piton
