#include "generate/batched_engine.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "generate/agreed_tokens.h"
#include "generate/decoded_text.h"
#include "generate/kept_texts.h"
#include "generate/later_drafts.h"
#include "generate/prefix_index.h"
#include "generate/shared_beginnings.h"
#include "model/rotary.h"

namespace piton {
namespace {

// The most logits of one pass, which are on the host too: 64 MiB. Rows of texts that are written
// are not limited.
constexpr std::int64_t kMostLogits = std::int64_t{1} << 24;

// Pages in addition to the longest sequence, so that a batch of short texts does not push out what
// the next ones begin with.
constexpr std::int64_t kPagesOfOthers = 64;

// Texts whose states are kept for those that begin like them: each takes the memory of all states
// of a text, which is that of several thousand tokens.
constexpr std::int64_t kMostKept = 16;

using Text = DecodedText;

class BatchedEngine final : public DecodingEngine {
 public:
  BatchedEngine(Inference& inference, const DecodingLimits& limits, const DraftSource& drafts)
      : inference_(inference),
        drafts_(drafts),
        config_(inference.config()),
        limits_(limits),
        cache_(drafts.later_tokens > 0 ? inference.make_later_cache() : inference.make_cache()),
        index_(cache_.pages()),
        kept_(cache_, kMostKept) {
    PITON_ASSERT(limits.texts > 0 && limits.prompt_tokens > 0 && limits.cache_tokens >= 0,
                 "limits of {} texts, {} tokens of prompts, {} of the cache", limits.texts,
                 limits.prompt_tokens, limits.cache_tokens);
    kept_pages_ = pages_of(std::max(limits.cache_tokens, config_.max_positions));
    if (limits.cache_tokens == 0) kept_pages_ += kPagesOfOthers;
  }

  std::int64_t submit(DecodingRequest request) override {
    check_request(config_, request);
    Text text{.number = next_number_, .ids = request.prompt};
    const std::int64_t most = std::max(config_.max_positions, text.length());
    text.most_ids = text.length() + std::min(request.sampling.max_new_tokens, most - text.length());
    text.request = std::move(request);
    text.most_surprise = text.request.sampling.first_most_surprise();
    counts_.prompt_tokens += text.length();
    waiting_.push_back(std::move(text));
    return next_number_++;
  }

  void cancel(std::int64_t request) override {
    const auto is_it = [&](const Text& text) { return text.number == request; };
    std::erase_if(waiting_, is_it);
    const auto running = std::ranges::find_if(running_, is_it);
    if (running == running_.end()) return;
    leave(*running);
    running_.erase(running);
  }

  std::vector<DecodingEvent> step() override {
    std::vector<DecodingEvent> events;
    end_those_without_a_token(events);
    admit();
    guess();
    const std::vector<TextReading> readings = plan();
    if (readings.empty()) return events;
    std::vector<TextTokens> texts;
    std::deque<std::vector<std::int32_t>> with_drafts;  // ids of such texts
    std::vector<std::int32_t> rows;
    std::int64_t end = 0;  // of the rows
    for (const TextReading& one : readings) {
      Text& text = running_[one.text];
      std::span<const std::int32_t> ids = text.ids;
      if (one.drafts > 0) {
        std::vector<std::int32_t>& whole = with_drafts.emplace_back(text.ids);
        whole.insert(whole.end(), text.drafts.begin(), text.drafts.end());
        ids = whole;
      }
      texts.push_back({.text = text.place,
                       .ids = ids.subspan(static_cast<std::size_t>(one.begin),
                                          static_cast<std::size_t>(one.count())),
                       .whole = angle_length(text),
                       .adapter = text.request.adapter,
                       .prompt_end = text.prompt_end()});
      text.read_as = text.length();
      end += one.count();
      for (std::int64_t row = end - one.rows(text); row < end; ++row)
        rows.push_back(static_cast<std::int32_t>(row));
    }
    counts_.computed_tokens += end;
    ++counts_.passes;
    PassResults results;
    if (drafts_.later_tokens > 0) {
      results = inference_.logits_and_hidden(texts, rows, cache_);
    } else {
      results.logits = inference_.logits(texts, rows, cache_);
    }
    std::vector<GeneratedToken> tokens;
    if (!rows.empty()) tokens = agreed_tokens(inference_, running_, readings, results.logits);
    const std::vector<std::size_t> ended = take_all(readings, tokens, events);
    if (drafts_.later_tokens > 0) guess_later(readings, ended, results.hidden);
    end_texts(ended);
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
  std::int64_t unread(const Text& text) const {
    return text.to_read() - cache_.pages().length(text.place);
  }

  // The length whose rotary angles the tokens of a prompt have. Where all angles change at a length
  // the whole text is read again there.
  std::int64_t angle_length(const Text& text) const {
    return config_.rotary_scaling.kind == RotaryScaling::Kind::kLongrope
               ? text.to_read()
               : std::min(text.to_read(), std::ssize(text.request.prompt));
  }

  // Whether others can share pages of a text, or begin with it as a whole: states are those of all
  // tokens of a text.
  bool can_share(std::int64_t length) const {
    return config_.state_layers() == 0 && can_begin_others(config_, length);
  }
  bool can_keep(std::int64_t length) const {
    return config_.state_layers() > 0 && can_begin_others(config_, length);
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
    kept_.evict(pages);
    if (all.free() >= pages) return true;
    if (limits_.cache_tokens > 0) return false;
    inference_.make_room(cache_, pages);
    return true;
  }

  // Starts waiting requests, in order, while there is room. Those that wait for a beginning which
  // another reads are passed over.
  void admit() {
    std::size_t passed = 0;
    for (auto next = waiting_.begin();
         next != waiting_.end() && std::ssize(running_) < limits_.texts;) {
      Text& text = *next;
      PrefixIndex::Prefix prefix;
      const bool shares = can_share(text.to_read());
      // Rows whose logits are needed are always read.
      const auto to_find = std::span(text.ids).first(static_cast<std::size_t>(text.first_row()));
      if (shares) prefix = index_.find(to_find, PrefixIndex::root_of(text.request.adapter));
      const bool keeps = can_keep(text.to_read());
      if (keeps) prefix.tokens = kept_.common(to_find, text.request.adapter);
      if ((shares || keeps) && is_being_read(text, prefix.tokens)) {
        if (++passed == kMostPassedOver) return;
        ++next;
        continue;
      }
      if (prefix.tokens > 0 && keeps) {
        text.place = cache_.fork(*kept_.find(to_find, text.request.adapter));
      } else {
        text.place = cache_.pages().add_text(prefix.pages, prefix.tokens);
      }
      // With a page more, so that it is not soon out of its place again.
      const std::int64_t pages = cache_.pages().pages_to_append(
          text.place,
          std::min(text.to_read() + kCachePage, std::max(text.to_read(), text.most_ids - 1)) -
              prefix.tokens);
      if (!make_room(pages + unread_pages())) {
        cache_.pages().remove_text(text.place);
        if (!running_.empty()) return;
        // A part of a page, which it holds and copies, may be a page more than there are.
        prefix.tokens = keeps ? 0 : prefix.tokens / kCachePage * kCachePage;
        prefix.pages.resize(static_cast<std::size_t>(prefix.tokens / kCachePage));
        text.place = cache_.pages().add_text(prefix.pages, prefix.tokens);
      }
      text.node = shares ? std::optional(prefix.node) : std::nullopt;
      text.indexed = prefix.tokens / kCachePage;
      text.read_as = 0;
      counts_.reused_tokens += prefix.tokens;
      // A text that lost its place has more to read than its prompt.
      if (!text.reused) text.reused = prefix.tokens;
      running_.push_back(std::move(text));
      next = waiting_.erase(next);
    }
  }

  // Whether a running text computes more of this text's beginning than is known, and this one can
  // soon have it: what is kept where that text is now; else whole pages, and the last page of a
  // text that ends when it is read.
  bool is_being_read(const Text& text, std::int64_t known) const {
    return std::ranges::any_of(running_, [&](const Text& other) {
      const std::int64_t length = other.to_read();
      const std::int64_t read = cache_.pages().length(other.place);
      if (can_keep(length)) return shared_beginning(text, other, known, length) > read;
      if (!other.node) return false;
      const std::int64_t shared =
          other.request.only_scores() ? length : length / kCachePage * kCachePage;
      return read < shared && shared_beginning(text, other, known, shared) > known;
    });
  }

  // Pages that running texts have yet to get for what they have to read.
  std::int64_t unread_pages() const {
    std::int64_t pages = 0;
    for (const Text& text : running_)
      pages += cache_.pages().pages_to_append(text.place, unread(text));
    return pages;
  }

  // Draws after a guess need what the tokens before it were: the words of a constraint, or their
  // shares for Mirostat.
  static bool can_guess(const DecodingRequest& request) {
    return !request.constraint && request.sampling.mirostat == 0;
  }

  // How many guesses a text gets of which one token is unread. With many texts, fewer to each: they
  // are rows of the pass, as those of prompts are.
  std::int64_t most_guesses(const Text& text) const {
    if (config_.state_layers() > 0) return 0;  // states are not taken back
    if (unread(text) != 1 || text.request.only_scores() || !can_guess(text.request)) return 0;
    const std::int64_t share =
        limits_.prompt_tokens / std::max<std::int64_t>(1, std::ssize(running_));
    const std::int64_t source =
        drafts_.drafter != nullptr ? drafts_.drafter->most() : drafts_.later_tokens;
    const std::int64_t most = std::min({source, share, text.most_ids - text.length() - 1});
    // A text is read again where all of its angles change.
    if (most < 1 || changes_all_angles(config_.rotary_scaling, text.length(), text.length() + most))
      return 0;
    return most;
  }

  // Gives guesses to texts; of those that the model guessed, takes back what is too many now.
  void guess() {
    if (!drafts_.guesses()) return;
    std::vector<DraftRequest> requests;
    std::vector<Text*> texts;
    for (Text& text : running_) {
      const std::int64_t most = most_guesses(text);
      const std::int64_t kept = drafts_.drafter == nullptr ? most : 0;
      if (std::ssize(text.drafts) > kept) text.drafts.resize(static_cast<std::size_t>(kept));
      if (most == 0) continue;
      requests.push_back({.ids = text.ids, .most = most});
      texts.push_back(&text);
    }
    if (requests.empty() || drafts_.drafter == nullptr) return;
    std::vector<std::vector<std::int32_t>> drafts = drafts_.drafter->drafts(requests);
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i]->drafts = std::move(drafts[i]);
  }

  // After a pass: the model's layer reads the rows of all texts, and guesses for those that
  // continue.
  void guess_later(const std::vector<TextReading>& readings, const std::vector<std::size_t>& ended,
                   const Tensor& hidden) {
    std::vector<LaterReading> rows;
    std::vector<Text*> texts;
    std::int64_t end = 0;    // of the rows of the pass
    std::int64_t pages = 0;  // of the guesses
    for (const TextReading& one : readings) {
      Text& text = running_[one.text];
      const std::int64_t first = end;
      end += one.count();
      // Without guesses that were wrong, and a row after which the text ended without a token.
      const std::int64_t count =
          std::min(cache_.pages().length(text.place), text.length() - 1) - one.begin;
      if (count < 1) continue;
      LaterReading read{.text = text.place,
                        .begin = one.begin,
                        .first_row = first,
                        .next = std::span(text.ids).subspan(static_cast<std::size_t>(one.begin + 1),
                                                            static_cast<std::size_t>(count)),
                        .whole = angle_length(text)};
      if (std::ranges::find(ended, one.text) == ended.end()) read.most = most_guesses(text);
      const std::int64_t more =
          read.most > 1 ? cache_.pages().pages_to_append(text.place, read.most - 1) : 0;
      if (more > 0 && !make_room(pages + more)) {
        read.most = 1;
      } else {
        pages += more;
      }
      rows.push_back(read);
      texts.push_back(&text);
    }
    std::vector<std::vector<std::int32_t>> drafts = later_drafts(inference_, rows, hidden, cache_);
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i]->drafts = std::move(drafts[i]);
  }

  // The first prompt that is not read, if its tokens see one another: it is read in one pass.
  std::optional<TextReading> whole_prompt() {
    if (!config_.prefix) return {};
    for (std::size_t i = 0; i < running_.size(); ++i) {
      const Text& text = running_[i];
      if (text.prompt_end() == 0 || cache_.pages().length(text.place) > 0) continue;
      const std::int64_t rows = std::max<std::int64_t>(1, kMostLogits / config_.vocabulary);
      const std::int64_t end = std::min(text.to_read(), text.prompt_end() + rows);
      const std::int64_t pages = cache_.pages().pages_to_append(text.place, end);
      while (i < running_.size() && !make_room(pages)) give_up_newest();
      if (i == running_.size()) return {};
      return TextReading{.text = i, .begin = 0, .end = end};
    }
    return {};
  }

  // What the next pass reads. Older texts get their pages first; if there are none left, the newest
  // text loses its place.
  std::vector<TextReading> plan() {
    for (Text& text : running_) {
      if (text.read_as > 0 &&
          changes_all_angles(config_.rotary_scaling, text.read_as, text.length()))
        read_again(text);
    }
    if (const std::optional<TextReading> one = whole_prompt()) return {*one};
    std::vector<TextReading> readings;
    std::int64_t prompt_tokens = limits_.prompt_tokens;
    std::int64_t rows = std::max<std::int64_t>(1, kMostLogits / config_.vocabulary);
    std::int64_t pages = 0;  // of the readings
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Text& text = running_[i];
      const std::int64_t begin = cache_.pages().length(text.place);
      TextReading one{.text = i, .begin = begin, .end = text.to_read()};
      if (one.end - begin > 1) {
        one.end = std::min(one.end, begin + prompt_tokens);
        one.end -= std::max<std::int64_t>(0, one.rows(text) - std::max<std::int64_t>(rows, 0));
        if (can_keep(text.to_read()))
          plan_to_keep(text, one, waiting_, kept_, limits_.prompt_tokens);
        prompt_tokens -= one.end - begin;
      }
      rows -= one.rows(text);
      if (one.end == begin) continue;
      const std::int64_t place = text.place;
      std::int64_t count = one.end - begin;
      const std::int64_t drafts = std::ssize(text.drafts);
      if (drafts > 0 && make_room(pages + cache_.pages().pages_to_append(place, count + drafts))) {
        one.drafts = drafts;
        count += drafts;
      }
      while (i < running_.size() &&
             !make_room(pages + cache_.pages().pages_to_append(place, count)))
        give_up_newest();
      if (i == running_.size()) break;
      pages += cache_.pages().pages_to_append(place, count);
      readings.push_back(one);
    }
    // Linears compute the rows of an adapter as one range.
    std::ranges::stable_sort(
        readings, {}, [&](const TextReading& one) { return running_[one.text].request.adapter; });
    return readings;
  }

  void read_again(Text& text) {
    cache_.pages().truncate(text.place, 0);
    text.drafts.clear();
    text.read_as = 0;
    text.indexed = 0;
    text.node.reset();
  }

  // Gives up the place of a text that has ended. Others can begin with all of its pages.
  void leave(Text& text) {
    const std::int64_t length = cache_.pages().length(text.place);
    if (length > 0 && can_keep(text.to_read())) {
      kept_.keep_ended(text.place, std::span(text.ids).first(static_cast<std::size_t>(length)),
                       text.request.adapter);
      return;
    }
    const std::int64_t whole = length / kCachePage;
    if (text.node && text.indexed == whole && length > whole * kCachePage &&
        can_share(text.to_read())) {
      index_.add(*text.node,
                 std::span(text.ids).subspan(static_cast<std::size_t>(whole * kCachePage),
                                             static_cast<std::size_t>(length % kCachePage)),
                 cache_.pages().table(text.place).back());
    }
    cache_.pages().remove_text(text.place);
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
    if (text.node && !can_share(text.to_read())) text.node.reset();
    const std::int64_t whole = cache_.pages().length(text.place) / kCachePage;
    for (; text.node && text.indexed < whole; ++text.indexed) {
      text.node =
          index_.add(*text.node,
                     std::span(text.ids).subspan(
                         static_cast<std::size_t>(text.indexed * kCachePage), kCachePage),
                     cache_.pages().table(text.place)[static_cast<std::size_t>(text.indexed)]);
    }
  }

  // Forgets the keys and values of drafts that were wrong.
  void take_back_drafts(Text& text, const TextReading& reading, std::int64_t accepted) {
    cache_.pages().truncate(text.place, reading.end + accepted);
    text.drafts.clear();
    ++counts_.drafted_steps;
    counts_.draft_tokens += reading.drafts;
    counts_.accepted_tokens += accepted;
  }

  // Gives texts their tokens. Returns those that have ended, the newest first.
  std::vector<std::size_t> take_all(const std::vector<TextReading>& readings,
                                    std::span<GeneratedToken> tokens,
                                    std::vector<DecodingEvent>& events) {
    std::vector<std::size_t> ended;
    for (const TextReading& one : readings) {
      Text& text = running_[one.text];
      std::vector<DecodingEvent> news = take_tokens(text, one, tokens);
      if (one.drafts > 0) take_back_drafts(text, one, std::ssize(news) - 1);
      index_pages(text);
      if (one.end == text.keep_at)
        kept_.keep_copy(text.place, std::span(text.ids).first(static_cast<std::size_t>(one.end)),
                        text.request.adapter);
      for (DecodingEvent& event : news) {
        if (event.token.id >= 0) ++counts_.generated_tokens;
        if (event.finish != FinishReason::kNone) ended.push_back(one.text);
        events.push_back(std::move(event));
      }
    }
    std::ranges::sort(ended, std::greater());
    return ended;
  }

  void end_texts(const std::vector<std::size_t>& ended) {
    for (const std::size_t i : ended) {
      leave(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  Inference& inference_;
  DraftSource drafts_;
  ModelConfig config_;
  DecodingLimits limits_;
  KvCache cache_;
  PrefixIndex index_;
  KeptTexts kept_;
  std::int64_t kept_pages_ = 0;  // to which the cache grows before it forgets ended texts
  std::deque<Text> waiting_;     // the next one first
  std::vector<Text> running_;    // the oldest first
  std::int64_t next_number_ = 0;
  DecodingCounts counts_;
};

}  // namespace

std::unique_ptr<DecodingEngine> make_batched_engine(Inference& inference,
                                                    const DecodingLimits& limits,
                                                    const DraftSource& drafts) {
  return std::make_unique<BatchedEngine>(inference, limits, drafts);
}

}  // namespace piton
