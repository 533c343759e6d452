#include "serve/decoding_loop.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "generate/constraints/run_breakers.h"
#include "serve/http/request_error.h"
#include "serve/loop_turn.h"

namespace piton {
namespace {

using std::chrono::milliseconds;

// Ranks that wait for the first one's next turn give up after a time; this is well within it.
constexpr milliseconds kLongestSilence{1000};

// One text of a job between the threads; guarded by the mutex of the loop.
struct Written {
  std::size_t index = 0;  // in its job
  bool cancelled = false;
  bool finished = false;
};

struct EmbeddingJob {
  std::vector<TextToEmbed> texts;
  std::promise<std::vector<std::vector<float>>> result;
};

}  // namespace

struct DecodingLoop::State {
  State(ServedModel& served, Communicator& all, LoopLimits given)
      : model(served), ranks(all), limits(given) {}

  struct Mailbox {
    std::deque<WritingJob::Event> events;
    std::optional<std::pair<int, std::string>> failure;  // status, message
    std::condition_variable changed;
  };
  struct Entry {
    TextToWrite text;
    std::shared_ptr<Written> written;
    std::shared_ptr<Mailbox> mailbox;
  };

  // Takes what the next turn does from the queues. Waits while there is nothing to do.
  LoopTurn next_turn(std::vector<Entry>& entered, std::optional<EmbeddingJob>& embedded) {
    std::unique_lock lock(mutex);
    const auto has_work = [&] {
      return finishing || !queue.empty() || !embeddings.empty() || changed_texts || !idle;
    };
    changed.wait_for(lock, kLongestSilence, has_work);
    changed_texts = false;
    LoopTurn turn;
    for (auto at = running.begin(); at != running.end();) {
      if (at->second.written->cancelled) {
        turn.cancelled.push_back(at->first);
        at = running.erase(at);
      } else {
        ++at;
      }
    }
    std::erase_if(queue, [](const Entry& entry) { return entry.written->cancelled; });
    while (!queue.empty() && std::ssize(running) + std::ssize(entered) < limits.running) {
      turn.submitted.push_back(queue.front().text);
      entered.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    // One in a turn, so that texts that are written do not wait long.
    if (!embeddings.empty()) {
      turn.embedded = embeddings.front().texts;
      embedded = std::move(embeddings.front());
      embeddings.pop_front();
    }
    turn.last =
        finishing && embeddings.empty() && running.empty() && entered.empty() && queue.empty();
    return turn;
  }

  // Looks at the vocabulary only if the texts of breakers change from request to request.
  void find_breakers(SamplingOptions& sampling) {
    if (sampling.dry.multiplier == 0) return;
    if (!breakers || broken_at != sampling.dry_breakers) {
      broken_at = sampling.dry_breakers;
      breakers = run_breakers(model.tokenizer(), broken_at);
    }
    sampling.dry.breakers = breakers;
  }

  std::int64_t submit_to_engine(TextToWrite& text) {
    find_breakers(text.request.sampling);
    if (text.grammar) {
      if (!tokens) tokens = std::make_shared<TokenTree>(model.tokenizer(), model.vocabulary());
      text.request.constraint =
          std::make_shared<GrammarConstraint>(text.grammar, tokens, text.request.ends);
    }
    return model.engine().submit(std::move(text.request));
  }

  static void fail(Mailbox& mailbox, int status, const std::string& message) {
    mailbox.failure = {status, message};
    mailbox.changed.notify_all();
  }

  void do_turn(LoopTurn& turn, std::vector<Entry>& entered, std::optional<EmbeddingJob>& embedded) {
    for (const std::int64_t number : turn.cancelled) model.engine().cancel(number);
    for (std::size_t i = 0; i < turn.submitted.size(); ++i) {
      try {
        const std::int64_t number = submit_to_engine(turn.submitted[i]);
        if (!entered.empty()) {
          const std::lock_guard lock(mutex);
          running.emplace(number, std::move(entered[i]));
        }
      } catch (const Error& error) {
        if (error.fault() != Fault::kUsage) throw;
        if (entered.empty()) continue;
        const std::lock_guard lock(mutex);
        entered[i].written->finished = true;
        fail(*entered[i].mailbox, 400, error.what());
      }
    }
    if (turn.embedded.empty()) return;
    try {
      std::vector<std::vector<float>> found = model.embed(turn.embedded);
      if (embedded) embedded->result.set_value(std::move(found));
    } catch (const Error& error) {
      const int status = error.fault() == Fault::kUsage ? 400 : 500;
      if (embedded) {
        embedded->result.set_exception(
            std::make_exception_ptr(RequestError(status, "input", error.what())));
      }
      if (status != 400) throw;
    }
  }

  void deliver(const std::vector<DecodingEvent>& events) {
    const std::lock_guard lock(mutex);
    for (const DecodingEvent& event : events) {
      const auto found = running.find(event.request);
      if (found == running.end()) continue;
      Entry& entry = found->second;
      entry.mailbox->events.push_back(
          {entry.written->index, event.token, event.finish, event.scored, event.reused_tokens});
      entry.mailbox->changed.notify_all();
      if (event.finish == FinishReason::kNone) continue;
      entry.written->finished = true;
      running.erase(found);
    }
    idle = model.engine().idle();
    engine_counts = model.engine().counts();
  }

  // The engine has failed: nobody waits forever.
  void fail_all(const std::string& message) {
    const std::lock_guard lock(mutex);
    finishing = true;
    for (auto& [number, entry] : running) fail(*entry.mailbox, 500, message);
    for (Entry& entry : queue) fail(*entry.mailbox, 500, message);
    running.clear();
    queue.clear();
    embeddings.clear();  // breaks their promises
  }

  ServedModel& model;
  Communicator& ranks;
  LoopLimits limits;
  // Of the engine's thread.
  std::shared_ptr<const TokenTree> tokens;
  std::shared_ptr<const RunBreakers> breakers;  // of these texts
  std::vector<std::string> broken_at;

  mutable std::mutex mutex;  // guards the rest
  std::condition_variable changed;
  std::deque<Entry> queue;
  std::map<std::int64_t, Entry> running;  // by the engine's number
  std::deque<EmbeddingJob> embeddings;
  bool changed_texts = false;  // one was cancelled
  bool finishing = false;
  bool idle = true;
  DecodingCounts engine_counts;
};

class DecodingLoop::Job final : public WritingJob {
 public:
  explicit Job(std::shared_ptr<State> loop) : loop_(std::move(loop)) {}
  ~Job() override {
    for (std::size_t i = 0; i < texts_.size(); ++i) cancel(i);
  }

  std::optional<Event> next(milliseconds wait) override {
    std::unique_lock lock(loop_->mutex);
    mailbox_->changed.wait_for(
        lock, wait, [&] { return !mailbox_->events.empty() || mailbox_->failure.has_value(); });
    if (!mailbox_->events.empty()) {
      Event event = std::move(mailbox_->events.front());
      mailbox_->events.pop_front();
      return event;
    }
    if (mailbox_->failure)
      throw RequestError(mailbox_->failure->first, "", mailbox_->failure->second);
    return std::nullopt;
  }

  void cancel(std::size_t text) override {
    const std::lock_guard lock(loop_->mutex);
    Written& written = *texts_[text];
    if (written.finished || written.cancelled) return;
    written.cancelled = true;
    loop_->changed_texts = true;
    loop_->changed.notify_all();
  }

 private:
  friend class DecodingLoop;
  std::shared_ptr<State> loop_;
  std::shared_ptr<State::Mailbox> mailbox_ = std::make_shared<State::Mailbox>();
  std::vector<std::shared_ptr<Written>> texts_;
};

DecodingLoop::DecodingLoop(ServedModel& model, Communicator& ranks, LoopLimits limits)
    : state_(std::make_shared<State>(model, ranks, limits)) {}

DecodingLoop::~DecodingLoop() = default;

void DecodingLoop::run() {
  State& s = *state_;
  const bool leads = s.ranks.rank() == 0;
  try {
    while (true) {
      std::vector<State::Entry> entered;
      std::optional<EmbeddingJob> embedded;
      LoopTurn turn;
      if (leads) turn = s.next_turn(entered, embedded);
      const std::string bytes = s.ranks.gather_bytes(leads ? turn_bytes(turn) : "")[0];
      if (!leads) turn = read_turn(bytes);
      s.do_turn(turn, entered, embedded);
      if (turn.last) return;
      std::vector<DecodingEvent> events;
      if (!s.model.engine().idle()) events = s.model.engine().step();
      s.deliver(events);
    }
  } catch (const std::exception& error) {
    s.fail_all(error.what());
    throw;
  }
}

void DecodingLoop::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->finishing = true;
  state_->changed.notify_all();
}

std::unique_ptr<WritingJob> DecodingLoop::submit(std::vector<TextToWrite> texts) {
  auto job = std::make_unique<Job>(state_);
  const std::lock_guard lock(state_->mutex);
  if (state_->finishing) throw RequestError(503, "", "the server is stopping");
  const std::int64_t places = state_->limits.running + state_->limits.waiting;
  if (std::ssize(texts) > places) {
    throw RequestError(400, "n",
                       fmt::format("n: the request has {} texts, and there are {} places "
                                   "(--max-concurrent-requests, --max-waiting-requests)",
                                   texts.size(), places));
  }
  const std::int64_t taken = std::ssize(state_->running) + std::ssize(state_->queue);
  if (taken + std::ssize(texts) > places) {
    throw RequestError(429, "",
                       fmt::format("the queue is full: {} texts run or wait, this request has {}, "
                                   "and there are {} places; try again later",
                                   taken, texts.size(), places));
  }
  for (TextToWrite& text : texts) {
    auto written = std::make_shared<Written>();
    written->index = job->texts_.size();
    job->texts_.push_back(written);
    state_->queue.push_back({std::move(text), std::move(written), job->mailbox_});
  }
  state_->changed.notify_all();
  return job;
}

std::unique_ptr<WritingJob> DecodingLoop::submit_to_score(std::vector<std::int32_t> ids,
                                                          std::int64_t count,
                                                          std::optional<std::int64_t> adapter) {
  std::vector<TextToWrite> texts(1);
  texts[0].request = {.prompt = std::move(ids),
                      .sampling = {.max_new_tokens = 0, .log_probabilities = count},
                      .scored_from = 1,
                      .adapter = adapter};
  return submit(std::move(texts));
}

std::vector<std::vector<float>> DecodingLoop::embed(std::vector<TextToEmbed> texts) {
  std::future<std::vector<std::vector<float>>> result;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->finishing) throw RequestError(503, "", "the server is stopping");
    if (std::ssize(state_->embeddings) >= state_->limits.waiting + state_->limits.running)
      throw RequestError(429, "", "the queue of texts to embed is full; try again later");
    EmbeddingJob& job = state_->embeddings.emplace_back();
    job.texts = std::move(texts);
    result = job.result.get_future();
    state_->changed.notify_all();
  }
  try {
    return result.get();
  } catch (const std::future_error&) {
    throw RequestError(500, "", "the engine has failed");
  }
}

DecodingCounts DecodingLoop::counts() const {
  const std::lock_guard lock(state_->mutex);
  DecodingCounts counts = state_->engine_counts;
  counts.running = std::ssize(state_->running);
  counts.waiting = std::ssize(state_->queue);
  return counts;
}

}  // namespace piton
