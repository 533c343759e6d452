#include "generate/batched_engine.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "generate/prefix_index.h"
#include "model/rotary.h"

namespace piton {
namespace {

// A request and its text so far.
struct Text {
  std::int64_t number = 0;  // of the request
  DecodingRequest request;
  std::vector<std::int32_t> ids;  // the prompt, then what was generated
  std::int64_t most_ids = 0;

  // While it runs:
  std::int64_t place = 0;    // its number in the cache
  std::int64_t read_as = 0;  // ids.size() when the last pass read it; 0: none did
  // Node of its last whole page in the index; nothing: its pages are not indexed.
  std::optional<std::int64_t> node;
  std::int64_t indexed = 0;  // pages

  std::int64_t length() const { return std::ssize(ids); }
  std::int64_t generated() const { return length() - std::ssize(request.prompt); }
  bool ends_with(std::int32_t id) const {
    return std::find(request.ends.begin(), request.ends.end(), id) != request.ends.end();
  }
};

std::int64_t common_pages(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return (end - a.begin()) / kCachePage;
}

class BatchedEngine final : public DecodingEngine {
 public:
  BatchedEngine(Inference& inference, const DecodingLimits& limits)
      : inference_(inference),
        config_(inference.config()),
        limits_(limits),
        cache_(inference.make_cache()),
        index_(cache_.pages()) {
    PITON_ASSERT(limits.texts > 0 && limits.prompt_tokens > 0 && limits.cache_tokens >= 0,
                 "limits of {} texts, {} tokens of prompts, {} of the cache", limits.texts,
                 limits.prompt_tokens, limits.cache_tokens);
    kept_pages_ = pages_of(std::max(limits.cache_tokens, config_.max_positions));
  }

  std::int64_t submit(DecodingRequest request) override {
    check_prompt(config_, request.prompt);
    request.sampling.check(config_.vocabulary);
    Text text{.number = next_number_, .ids = request.prompt};
    text.most_ids = text.length() + std::min(request.sampling.max_new_tokens,
                                             config_.max_positions - text.length());
    text.request = std::move(request);
    counts_.prompt_tokens += text.length();
    waiting_.push_back(std::move(text));
    return next_number_++;
  }

  void cancel(std::int64_t request) override {
    const auto is_it = [&](const Text& text) { return text.number == request; };
    std::erase_if(waiting_, is_it);
    const auto running = std::ranges::find_if(running_, is_it);
    if (running == running_.end()) return;
    cache_.pages().remove_text(running->place);
    running_.erase(running);
  }

  std::vector<DecodingEvent> step() override {
    std::vector<DecodingEvent> events;
    end_those_without_a_token(events);
    admit();
    const std::vector<Reading> readings = plan();
    if (readings.empty()) return events;
    std::vector<TextTokens> texts;
    std::vector<std::int32_t> rows;
    std::vector<std::size_t> drawing;  // those that get a token
    std::int32_t end = 0;
    for (const Reading& one : readings) {
      Text& text = running_[one.text];
      const std::int64_t begin = cache_.pages().length(text.place);
      texts.push_back({.text = text.place,
                       .ids = std::span(text.ids).subspan(static_cast<std::size_t>(begin),
                                                          static_cast<std::size_t>(one.count)),
                       .whole = angle_length(text)});
      text.read_as = text.length();
      end += static_cast<std::int32_t>(one.count);
      counts_.computed_tokens += one.count;
      if (begin + one.count < text.length()) continue;
      rows.push_back(end - 1);
      drawing.push_back(one.text);
    }
    ++counts_.passes;
    const std::vector<float> logits =
        inference_.whole_vocabulary(inference_.logits(texts, rows, cache_));
    for (const Reading& one : readings) index_pages(running_[one.text]);
    if (!drawing.empty()) take_tokens(drawing, logits, events);
    return events;
  }

  bool idle() const override { return running_.empty() && waiting_.empty(); }

  DecodingCounts counts() const override {
    DecodingCounts counts = counts_;
    counts.running = std::ssize(running_);
    counts.waiting = std::ssize(waiting_);
    return counts;
  }

 private:
  // Tokens of a running text that a pass reads.
  struct Reading {
    std::size_t text = 0;  // index of running_
    std::int64_t count = 0;
  };

  std::int64_t unread(const Text& text) const {
    return text.length() - cache_.pages().length(text.place);
  }

  // The length whose rotary angles the tokens of a prompt have. Where all angles change at a length
  // the whole text is read again there.
  std::int64_t angle_length(const Text& text) const {
    return config_.rotary_scaling.kind == RotaryScaling::Kind::kLongrope
               ? text.length()
               : std::ssize(text.request.prompt);
  }

  // Whether a text of this length has the angles of short ones, so that it can share their pages.
  bool can_share(std::int64_t length) const {
    return rotary_length(config_.rotary_scaling, length) ==
           rotary_length(config_.rotary_scaling, 1);
  }

  void end_those_without_a_token(std::vector<DecodingEvent>& events) {
    std::erase_if(waiting_, [&](const Text& text) {
      if (!text.request.constraint || text.generated() > 0 || !text.request.constraint->done())
        return false;
      events.push_back(
          {.request = text.number, .token = {{-1, 0}, {}}, .finish = FinishReason::kStop});
      return true;
    });
  }

  // Makes at least `pages` pages free, if texts need not give up theirs for it.
  bool make_room(std::int64_t pages) {
    CachePages& all = cache_.pages();
    if (all.free() >= pages) return true;
    const std::int64_t missing = pages - all.free();
    if (all.size() + missing <= kept_pages_) {
      inference_.make_room(cache_, pages, kept_pages_);
      return true;
    }
    index_.evict(pages);
    if (all.free() >= pages) return true;
    if (limits_.cache_tokens > 0) return false;
    inference_.make_room(cache_, pages);
    return true;
  }

  // Starts waiting requests, in order, while there is room.
  void admit() {
    while (!waiting_.empty() && std::ssize(running_) < limits_.texts) {
      Text& text = waiting_.front();
      PrefixIndex::Prefix prefix;
      const bool shares = can_share(text.length());
      // The last token is always read: its logits are needed.
      const auto to_find = std::span(text.ids).first(text.ids.size() - 1);
      if (shares) prefix = index_.find(to_find);
      if (shares && is_being_read(text, std::ssize(prefix.pages))) return;
      const std::int64_t reused = std::ssize(prefix.pages) * kCachePage;
      text.place = cache_.pages().add_text(prefix.pages, reused);
      // With a page more, so that it is not soon out of its place again.
      const std::int64_t pages = cache_.pages().pages_to_append(
          text.place, std::min(text.length() + kCachePage, text.most_ids) - reused);
      if (!make_room(pages + unread_pages()) && !running_.empty()) {
        cache_.pages().remove_text(text.place);
        return;
      }
      text.node = shares ? std::optional(prefix.node) : std::nullopt;
      text.indexed = std::ssize(prefix.pages);
      text.read_as = 0;
      counts_.reused_tokens += reused;
      running_.push_back(std::move(text));
      waiting_.pop_front();
    }
  }

  // Whether a running text computes more of this text's beginning than is known.
  bool is_being_read(const Text& text, std::int64_t known_pages) const {
    const auto most = static_cast<std::int64_t>(text.ids.size() - 1) / kCachePage;
    return std::ranges::any_of(running_, [&](const Text& other) {
      return other.node && unread(other) > 1 &&
             std::min(common_pages(other.ids, text.ids), most) > known_pages;
    });
  }

  // Pages that running texts have yet to get for what they have to read.
  std::int64_t unread_pages() const {
    std::int64_t pages = 0;
    for (const Text& text : running_)
      pages += cache_.pages().pages_to_append(text.place, unread(text));
    return pages;
  }

  // What the next pass reads. Older texts get their pages first; if there are none left, the newest
  // text loses its place.
  std::vector<Reading> plan() {
    std::vector<Reading> readings;
    std::int64_t prompt_tokens = limits_.prompt_tokens;
    std::int64_t pages = 0;  // of the readings
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Text& text = running_[i];
      if (text.read_as > 0 &&
          changes_all_angles(config_.rotary_scaling, text.read_as, text.length()))
        read_again(text);
      std::int64_t count = unread(text);
      if (count > 1) {
        count = std::min(count, prompt_tokens);
        prompt_tokens -= count;
      }
      if (count == 0) continue;
      const std::int64_t place = text.place;
      while (i < running_.size() &&
             !make_room(pages + cache_.pages().pages_to_append(place, count)))
        give_up_newest();
      if (i == running_.size()) break;
      pages += cache_.pages().pages_to_append(place, count);
      readings.push_back({.text = i, .count = count});
    }
    return readings;
  }

  void read_again(Text& text) {
    cache_.pages().truncate(text.place, 0);
    text.read_as = 0;
    text.indexed = 0;
    text.node.reset();
  }

  void give_up_newest() {
    PITON_ASSERT(running_.size() > 1, "a cache of {} pages has no room for one text",
                 cache_.pages().size());
    Text text = std::move(running_.back());
    running_.pop_back();
    cache_.pages().remove_text(text.place);
    waiting_.push_front(std::move(text));
  }

  // Other texts can use the whole pages of this one.
  void index_pages(Text& text) {
    if (text.node && !can_share(text.length())) text.node.reset();
    const std::int64_t whole = cache_.pages().length(text.place) / kCachePage;
    for (; text.node && text.indexed < whole; ++text.indexed) {
      text.node =
          index_.add(*text.node,
                     std::span(text.ids).subspan(
                         static_cast<std::size_t>(text.indexed * kCachePage), kCachePage),
                     cache_.pages().table(text.place)[static_cast<std::size_t>(text.indexed)]);
    }
  }

  // Row i of `logits` belongs to running text texts[i].
  void take_tokens(const std::vector<std::size_t>& texts, const std::vector<float>& logits,
                   std::vector<DecodingEvent>& events) {
    const std::vector<GeneratedToken> tokens = agreed_tokens(texts, logits);
    std::vector<std::size_t> ended;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Text& text = running_[texts[i]];
      text.ids.push_back(tokens[i].id);
      ++counts_.generated_tokens;
      const FinishReason finish = finish_of(text);
      events.push_back({.request = text.number, .token = tokens[i], .finish = finish});
      if (finish != FinishReason::kNone) ended.push_back(texts[i]);
    }
    std::ranges::sort(ended, std::greater());
    for (const std::size_t i : ended) {
      cache_.pages().remove_text(running_[i].place);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // After a new token, of which the constraint learns.
  static FinishReason finish_of(Text& text) {
    if (text.ends_with(text.ids.back())) return FinishReason::kStop;
    if (text.request.constraint) {
      text.request.constraint->advance(text.ids.back());
      if (text.request.constraint->done()) return FinishReason::kStop;
    }
    return text.length() == text.most_ids ? FinishReason::kLength : FinishReason::kNone;
  }

  // Only the last stage has logits and draws; all ranks continue with its tokens.
  std::vector<GeneratedToken> agreed_tokens(const std::vector<std::size_t>& texts,
                                            const std::vector<float>& logits) const {
    const auto vocabulary = static_cast<std::size_t>(config_.vocabulary);
    std::vector<LikelyToken> all;
    for (std::size_t i = 0; i < texts.size() && !logits.empty(); ++i) {
      const GeneratedToken token =
          drawn_token(running_[texts[i]], std::span(logits).subspan(i * vocabulary, vocabulary));
      all.push_back(token);
      all.insert(all.end(), token.likeliest.begin(), token.likeliest.end());
    }
    const std::string bytes = inference_.from_last_stage(
        {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(LikelyToken)});
    all.resize(bytes.size() / sizeof(LikelyToken));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    std::vector<GeneratedToken> tokens;
    auto next = all.begin();
    for (const std::size_t i : texts) {
      GeneratedToken& token = tokens.emplace_back();
      static_cast<LikelyToken&>(token) = *next++;
      const std::int64_t others = running_[i].request.sampling.log_probabilities.value_or(0);
      token.likeliest.assign(next, next + others);
      next += others;
    }
    return tokens;
  }

  // A new token of a text. Its log-probabilities are the model's, whatever may be chosen.
  GeneratedToken drawn_token(const Text& text, std::span<const float> logits) const {
    const SamplingOptions& options = text.request.sampling;
    const DrawPlace place{.index = text.generated(), .draw = text.request.draw};
    if (!options.has_penalties() && !text.request.constraint)
      return draw_token(logits, options, place);
    std::vector<float> chosen_by(logits.begin(), logits.end());
    if (options.has_penalties()) penalize(chosen_by, options, text.ids, text.request.prompt.size());
    if (text.request.constraint) {
      std::vector<bool> allowed(logits.size(), false);
      text.request.constraint->allow(allowed);
      for (std::size_t id = 0; id < allowed.size(); ++id) {
        if (!allowed[id]) chosen_by[id] = -std::numeric_limits<float>::infinity();
      }
    }
    return token_of(logits, options, draw_id(chosen_by, options, place));
  }

  Inference& inference_;
  ModelConfig config_;
  DecodingLimits limits_;
  KvCache cache_;
  PrefixIndex index_;
  std::int64_t kept_pages_ = 0;  // to which the cache grows before it forgets ended texts
  std::deque<Text> waiting_;     // the next one first
  std::vector<Text> running_;    // the oldest first
  std::int64_t next_number_ = 0;
  DecodingCounts counts_;
};

}  // namespace

std::unique_ptr<DecodingEngine> make_batched_engine(Inference& inference,
                                                    const DecodingLimits& limits) {
  return std::make_unique<BatchedEngine>(inference, limits);
}

}  // namespace piton
