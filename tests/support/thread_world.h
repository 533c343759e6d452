// Ranks as threads of one process, for tests of code that uses communicators.
//
// The last member to arrive executes a collective, so its event stays incomplete until then: work
// without a wait sees old data. The calls of a group are matched by their order; calls that do not
// match (another kind or size) fail the test with Error(kPeer), and so does a member that does not
// arrive within ten seconds. Host memory only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace piton::test {

struct ThreadWorldState {
  // Collectives for which this is true do not change their data, to simulate a lost reduction.
  std::function<bool(const std::string& group, const std::string& kind)> drop;
  // Called for each member of each collective.
  std::function<void(const std::string& group, const std::string& kind)> observe;
  int largest_tag = std::numeric_limits<int>::max();

  struct Call {
    std::string kind;
    Tensor out;
    Tensor in;
    std::vector<std::int64_t> begins;
    std::optional<RowCounts> counts = std::nullopt;
    std::string bytes;
    std::vector<std::string>* all_bytes = nullptr;
    int root = 0;
    bool done = false;
    std::vector<std::function<void()>> then;

    // The arena keeps fences with the tensor's slot, so a fence must not keep the tensor alive.
    void finish() {
      std::atomic_ref(done).store(true);
      out = in = {};
    }
  };
  using Round = std::vector<std::shared_ptr<Call>>;

  std::mutex mutex;
  std::condition_variable changed;
  // Key: ranks and name of the group, number of the call.
  std::map<std::tuple<std::vector<int>, std::string, std::int64_t>, Round> rounds;
  struct Message {
    std::shared_ptr<Call> send;
    std::shared_ptr<Call> receive;
  };
  // Key: group, source, target, tag.
  std::map<std::tuple<std::vector<int>, int, int, int>, std::deque<Message>> mail;
};

class ThreadFence final : public Fence {
 public:
  ThreadFence(ThreadWorldState& state, std::shared_ptr<ThreadWorldState::Call> call,
              std::string what)
      : state_(state), call_(std::move(call)), what_(std::move(what)) {}
  void then(std::function<void()> work) override {
    {
      const std::scoped_lock lock(state_.mutex);
      if (!complete()) return call_->then.push_back(std::move(work));
    }
    work();
  }
  bool complete() const override { return std::atomic_ref(call_->done).load(); }
  void wait() override {
    std::unique_lock lock(state_.mutex);
    if (!state_.changed.wait_for(lock, std::chrono::seconds(10), [&] { return complete(); })) {
      throw Error(Fault::kPeer, "{}: a member did not come", what_);
    }
  }

 private:
  ThreadWorldState& state_;
  std::shared_ptr<ThreadWorldState::Call> call_;
  std::string what_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadWorldState& state, std::vector<int> ranks, int rank, std::string name)
      : state_(state), ranks_(std::move(ranks)), name_(std::move(name)) {
    rank_ = static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::string name() const override { return name_; }

  Event all_reduce(const Tensor& data, Reduction reduction, const After& after) override {
    counts_.all_reduce_bytes += 2 * data.bytes() * (size() - 1) / size();
    const char* kind = reduction == Reduction::kMax ? "all-reduce of maxima" : "all-reduce";
    return start(after, {.kind = kind, .out = data, .in = data});
  }
  Event all_gather(const Tensor& out, const Tensor& mine, const After& after) override {
    counts_.all_gather_bytes += mine.bytes() * (size() - 1);
    return start(after, {.kind = "all-gather", .out = out, .in = mine, .begins = equal_parts(out)});
  }
  Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) override {
    counts_.reduce_scatter_bytes += mine.bytes() * (size() - 1);
    return start(after,
                 {.kind = "reduce-scatter", .out = mine, .in = all, .begins = equal_parts(all)});
  }
  Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) override {
    counts_.all_to_all_bytes += mine.bytes() / size() * (size() - 1);
    return start(after, {.kind = "all-to-all", .out = out, .in = mine, .begins = equal_parts(out)});
  }
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override {
    check_rows(*this, out, mine, counts);
    counts_.all_to_all_bytes +=
        traffic_of_rows(*this, counts, out.dim(1) * size_bytes(out.dtype())).all_to_all_bytes;
    return start(after, {.kind = "all-to-all", .out = out, .in = mine, .counts = counts});
  }
  int largest_tag() const override { return state_.largest_tag; }
  Event broadcast(const Tensor& data, int root, const After& after) override {
    return start(after, {.kind = "broadcast", .out = data, .in = data, .root = root});
  }
  Event send(const Tensor& data, int member, int tag, Stream&) override {
    counts_.point_to_point_bytes += data.bytes();
    return post({ranks_, rank_, member, tag}, data, &ThreadWorldState::Message::send);
  }
  Event receive(const Tensor& data, int member, int tag, Stream&) override {
    return post({ranks_, member, rank_, tag}, data, &ThreadWorldState::Message::receive);
  }
  std::vector<std::string> gather_bytes(const std::string& mine) override {
    std::vector<std::string> all;
    start(at_once(), {.kind = "gather bytes", .bytes = mine, .all_bytes = &all}).wait();
    return all;
  }
  void barrier() override { gather_bytes(""); }
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t) override { return nullptr; }
  void count(const TrafficCounts& carried) override { counts_ += carried; }
  TrafficCounts traffic() const override { return counts_; }

 private:
  using Call = ThreadWorldState::Call;

  std::vector<std::int64_t> equal_parts(const Tensor& all) const {
    std::vector<std::int64_t> begins;
    for (int r = 0; r <= size(); ++r) begins.push_back(all.elements() / size() * r);
    return begins;
  }

  Event event_of(const std::shared_ptr<Call>& call) {
    return Event(std::make_shared<ThreadFence>(state_, call, name_ + " " + call->kind));
  }

  static const After* at_once() { return nullptr; }

  Event start(const After& after, Call description) {
    return start(&after, std::move(description));
  }

  // The member arrives at the collective when the events in `after` are complete; `after` null: at
  // once.
  Event start(const After* after, Call description) {
    auto call = std::make_shared<Call>(std::move(description));
    ++counts_.collectives;
    const std::int64_t number = number_++;
    auto left = std::make_shared<std::atomic<std::size_t>>(1);
    const auto reached = [this, number, call, left] {
      if (--*left == 0) arrive(number, call);
    };
    if (after != nullptr) {
      *left += after->events.size();
      for (const Event& event : after->events) {
        event.fence() ? event.fence()->then(reached) : reached();
      }
    }
    reached();
    return event_of(call);
  }

  void arrive(std::int64_t number, const std::shared_ptr<Call>& call) {
    std::vector<std::function<void()>> then;
    {
      const std::scoped_lock lock(state_.mutex);
      if (state_.observe) state_.observe(name_, call->kind);
      ThreadWorldState::Round& round = state_.rounds[{ranks_, name_, number}];
      round.resize(ranks_.size());
      round[rank_] = call;
      if (!std::ranges::all_of(round, [](const auto& one) { return one != nullptr; })) return;
      carry_out(round);
      for (const auto& one : round) {
        one->finish();
        for (auto& work : one->then) then.push_back(std::move(work));
        one->then.clear();
      }
      state_.rounds.erase({ranks_, name_, number});
      state_.changed.notify_all();
    }
    for (const auto& work : then) work();
  }

  Event post(const std::tuple<std::vector<int>, int, int, int>& key, const Tensor& data,
             std::shared_ptr<Call> ThreadWorldState::Message::*side) {
    auto call = std::make_shared<Call>(Call{.kind = "message", .out = data});
    std::vector<std::function<void()>> then;
    deliver(key, call, side, then);
    for (const auto& work : then) work();
    return event_of(call);
  }

  // Of the message whose other end is there already.
  void deliver(const std::tuple<std::vector<int>, int, int, int>& key,
               const std::shared_ptr<Call>& call,
               std::shared_ptr<Call> ThreadWorldState::Message::*side,
               std::vector<std::function<void()>>& then) {
    const std::scoped_lock lock(state_.mutex);
    auto& box = state_.mail[key];
    auto found = std::ranges::find_if(box, [&](const auto& one) { return one.*side == nullptr; });
    if (found == box.end()) found = box.emplace(box.end());
    (*found).*side = call;
    if (!found->send || !found->receive) return;
    if (found->send->out.bytes() != found->receive->out.bytes()) {
      throw Error(Fault::kPeer, "{}: a message of {} bytes for {}", name_, found->send->out.bytes(),
                  found->receive->out.bytes());
    }
    std::memcpy(found->receive->out.raw(), found->send->out.raw(), found->send->out.bytes());
    for (const auto& end : {found->send, found->receive}) {
      end->finish();
      for (auto& work : end->then) then.push_back(std::move(work));
      end->then.clear();
    }
    box.erase(found);
    state_.changed.notify_all();
  }

  template <typename T>
  static void sum(const ThreadWorldState::Round& round, std::int64_t begin, std::int64_t end,
                  T* out) {
    const bool maximum = round[0]->kind == "all-reduce of maxima";
    std::vector<T> total(end - begin, T(maximum ? std::numeric_limits<T>::lowest() : 0));
    for (const auto& one : round) {
      for (std::int64_t i = begin; i < end; ++i) {
        T& result = total[i - begin];
        const T value = one->in.data<T>()[i];
        result = maximum ? std::max(result, value) : result + value;
      }
    }
    std::ranges::copy(total, out);
  }

  void carry_out(const ThreadWorldState::Round& round) {
    for (const auto& one : round) {
      const bool rows = one->counts.has_value() && round[0]->counts.has_value() &&
                        one->counts->all() == round[0]->counts->all();
      const bool same = one->kind == round[0]->kind && one->begins == round[0]->begins &&
                        one->counts.has_value() == round[0]->counts.has_value() &&
                        (rows || !one->in.defined() || one->kind == "all-gather" ||
                         one->in.elements() == round[0]->in.elements());
      if (!same) throw Error(Fault::kPeer, "{}: {} met {}", name_, one->kind, round[0]->kind);
    }
    const std::string& kind = round[0]->kind;
    if (kind == "gather bytes") {
      for (const auto& one : round) {
        for (const auto& other : round) one->all_bytes->push_back(other->bytes);
      }
      return;
    }
    if (state_.drop && state_.drop(name_, kind)) return;
    if (round[0]->in.dtype() == DType::kF64)
      move<double>(round);
    else if (round[0]->in.dtype() == DType::kF32)
      move<float>(round);
    else
      move<void>(round);
  }

  template <typename T>
  void move(const ThreadWorldState::Round& round) {
    const std::string& kind = round[0]->kind;
    const std::int64_t width = size_bytes(round[0]->in.dtype());
    const std::vector<std::int64_t>& begins = round[0]->begins;
    if (kind.starts_with("all-reduce") || kind == "reduce-scatter") {
      if constexpr (std::is_void_v<T>) {
        PITON_ASSERT(false, "sums of {}", piton::name(round[0]->in.dtype()));
      } else {
        std::vector<std::vector<T>> results(round.size());
        for (std::size_t r = 0; r < round.size(); ++r) {
          const std::int64_t begin = begins.empty() ? 0 : begins[r];
          const std::int64_t end = begins.empty() ? round[r]->in.elements() : begins[r + 1];
          results[r].resize(end - begin);
          sum<T>(round, begin, end, results[r].data());
        }
        for (std::size_t r = 0; r < round.size(); ++r) {
          // Overwrites the whole input: only a member's own part is defined afterwards, and a test
          // that reads other parts must fail.
          if (kind == "reduce-scatter") {
            std::fill_n(round[r]->in.data<T>(), round[r]->in.elements(), T(-987654321));
          }
          std::ranges::copy(results[r], round[r]->out.data<T>());
        }
      }
      return;
    }
    for (std::size_t member = 0; member < round.size(); ++member) {
      const auto& to = round[member];
      if (kind == "broadcast") {
        if (to != round[round[0]->root])
          std::memcpy(to->out.raw(), round[round[0]->root]->in.raw(), to->out.bytes());
        continue;
      }
      for (std::size_t r = 0; r < round.size(); ++r) {
        if (to->counts) {
          const auto sender = static_cast<int>(r), receiver = static_cast<int>(member);
          const RowCounts& counts = *to->counts;
          const std::int64_t row = to->out.dim(1) * width;
          std::memcpy(to->out.raw() + counts.first_received(sender, receiver) * row,
                      round[r]->in.raw() + counts.first_sent(sender, receiver) * row,
                      static_cast<std::size_t>(counts.at(sender, receiver) * row));
          continue;
        }
        const std::int64_t from = kind == "all-to-all" ? begins[member] * width : 0;
        std::memmove(to->out.raw() + begins[r] * width, round[r]->in.raw() + from,
                     (begins[r + 1] - begins[r]) * width);
      }
    }
  }

  ThreadWorldState& state_;
  std::vector<int> ranks_;
  int rank_ = 0;
  std::string name_;
  std::int64_t number_ = 0;
  TrafficCounts counts_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(ThreadWorldState& state, int rank, int size)
      : state_(state), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int host_rank() const override { return rank_; }
  int host_size() const override { return size_; }
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    return std::make_unique<ThreadCommunicator>(
        state_, std::vector<int>(ranks.begin(), ranks.end()), rank_, name);
  }
  void abort(int) override { std::terminate(); }
  TrafficCounts traffic() const override { return {}; }

 private:
  ThreadWorldState& state_;
  int rank_;
  int size_;
};

// Calls body(world) on `ranks` threads; rethrows the first rank's exception.
inline void run_ranks(int ranks, const std::function<void(World&)>& body,
                      ThreadWorldState* state = nullptr) {
  ThreadWorldState own;
  ThreadWorldState& shared = state != nullptr ? *state : own;
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadWorld world(shared, rank, ranks);
        body(world);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace piton::test
