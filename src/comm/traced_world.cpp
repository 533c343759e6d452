#include "comm/traced_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/message_lanes.h"

namespace piton {
namespace {

using Time = TraceEvents::Time;

Time time_now() { return TraceEvents::Clock::now(); }

// Shorter waits are no waits: the event was complete.
constexpr std::chrono::microseconds kWait{2};

void add_wait(TraceEvents& events, const std::string& name, Time begin) {
  const Time end = time_now();
  if (end - begin < kWait || !events.recording()) return;
  events.add(events.row_of_this_thread(), {"wait", name, ""}, begin, end);
}

// Records for how long the host waits for it.
class TracedFence final : public Fence {
 public:
  TracedFence(std::shared_ptr<Fence> inner, std::shared_ptr<TraceEvents> events, std::string name)
      : inner_(std::move(inner)), events_(std::move(events)), name_(std::move(name)) {}
  void wait() override {
    const Time begin = time_now();
    inner_->wait();
    add_wait(*events_, name_, begin);
  }
  bool complete() const override { return inner_->complete(); }
  void then(std::function<void()> work) override { inner_->then(std::move(work)); }

 private:
  std::shared_ptr<Fence> inner_;
  std::shared_ptr<TraceEvents> events_;
  std::string name_;
};

// The collectives of a group follow one another.
struct GroupRow {
  std::shared_ptr<TraceEvents> events;
  int row = 0;
  std::mutex mutex;
  Time last_end{};

  void add(const std::string& name, const std::string& detail, Time ready) {
    const std::lock_guard lock(mutex);
    const Time end = time_now();
    events->add(row, {"communication", name, detail}, std::max(ready, last_end), end);
    last_end = end;
  }
};

// When the last of several things has happened.
struct LastTime {
  std::mutex mutex;
  Time time = time_now();

  void now() {
    const std::lock_guard lock(mutex);
    time = std::max(time, time_now());
  }
  Time get() {
    const std::lock_guard lock(mutex);
    return time;
  }
};

class TracedCommunicator final : public Communicator, public LanedMessages {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<TraceEvents> events)
      : inner_(std::move(inner)), events_(events), row_(std::make_shared<GroupRow>()) {
    row_->events = std::move(events);
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  bool real() const override { return inner_->real(); }
  int largest_tag() const override { return inner_->largest_tag(); }
  TrafficCounts traffic() const override { return inner_->traffic(); }
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override {
    return inner_->allocate_symmetric(bytes);
  }
  void count(const TrafficCounts& carried) override { inner_->count(carried); }

  Event all_reduce(const Tensor& data, Reduction reduction, const After& after) override {
    return collective("all-reduce", data, after,
                      [&] { return inner_->all_reduce(data, reduction, after); });
  }
  Event all_gather(const Tensor& out, const Tensor& mine, const After& after) override {
    return collective("all-gather", out, after,
                      [&] { return inner_->all_gather(out, mine, after); });
  }
  Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) override {
    return collective("reduce-scatter", all, after,
                      [&] { return inner_->reduce_scatter(mine, all, after); });
  }
  Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) override {
    return collective("all-to-all", out, after,
                      [&] { return inner_->all_to_all(out, mine, after); });
  }
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override {
    return collective("all-to-all", out, after,
                      [&] { return inner_->all_to_all_rows(out, mine, counts, after); });
  }
  Event broadcast(const Tensor& data, int root, const After& after) override {
    return collective("broadcast", data, after,
                      [&] { return inner_->broadcast(data, root, after); });
  }
  Event send(const Tensor& data, int member, int tag, Stream& after) override {
    return message("send to", data, member, after,
                   [&] { return inner_->send(data, member, tag, after); });
  }
  Event receive(const Tensor& data, int member, int tag, Stream& after) override {
    return message("receive from", data, member, after,
                   [&] { return inner_->receive(data, member, tag, after); });
  }
  Exchanged exchange(const std::vector<PeerMessage>& sends,
                     const std::vector<PeerMessage>& receives, Stream& after) override {
    Exchanged events = inner_->exchange(sends, receives, after);
    const auto trace = [&](const char* what, const std::vector<PeerMessage>& messages,
                           std::vector<Event>& of) {
      for (std::size_t i = 0; i < messages.size(); ++i) {
        of[i] = message(what, messages[i].data, messages[i].member, after, [&] { return of[i]; });
      }
    };
    trace("receive from", receives, events.received);
    trace("send to", sends, events.sent);
    return events;
  }
  void open_lanes(const std::vector<MessageLane>& lanes, int count) override {
    piton::open_lanes(*inner_, lanes, count);
  }
  void connect(const std::vector<int>& members) override { piton::connect(*inner_, members); }
  std::vector<std::string> gather_bytes(const std::string& mine) override {
    if (!traces()) return inner_->gather_bytes(mine);
    const Time begin = time_now();
    std::vector<std::string> all = inner_->gather_bytes(mine);
    add_wait(*events_, fmt::format("gather bytes ({})", name()), begin);
    return all;
  }
  void barrier() override {
    if (!traces()) return inner_->barrier();
    const Time begin = time_now();
    inner_->barrier();
    add_wait(*events_, fmt::format("barrier ({})", name()), begin);
  }

 private:
  // What a group of one does is no communication. To be asked before it: what has begun before the
  // trace, as on the thread of a save, is no part of it.
  bool traces() const { return events_->recording() && size() > 1; }

  Event waited_for(const Event& event, const std::string& what) const {
    if (!event.fence()) return event;
    return Event(std::make_shared<TracedFence>(event.fence(), events_,
                                               fmt::format("wait for {} ({})", what, name())));
  }

  // Calls done(time when the work before is done) when the operation is complete.
  template <typename Start, typename Done>
  Event timed(const After& after, Start&& start, Done done) {
    const auto ready = std::make_shared<LastTime>();
    for (const Event& event : after.events) {
      if (event.fence()) event.fence()->then([ready] { ready->now(); });
    }
    after.stream.enqueue([ready] { ready->now(); });
    const Event event = start();
    const auto finish = [ready, done] { done(ready->get()); };
    event.fence() ? event.fence()->then(finish) : finish();
    return event;
  }

  template <typename Start>
  Event collective(const char* what, const Tensor& data, const After& after, Start&& start) {
    if (!traces()) return start();
    {
      const std::lock_guard lock(row_->mutex);
      row_->row = events_->row(fmt::format("group {}", name()));
    }
    return waited_for(timed(after, start,
                            [row = row_, what = std::string(what), detail = to_string(data)](
                                Time ready) { row->add(what, detail, ready); }),
                      what);
  }

  template <typename Start>
  Event message(const char* what, const Tensor& data, int member, Stream& after, Start&& start) {
    if (!traces()) return start();
    const int row = events_->row(fmt::format("messages {}", name()));
    return waited_for(timed(After(after), start,
                            [row, events = events_, what = fmt::format("{} {}", what, member),
                             detail = to_string(data)](Time ready) {
                              events->add(row, {"communication", what, detail}, ready, time_now(),
                                          TraceEvents::Kind::kOverlapping);
                            }),
                      what);
  }

  std::unique_ptr<Communicator> inner_;
  std::shared_ptr<TraceEvents> events_;
  std::shared_ptr<GroupRow> row_;
};

class TracedWorld final : public World {
 public:
  TracedWorld(World& inner, std::shared_ptr<TraceEvents> events)
      : inner_(inner), events_(std::move(events)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int host_rank() const override { return inner_.host_rank(); }
  int host_size() const override { return inner_.host_size(); }
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    return std::make_unique<TracedCommunicator>(inner_.make_group(ranks, name), events_);
  }
  void fail(int code, const std::string& why) override { inner_.fail(code, why); }
  [[noreturn]] void abort(int code) override {
    inner_.abort(code);
    __builtin_unreachable();  // GCC 12 does not see that abort() never returns
  }
  TrafficCounts traffic() const override { return inner_.traffic(); }

 private:
  World& inner_;
  std::shared_ptr<TraceEvents> events_;
};

}  // namespace

std::unique_ptr<World> make_traced_world(World& inner, std::shared_ptr<TraceEvents> events) {
  return std::make_unique<TracedWorld>(inner, std::move(events));
}

}  // namespace piton
