#include "evaluate/evaluation_requests.h"

#include <algorithm>

#include "base/error.h"
#include "tasks/answers/python_text.h"
#include "text/special_tokens.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;

// As Hugging Face's tokenizers do, by which lm-evaluation-harness encodes.
constexpr EncodeOptions kParsed{.parse_special_tokens = true};

class RequestMaker {
 public:
  RequestMaker(const TextReader& model, const TaskData& data, const RequestRules& rules)
      : model_(model), data_(data), rules_(rules) {
    if (model.adds_special_tokens()) before_ = frame_of(model.tokenizer()).before;
    if (!before_.empty()) begin_ = model.tokenizer().decode(before_);
  }

  std::vector<EvaluationRequest> take() { return std::move(requests_); }

  void add(std::size_t sample) {
    sample_ = sample;
    slot_ = 0;
    const TaskSample& texts = data_.samples[sample];
    switch (data_.task.kind) {
      case TaskKind::kMultipleChoice:
      case TaskKind::kLastWord:
        for (std::size_t i = 0; i < texts.continuations.size(); ++i)
          add_pair(texts.context(i), texts.continuations[i]);
        return;
      case TaskKind::kNextToken:
        for (std::size_t i = 0; i < texts.continuations.size(); ++i)
          add_last_token(texts.context(i), texts.continuations[i]);
        return;
      case TaskKind::kLastToken:
        return add_divided(encoded(texts.contexts.front()), 1);
      case TaskKind::kGeneration:
        for (std::int64_t i = 0; i < rules_.answers; ++i) add_prompt(texts.contexts.front());
        return;
      case TaskKind::kPerplexity:
        return add_windows(encoded(texts.contexts.front()));
      case TaskKind::kPreference:
        for (const std::string& text : texts.contexts) add_conversation(text);
        return;
    }
  }

 private:
  Ids encoded(std::string_view text) const {
    // A template writes special tokens itself, often also the one that begins a text.
    const bool begins = data_.is_chat && !begin_.empty() && text.starts_with(begin_);
    Ids ids = begins ? Ids() : before_;
    model_.tokenizer().encode(text, kParsed, ids);
    return ids;
  }

  std::string where() const {
    const TaskSample& sample = data_.samples[sample_];
    return fmt::format("{}{}{}: sample {}", data_.task.name, sample.subject.empty() ? "" : " ",
                       sample.subject, sample.index);
  }

  std::int32_t prefix_token() const {
    const SpecialIds& special = model_.tokenizer().special();
    for (const auto& id : {special.bos, special.eos, special.eod}) {
      if (id) return *id;
    }
    throw Error(
        Fault::kData,
        "{}: the prompt is empty, and the tokenizer has no token that begins or ends a text",
        where());
  }

  // A text whose last `scored` tokens are the continuation.
  void add_divided(Ids ids, std::size_t scored) {
    const auto longest = static_cast<std::size_t>(model_.longest_sequence());
    if (scored == 0 || scored >= ids.size())
      throw Error(Fault::kData,
                  "{}: got {} tokens of which {} are the answer; wanted both a "
                  "prompt and an answer",
                  where(), ids.size(), scored);
    if (scored > longest)
      throw Error(Fault::kData,
                  "{}: the answer has {} tokens, and the model reads {}; {}, or leave the task out",
                  where(), scored, longest,
                  model_.reads_more_if_asked() ? fmt::format("give --seq-length {} or more", scored)
                                               : "take a model that reads more");
    EvaluationRequest request{.sample = sample_, .slot = slot_++};
    if (ids.size() > longest + 1) {
      ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(longest + 1));
      request.cut = true;
    }
    request.text = {.ids = std::move(ids), .given = 0};
    request.text.given = request.text.ids.size() - scored;
    requests_.push_back(std::move(request));
  }

  void add_pair(std::string_view context, std::string_view continuation) {
    if (context.empty()) {
      const std::int32_t first = prefix_token();
      Ids ids = model_.tokenizer().encode(continuation, kParsed);
      if (ids.empty() || ids.front() != first) ids.insert(ids.begin(), first);
      const std::size_t scored = ids.size() - 1;
      return add_divided(std::move(ids), scored);
    }
    const std::string_view bare = python_right_stripped(context);
    Ids whole = encoded(std::string(context) + std::string(continuation));
    const std::size_t given = encoded(bare).size();
    const std::size_t scored = whole.size() - std::min(given, whole.size());
    add_divided(std::move(whole), scored);
  }

  // The last token of `continuation` right after the context.
  void add_last_token(std::string_view context, std::string_view continuation) {
    const Ids last = model_.tokenizer().encode(continuation, kParsed);
    if (last.empty()) throw Error(Fault::kData, "{}: a choice is empty", where());
    Ids ids = encoded(context);
    ids.push_back(last.back());
    add_divided(std::move(ids), 1);
  }

  void add_conversation(std::string_view text) {
    Ids ids = model_.tokenizer().encode(text, kParsed);
    if (ids.empty()) throw Error(Fault::kData, "{}: the conversation has no token", where());
    add_given(std::move(ids), model_.longest_sequence());
  }

  void add_prompt(std::string_view prompt) {
    const std::int64_t room = model_.longest_sequence() - rules_.max_new_tokens;
    Ids ids = encoded(prompt);
    if (ids.empty()) ids = {prefix_token()};
    add_given(std::move(ids), room);
  }

  // The last `room` tokens at most.
  void add_given(Ids ids, std::int64_t room) {
    EvaluationRequest request{.sample = sample_, .slot = slot_++};
    if (std::ssize(ids) > room) {
      ids.erase(ids.begin(), ids.end() - room);
      request.cut = true;
    }
    const std::size_t given = ids.size();
    request.text = {.ids = std::move(ids), .given = given};
    requests_.push_back(std::move(request));
  }

  // get_rolling_token_windows() of lm-evaluation-harness: every token is predicted once, the first
  // one after the token that begins a text.
  void add_windows(const Ids& tokens) {
    Ids all = {prefix_token()};
    all.insert(all.end(), tokens.begin(), tokens.end());
    const std::int64_t longest = model_.longest_sequence();
    const std::int64_t step = rules_.overlapping_eval > 0 ? rules_.overlapping_eval : longest;
    const std::int64_t total = std::ssize(tokens);
    for (std::int64_t done = 0; done < total;) {
      const std::int64_t scored = std::min(done == 0 ? longest : step, total - done);
      const std::int64_t end = done + scored + 1;  // in `all`
      const std::int64_t context =
          rules_.overlapping_eval > 0 ? std::min(done + 1, longest + 1 - scored) : 1;
      EvaluationRequest request{.sample = sample_, .slot = slot_++};
      request.text = {.ids = {all.begin() + (end - scored - context), all.begin() + end},
                      .given = static_cast<std::size_t>(context)};
      requests_.push_back(std::move(request));
      done += scored;
    }
  }

  const TextReader& model_;
  const TaskData& data_;
  const RequestRules& rules_;
  Ids before_;
  std::string begin_;  // the text of before_
  std::vector<EvaluationRequest> requests_;
  std::size_t sample_ = 0;
  std::size_t slot_ = 0;
};

}  // namespace

void check_room(const TextReader& model, const Task& task, std::int64_t max_new_tokens) {
  if (task.kind != TaskKind::kGeneration || max_new_tokens < model.longest_sequence()) return;
  throw Error(Fault::kUsage,
              "{}: an answer has up to {} tokens, and the model reads {}; give fewer by "
              "--max-new-tokens, so that there is room for a prompt, or leave the task out",
              task.name, max_new_tokens, model.longest_sequence());
}

std::vector<EvaluationRequest> make_requests(const TextReader& model, const TaskData& data,
                                             const RequestRules& rules) {
  check_room(model, data.task, rules.max_new_tokens);
  if (rules.overlapping_eval < 0 || rules.overlapping_eval > model.longest_sequence())
    throw Error(Fault::kUsage, "--overlapping-eval: got {}, wanted 1 to {}, or 0 for none",
                rules.overlapping_eval, model.longest_sequence());
  RequestMaker maker(model, data, rules);
  for (std::size_t sample = 0; sample < data.samples.size(); ++sample) maker.add(sample);
  return maker.take();
}

}  // namespace piton
