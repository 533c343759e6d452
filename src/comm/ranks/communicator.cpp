#include "comm/ranks/communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>

#include "comm/ranks/hierarchical_runner.h"
#include "comm/ranks/message_runner.h"
#include "comm/ranks/symmetric.h"
#include "tensor/held_storage.h"

namespace piton {

namespace {

// What the communication thread must keep: an operation may outlive the tensors of its caller,
// whose exception destroys them.
std::vector<std::shared_ptr<Storage>> memory_of(std::initializer_list<const Tensor*> tensors) {
  std::vector<std::shared_ptr<Storage>> result;
  for (const Tensor* tensor : tensors) {
    const auto& storage = tensor->storage();
    const bool held = dynamic_cast<const HeldStorage*>(storage.get()) != nullptr;
    if (storage != nullptr && !held) result.push_back(storage);
  }
  return result;
}

// Collective over the members of a group on this host.
std::unique_ptr<SharedRunner> shared_runner_of_host(RankEngine& engine,
                                                    const std::vector<int>& world_ranks) {
  std::vector<int> here;     // world ranks
  std::vector<int> members;  // host ranks
  for (const int rank : world_ranks) {
    const int member = engine.board().host_rank(rank);
    if (member < 0) continue;
    here.push_back(rank);
    members.push_back(member);
  }
  const auto channel = engine.transport().make_channel(here);
  return std::make_unique<SharedRunner>(*channel, engine.board(), std::move(members));
}

}  // namespace

RankCommunicator::RankCommunicator(RankEngine& engine, Device& device, RankGroup group,
                                   std::shared_ptr<TrafficTotal> total)
    : engine_(&engine),
      device_(&device),
      world_ranks_(std::move(group.world_ranks)),
      name_(std::move(group.name)),
      number_(group.number),
      total_(std::move(total)) {
  const auto own = std::find(world_ranks_.begin(), world_ranks_.end(), engine.world_rank());
  PITON_ASSERT(own != world_ranks_.end(), "rank {} makes a group without itself",
               engine.world_rank());
  rank_ = static_cast<int>(own - world_ranks_.begin());
  one_host_ = true;
  for (int world_rank : world_ranks_) {
    host_ranks_.push_back(engine.board().host_rank(world_rank));
    one_host_ = one_host_ && host_ranks_.back() >= 0;
  }
  auto made = std::make_shared<Made>();
  engine.call(fmt::format("making group {} of {} ranks", name_, world_ranks_.size()),
              [made, engine = engine_, ranks = world_ranks_, name = name_,
               on_host = one_host_ ? host_ranks_ : std::vector<int>{}] {
                make(*made, *engine, ranks, name, on_host);
              });
  made_ = *made;
}

// Runs on the communication thread, perhaps after the communicator has been destroyed: uses only
// its arguments.
void RankCommunicator::make(Made& made, RankEngine& engine, const std::vector<int>& world_ranks,
                            const std::string& name, const std::vector<int>& host_ranks) {
  Transport& transport = engine.transport();
  made.channel = transport.make_channel(world_ranks);
  std::unique_ptr<CollectiveRunner> runner;
  SharedRunner* on_host = nullptr;
  if (!host_ranks.empty()) {
    auto shared = std::make_unique<SharedRunner>(*made.channel, engine.board(), host_ranks);
    on_host = made.shared = shared.get();
    runner = std::move(shared);
  } else {
    std::vector<bool> elsewhere;
    for (const int rank : world_ranks) {
      elsewhere.push_back(!engine.hosts().same_host(rank, engine.world_rank()));
    }
    const HostTraffic traffic(engine.bytes_between_hosts(), elsewhere);
    made.mail = std::make_shared<MessageMail>(transport.make_channel(world_ranks), traffic);
    engine.add(made.mail);
    auto flat = std::make_unique<MessageRunner>(made.channel, world_ranks, traffic);
    made.largest_tag = made.channel->largest_tag();
    if (const auto blocks = engine.hosts().blocks(world_ranks)) {
      auto local = shared_runner_of_host(engine, world_ranks);
      on_host = local.get();
      runner = std::make_unique<HierarchicalRunner>(
          made.channel, world_ranks,
          HierarchicalRunner::Parts{*blocks, std::move(local), std::move(flat)}, traffic);
    } else {
      runner = std::move(flat);
    }
  }
  made.queue = std::make_shared<GroupQueue>(name, std::move(runner));
  engine.add(made.queue);
  engine.at_end([queue = made.queue, on_host] {
    if (on_host != nullptr) on_host->free();
  });
}

RankCommunicator::~RankCommunicator() {
  // The windows stay until the world ends, because freeing them is collective. Pending work
  // continues; only an idle group is removed from the engine.
  try {
    engine_->call("leaving group " + name_, [engine = engine_, made = made_] {
      if (!made.queue->pending()) engine->remove(made.queue.get());
      if (made.mail && !made.mail->pending()) engine->remove(made.mail.get());
    });
  } catch (const Error&) {  // the run has failed: no orderly removal is needed
  }
}

std::byte* RankCommunicator::address_of(const Tensor& tensor) const {
  PITON_ASSERT(tensor.contiguous(), "collectives take contiguous tensors, not {}",
               to_string(tensor));
  std::byte* address = device_->host_address(tensor);
  PITON_ASSERT(address != nullptr || tensor.bytes() == 0,
               "ranks exchange memory that the host can touch, not {}", to_string(tensor));
  return address;
}

std::vector<std::int64_t> RankCommunicator::even_parts(std::int64_t elements) const {
  PITON_ASSERT(elements % size() == 0, "{} elements over {} ranks", elements, size());
  std::vector<std::int64_t> begins;
  for (int m = 0; m <= size(); ++m) begins.push_back(elements / size() * m);
  return begins;
}

void RankCommunicator::make_ready(const std::shared_ptr<Job>& job, const After* after) {
  if (after == nullptr) {
    job->make_ready();
    engine_->wake();
    return;
  }
  // The job becomes ready when the stream and all events have been reached.
  auto left = std::make_shared<std::atomic<std::size_t>>(after->events.size() + 1);
  const auto reached = [job, left, engine = engine_] {
    if (left->fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    job->make_ready();
    engine->wake();
  };
  for (const Event& event : after->events) {
    if (event.fence()) {
      event.fence()->then(reached);
    } else {
      reached();
    }
  }
  after->stream.enqueue(reached);
}

Event RankCommunicator::ask(Collective collective, const After* after) {
  auto job = engine_->new_job();
  collective.job = job;
  made_.queue->add(std::move(collective));
  make_ready(job, after);
  return Event(std::move(job));
}

void RankCommunicator::count(std::int64_t TrafficCounts::*kind, std::int64_t sent,
                             std::int64_t received, bool collective) {
  TrafficCounts one{.received_bytes = received, .collectives = collective ? 1 : 0};
  one.*kind = sent;
  count(one);
}

void RankCommunicator::count(const TrafficCounts& carried) {
  {
    const std::lock_guard lock(mutex_);
    traffic_ += carried;
  }
  const std::lock_guard lock(total_->mutex);
  total_->counts += carried;
}

Event RankCommunicator::all_reduce(const Tensor& data, Reduction reduction, const After& after) {
  PITON_ASSERT(data.dtype() != DType::kI32 && data.dtype() != DType::kU8, "all-reduce of {}",
               to_string(data));
  std::byte* address = address_of(data);
  // This rank sends the other members' slices to their owners, then its own sum to all others: 2
  // (n-1)/n of the bytes in total.
  const std::int64_t own =
      data.elements() * (rank_ + 1) / size() - data.elements() * rank_ / size();
  const std::int64_t moved =
      (data.elements() - own + own * (size() - 1)) * size_bytes(data.dtype());
  count(&TrafficCounts::all_reduce_bytes, moved, moved, true);
  return ask({.kind = CollectiveKind::kAllReduce,
              .dtype = data.dtype(),
              .reduction = reduction,
              .elements = data.elements(),
              .source = address,
              .target = address,
              .memory = memory_of({&data})},
             &after);
}

Event RankCommunicator::all_gather(const Tensor& out, const Tensor& mine, const After& after) {
  PITON_ASSERT(out.dtype() == mine.dtype() && out.elements() == mine.elements() * size(),
               "all-gather of {} over {} ranks into {}", to_string(mine), size(), to_string(out));
  count(&TrafficCounts::all_gather_bytes, mine.bytes() * (size() - 1), out.bytes() - mine.bytes(),
        true);
  return ask({.kind = CollectiveKind::kGather,
              .dtype = out.dtype(),
              .elements = out.elements(),
              .begins = even_parts(out.elements()),
              .source = address_of(mine),
              .target = address_of(out),
              .memory = memory_of({&out, &mine})},
             &after);
}

Event RankCommunicator::reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) {
  PITON_ASSERT(all.dtype() == mine.dtype() && all.elements() == mine.elements() * size(),
               "reduce-scatter of {} over {} ranks into {}", to_string(all), size(),
               to_string(mine));
  count(&TrafficCounts::reduce_scatter_bytes, all.bytes() - mine.bytes(),
        mine.bytes() * (size() - 1), true);
  return ask({.kind = CollectiveKind::kScatter,
              .dtype = all.dtype(),
              .elements = all.elements(),
              .begins = even_parts(all.elements()),
              .source = address_of(all),
              .target = address_of(mine),
              .memory = memory_of({&all, &mine})},
             &after);
}

Event RankCommunicator::all_to_all(const Tensor& out, const Tensor& mine, const After& after) {
  PITON_ASSERT(out.dtype() == mine.dtype() && out.elements() == mine.elements(),
               "all-to-all of {} over {} ranks into {}", to_string(mine), size(), to_string(out));
  const std::int64_t moved = out.bytes() / size() * (size() - 1);
  count(&TrafficCounts::all_to_all_bytes, moved, moved, true);
  return ask({.kind = CollectiveKind::kExchange,
              .dtype = out.dtype(),
              .elements = out.elements(),
              .begins = even_parts(out.elements()),
              .source = address_of(mine),
              .target = address_of(out),
              .memory = memory_of({&out, &mine})},
             &after);
}

Event RankCommunicator::all_to_all_rows(const Tensor& out, const Tensor& mine,
                                        const RowCounts& counts, const After& after) {
  check_rows(*this, out, mine, counts);
  const std::int64_t width = out.dim(1);
  count(traffic_of_rows(*this, counts, width * size_bytes(out.dtype())));
  Collective collective{.kind = CollectiveKind::kExchange,
                        .dtype = out.dtype(),
                        .source = address_of(mine),
                        .target = address_of(out),
                        .memory = memory_of({&out, &mine})};
  for (const std::int64_t rows : counts.all()) {
    collective.pairs.push_back(rows * width);
    collective.elements += rows * width;
  }
  for (int m = 0; m <= size(); ++m) {
    collective.begins.push_back(counts.first_received(m, rank_) * width);
    collective.source_begins.push_back(counts.first_sent(rank_, m) * width);
  }
  return ask(std::move(collective), &after);
}

Event RankCommunicator::broadcast(const Tensor& data, int root, const After& after) {
  PITON_ASSERT(root >= 0 && root < size(), "root {} of {}", root, size());
  const bool sends = root == rank_;
  count(&TrafficCounts::broadcast_bytes, sends ? data.bytes() * (size() - 1) : 0,
        sends ? 0 : data.bytes(), true);
  std::byte* address = address_of(data);
  return ask({.kind = CollectiveKind::kBroadcast,
              .dtype = data.dtype(),
              .root = root,
              .elements = data.elements(),
              .source = address,
              .target = address,
              .memory = memory_of({&data})},
             &after);
}

Event RankCommunicator::post(bool send, const Tensor& data, int member, int tag, Stream& after) {
  PITON_ASSERT(member >= 0 && member < size() && tag >= 0 && tag <= largest_tag(),
               "member {} of {}, tag {} of {}", member, size(), tag, largest_tag());
  // Also of a group on several hosts.
  const bool on_host = host_ranks_[member] >= 0;
  auto job = engine_->new_job();
  Mail mail{.send = send,
            .peer = on_host ? host_ranks_[member] : member,
            .group = number_,
            .tag = tag,
            .world_rank = world_ranks_[member],
            .data = address_of(data),
            .bytes = data.bytes(),
            .memory = memory_of({&data}),
            .text = fmt::format("group {}: {} rank {} of {} bytes, tag {}", name_,
                                send ? "send to" : "receive from", world_ranks_[member],
                                data.bytes(), tag),
            .job = job};
  if (on_host) {
    engine_->host_mail().add(std::move(mail));
  } else {
    made_.mail->add(std::move(mail));
  }
  const After on_stream(after);
  make_ready(job, &on_stream);
  return Event(std::move(job));
}

Event RankCommunicator::send(const Tensor& data, int member, int tag, Stream& after) {
  count(&TrafficCounts::point_to_point_bytes, member == rank_ ? 0 : data.bytes(), 0, false);
  return post(true, data, member, tag, after);
}

Event RankCommunicator::receive(const Tensor& data, int member, int tag, Stream& after) {
  count(&TrafficCounts::point_to_point_bytes, 0, member == rank_ ? 0 : data.bytes(), false);
  return post(false, data, member, tag, after);
}

void RankCommunicator::gather_host(std::byte* whole, std::vector<std::int64_t> begins) {
  const std::int64_t own = begins[rank_];
  ask({.kind = CollectiveKind::kGather,
       .dtype = DType::kU8,
       .elements = begins.back(),
       .begins = std::move(begins),
       .source = whole + own,
       .target = whole},
      nullptr)
      .wait();
}

std::vector<std::string> RankCommunicator::gather_bytes(const std::string& mine) {
  std::vector<std::int64_t> sizes(size());
  sizes[rank_] = std::ssize(mine);
  gather_host(reinterpret_cast<std::byte*>(sizes.data()),
              even_parts(size() * static_cast<std::int64_t>(sizeof(std::int64_t))));
  std::vector<std::int64_t> begins{0};
  for (std::int64_t bytes : sizes) begins.push_back(begins.back() + bytes);
  std::string all(begins.back(), '\0');
  std::copy(mine.begin(), mine.end(), all.begin() + begins[rank_]);
  gather_host(reinterpret_cast<std::byte*>(all.data()), begins);
  std::vector<std::string> result;
  for (int m = 0; m < size(); ++m) result.push_back(all.substr(begins[m], sizes[m]));
  return result;
}

void RankCommunicator::barrier() { ask({.kind = CollectiveKind::kBarrier}, nullptr).wait(); }

std::unique_ptr<SymmetricMemory> RankCommunicator::allocate_symmetric(std::int64_t bytes) {
  if (!one_host_) return std::make_unique<PrivateSymmetricMemory>(*device_, rank_, bytes);
  auto made = std::make_shared<std::shared_ptr<SharedWindow>>();
  engine_->call(fmt::format("allocating {} bytes of symmetric memory in group {}", bytes, name_),
                [made, engine = engine_, channel = made_.channel, shared = made_.shared,
                 queue = made_.queue, rank = rank_, bytes] {
                  std::shared_ptr<SharedWindow> window =
                      channel->share(WindowSymmetricMemory::segment_bytes(bytes));
                  WindowSymmetricMemory::make_counters(window->segment(rank), bytes);
                  channel->barrier();
                  shared->add_symmetric(window);
                  engine->at_end([window] { window->free(); });
                  *made = std::move(window);
                });
  const std::shared_ptr<SharedWindow> window = *made;
  // The pages are returned at once, the window when the world ends. The group may be destroyed
  // before that, so `queue` keeps its runner alive.
  auto on_drop = [engine = engine_, queue = made_.queue, shared = made_.shared, window,
                  rank = rank_] {
    try {
      engine->call("releasing symmetric memory", [queue, shared, window, rank] {
        shared->remove_symmetric(window.get());
        window->drop_pages(rank);
      });
    } catch (const Error&) {  // the run has failed
    }
  };
  return std::make_unique<WindowSymmetricMemory>(
      *engine_, SymmetricSegments{.window = window, .bytes = bytes, .place = device_->place()},
      SymmetricGroup{.members = host_ranks_, .rank = rank_, .name = name_}, std::move(on_drop));
}

TrafficCounts RankCommunicator::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace piton
