#include "serve/text_writing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/seconds.h"
#include "serve/http/request_error.h"

namespace piton {
namespace {

constexpr std::chrono::milliseconds kLookAtClient{100};

}  // namespace

TextWriting::TextWriting(const WritingPlace& place, TextRequest request, std::uint64_t number,
                         const HttpClient& client)
    : place_(place),
      request_(std::move(request)),
      form_(make_answer_form(request_, place_.model, number)) {
  const Tokenizer& tokenizer = place_.model.tokenizer();
  const std::vector<TextToWrite> all = request_.texts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& prompt = request_.prompts[request_.prompt_of(i)];
    texts_.emplace_back(tokenizer, prompt, request_.stop, request_.ends);
    reasoning_.emplace_back(request_.reasoning);
    reasoning_tokens_.push_back(0);
    tool_calls_.emplace_back(request_.tools);
    if (i % static_cast<std::size_t>(request_.samples) == 0) usage_.prompt += std::ssize(prompt);
  }
  if (request_.reasoning != ReasoningPlace::kNone) usage_.reasoning = 0;
  if (request_.echo) read_prompts(client);
  if (request_.generates) job_ = place_.loop.submit(all);
}

nlohmann::ordered_json TextWriting::whole(const HttpClient& client) {
  shown_.resize(texts_.size());
  write(
      [&](std::size_t i, const std::string& written) {
        const ReasoningText::Parts parts = parts_of(i, written);
        shown_[i].reasoning += parts.reasoning;
        shown_[i].answer += parts.answer;
        return true;
      },
      client);
  std::vector<AnswerChoice> choices;
  std::vector<AnswerEnd> ends;
  std::vector<std::vector<GeneratedToken>> tokens(texts_.size());
  std::vector<std::vector<std::int64_t>> offsets(texts_.size());
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const Echo* echo = echo_of(i);
    if (echo != nullptr) {
      tokens[i] = echo->tokens;
      offsets[i] = echo->offsets;
    }
    tokens[i].insert(tokens[i].end(), texts_[i].tokens().begin(), texts_[i].tokens().end());
    for (const std::int64_t offset : texts_[i].offsets())
      offsets[i].push_back(begin_of(i) + offset);
    choices.push_back({.text = (echo != nullptr ? echo->text : "") + shown_[i].answer,
                       .reasoning = shown_[i].reasoning,
                       .tokens = tokens[i],
                       .reasoning_tokens = reasoning_tokens_[i],
                       .offsets = offsets[i],
                       .first_is_unknown = echo != nullptr});
    ends.push_back(end_of(i));
  }
  return form_->whole(choices, ends, usage_);
}

void TextWriting::stream(const HttpAnswer::Write& to_client, const HttpClient& client) {
  bool connected = true;
  const auto send = [&](const std::string& events) {
    if (!events.empty()) connected = connected && to_client(events);
  };
  send(form_->begin({.prompt = usage_.prompt}));
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    send(form_->first_part(i));
    if (const Echo* echo = echo_of(i)) {
      send(form_->part(i, {.text = echo->text,
                           .tokens = echo->tokens,
                           .offsets = echo->offsets,
                           .first_is_unknown = true}));
    }
  }
  try {
    write(
        [&](std::size_t i, const std::string& written) {
          const ReasoningText::Parts parts = parts_of(i, written);
          const std::span<const GeneratedToken> all = texts_[i].tokens();
          const auto last = all.last(std::min<std::size_t>(all.size(), 1));
          const bool is_reasoning = reasoning_tokens_[i] == all.size();
          if (!parts.answer.empty() || !parts.reasoning.empty() || request_.likeliest) {
            const std::int64_t offset =
                begin_of(i) + (last.empty() ? 0 : texts_[i].offsets().back());
            send(form_->part(i, {.text = parts.answer,
                                 .reasoning = parts.reasoning,
                                 .tokens = last,
                                 .reasoning_tokens = is_reasoning ? last.size() : 0,
                                 .offsets = {&offset, last.size()}}));
          }
          if (texts_[i].finished()) send(form_->last_part(i, end_of(i)));
          return connected;
        },
        client);
    if (!request_.generates) {
      for (std::size_t i = 0; i < texts_.size(); ++i) send(form_->last_part(i, end_of(i)));
    }
    send(form_->end(usage_));
  } catch (const RequestError& error) {  // the status was sent long ago
    send(form_->failed(error));
  }
}

void TextWriting::check_time_and(const HttpClient& client) const {
  if (Clock::now() > begin_ + place_.deadline)
    throw RequestError(504, "", "the answer took longer than the server's time limit");
  if (!client.is_connected()) throw RequestError(499, "", "the client has closed the connection");
}

void TextWriting::read_prompts(const HttpClient& client) {
  for (const auto& prompt : request_.prompts) {
    Echo& echo = echoes_.emplace_back();
    PromptText shown = prompt_text(place_.model.tokenizer(), prompt);
    echo.text = std::move(shown.text);
    echo.characters = characters(echo.text);
    if (!request_.likeliest) continue;
    echo.offsets = std::move(shown.offsets);
    echo.tokens.push_back({{prompt.front(), 0}, {}});
    if (prompt.size() == 1) continue;
    const std::unique_ptr<WritingJob> job =
        place_.loop.submit_to_score(prompt, *request_.likeliest, request_.adapter);
    std::optional<WritingJob::Event> event;
    while (!(event = job->next(kLookAtClient))) check_time_and(client);
    std::ranges::move(event->scored, std::back_inserter(echo.tokens));
  }
}

const TextWriting::Echo* TextWriting::echo_of(std::size_t text) const {
  return request_.echo ? &echoes_[request_.prompt_of(text)] : nullptr;
}

std::int64_t TextWriting::begin_of(std::size_t text) const {
  const Echo* echo = echo_of(text);
  return echo != nullptr ? echo->characters : 0;
}

ReasoningText::Parts TextWriting::parts_of(std::size_t text, const std::string& written) {
  const bool was_inside = reasoning_[text].is_inside();
  ReasoningText::Parts parts = reasoning_[text].push(written);
  if (was_inside || reasoning_[text].is_inside())
    reasoning_tokens_[text] = texts_[text].tokens().size();
  parts.answer = tool_calls_[text].push(parts.answer);
  if (!texts_[text].finished()) return parts;
  ReasoningText::Parts rest = reasoning_[text].finish();
  parts.reasoning += rest.reasoning;
  parts.answer += tool_calls_[text].push(rest.answer);
  parts.answer += tool_calls_[text].finish();
  return parts;
}

AnswerEnd TextWriting::end_of(std::size_t text) const {
  if (!request_.generates) return {.reason = FinishReason::kLength};
  AnswerEnd end{.reason = texts_[text].reason(),
                .stop_word = texts_[text].stop_word(),
                .calls = tool_calls_[text].calls()};
  if (!request_.several_calls && end.calls.size() > 1) end.calls.resize(1);
  return end;
}

void TextWriting::write(const Each& each, const HttpClient& client) {
  std::size_t left = request_.generates ? texts_.size() : 0;
  while (left > 0) {
    const auto event = job_->next(kLookAtClient);
    if (Clock::now() > begin_ + place_.deadline) {
      job_.reset();
      throw RequestError(504, "", "the answer took longer than the server's time limit");
    }
    if (!event) {
      if (client.is_connected()) continue;
      job_.reset();
      throw RequestError(499, "", "the client has closed the connection");
    }
    WrittenText& text = texts_[event->text];
    if (text.finished()) continue;
    // As the prompt itself: of one of its texts.
    if (text.tokens().empty() && event->text % static_cast<std::size_t>(request_.samples) == 0)
      usage_.reused += event->reused_tokens;
    // A constraint may allow the empty text alone, which has no token.
    if (event->token.id >= 0 && usage_.written++ == 0)
      place_.metrics.add_first_token(seconds_since(begin_));
    if (reasoning_[event->text].is_inside()) ++*usage_.reasoning;
    const std::string part = text.push(event->token, event->finish);
    if (text.finished()) {
      --left;
      job_->cancel(event->text);
    }
    if (!each(event->text, part)) {
      job_.reset();
      return;
    }
  }
}

}  // namespace piton
