#include "comm/nccl/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/stream.h"

namespace piton::nccl {
namespace {

NcclType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return NcclType::kF64;
    case DType::kF32:
      return NcclType::kF32;
    case DType::kBF16:
      return NcclType::kBF16;
    case DType::kF16:
      return NcclType::kF16;
    case DType::kI64:
      return NcclType::kI64;
    default:
      PITON_ASSERT(false, "NCCL: sums of {}", name(dtype));
  }
  return NcclType::kU8;
}

std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.bytes()); }
std::size_t elements_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.elements());
}

[[noreturn]] void refuse(const std::string& group, std::string_view what) {
  throw Error(Fault::kUsage,
              "--kernels cuda: group {}: {} between GPUs are not supported; leave out what needs "
              "them, or use --kernels cpu",
              group, what);
}

}  // namespace

Channel::Channel(Shared& shared, std::vector<int> world_ranks, std::string name)
    : shared_(shared), name_(std::move(name)), stream_(shared.device.make_stream()) {
  const int own = shared.rendezvous.rank();
  const auto found = std::find(world_ranks.begin(), world_ranks.end(), own);
  PITON_ASSERT(found != world_ranks.end(), "rank {} makes a group without itself", own);
  rank_ = static_cast<int>(found - world_ranks.begin());
  UniqueId id{};
  std::string bytes;
  if (rank_ == 0) {
    shared_.library.check(shared_.library.make_id(&id), "number of " + name_);
    bytes.assign(id.bytes, sizeof(id.bytes));
  }
  // After this gather all members are alive and call NCCL at once.
  const std::string first = shared.rendezvous.gather(name_, world_ranks, bytes)[0];
  PITON_ASSERT(first.size() == sizeof(id.bytes), "an id of {} bytes", first.size());
  std::memcpy(id.bytes, first.data(), sizeof(id.bytes));
  cuda::select(shared_.device.place().index);
  const auto size = static_cast<int>(world_ranks.size());
  shared_.library.check(shared_.library.init(&comm_, size, id, rank_),
                        fmt::format("making {} of {} ranks", name_, size));
  shared_.watch.add(comm_, name_);
}

Channel::~Channel() { shared_.watch.destroy(comm_); }

Event Channel::enqueue(std::string_view kind, const Tensor& data, const After& after,
                       const std::function<Result(cudaStream_t)>& call) {
  PITON_ASSERT(data.contiguous() && data.place() == shared_.device.place(), "NCCL: {} of {}", kind,
               to_string(data));
  const Event ready = after.stream.record();
  stream_->wait(ready);
  for (const Event& event : after.events) stream_->wait(event);
  if (data.elements() > 0) {
    cuda::select(shared_.device.place().index);
    const Result result = call(cuda::handle_of(*stream_));
    // An operation that was aborted fails with any result: the reason is known.
    if (const auto why = shared_.watch.failure()) throw Error(Fault::kPeer, "comm: {}", *why);
    shared_.library.check(result, fmt::format("{}: {}", name_, kind));
  }
  const Event done = stream_->record();
  shared_.watch.expect(comm_, {.text = fmt::format("{}: {} number {} of {}", name_, kind,
                                                   operations_++, to_string(data)),
                               .ready = ready,
                               .done = done});
  return done;
}

void Channel::connect(bool sends) {
  Arena arena(shared_.device, 1);
  const Tensor byte = arena.allocate(DType::kU8, {1}, MemoryKind::kWorkspace);
  const auto message = [&](cudaStream_t stream) {
    const Library& library = shared_.library;
    return sends ? library.send(byte.raw(), 1, NcclType::kU8, 1 - rank_, comm_, stream)
                 : library.receive(byte.raw(), 1, NcclType::kU8, 1 - rank_, comm_, stream);
  };
  enqueue("first message", byte, *stream_, message).wait();
  operations_ = 0;
}

NcclCommunicator::NcclCommunicator(Shared& shared, std::vector<int> world_ranks, std::string name)
    : shared_(shared),
      world_ranks_(std::move(world_ranks)),
      name_(std::move(name)),
      all_(shared, world_ranks_, "group " + name_) {}

Event NcclCommunicator::all_reduce(const Tensor& data, Reduction reduction, const After& after) {
  // As the slices of a ring: 2 (n - 1) / n of the bytes.
  const std::int64_t own =
      data.elements() * (rank() + 1) / size() - data.elements() * rank() / size();
  const std::int64_t moved =
      (data.elements() - own + own * (size() - 1)) * size_bytes(data.dtype());
  count({.all_reduce_bytes = moved, .received_bytes = moved, .collectives = 1});
  return all_.enqueue("all-reduce", data, after, [&](cudaStream_t stream) {
    return shared_.library.all_reduce(
        data.raw(), data.raw(), elements_of(data), type_of(data.dtype()),
        reduction == Reduction::kMax ? Op::kMax : Op::kSum, all_.comm(), stream);
  });
}

Event NcclCommunicator::all_gather(const Tensor& out, const Tensor& mine, const After& after) {
  PITON_ASSERT(out.dtype() == mine.dtype() && out.elements() == mine.elements() * size() &&
                   mine.contiguous(),
               "all-gather of {} over {} ranks into {}", to_string(mine), size(), to_string(out));
  count({.all_gather_bytes = mine.bytes() * (size() - 1),
         .received_bytes = out.bytes() - mine.bytes(),
         .collectives = 1});
  return all_.enqueue("all-gather", out, after, [&](cudaStream_t stream) {
    return shared_.library.all_gather(mine.raw(), out.raw(), bytes_of(mine), NcclType::kU8,
                                      all_.comm(), stream);
  });
}

Event NcclCommunicator::reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) {
  PITON_ASSERT(all.dtype() == mine.dtype() && all.elements() == mine.elements() * size() &&
                   mine.contiguous(),
               "reduce-scatter of {} over {} ranks into {}", to_string(all), size(),
               to_string(mine));
  count({.reduce_scatter_bytes = all.bytes() - mine.bytes(),
         .received_bytes = mine.bytes() * (size() - 1),
         .collectives = 1});
  return all_.enqueue("reduce-scatter", all, after, [&](cudaStream_t stream) {
    return shared_.library.reduce_scatter(all.raw(), mine.raw(), elements_of(mine),
                                          type_of(all.dtype()), Op::kSum, all_.comm(), stream);
  });
}

Event NcclCommunicator::exchange_parts(const std::vector<Tensor>& out,
                                       const std::vector<Tensor>& mine, const Tensor& whole,
                                       const After& after) {
  return all_.enqueue("all-to-all", whole, after, [&](cudaStream_t stream) {
    const auto self = static_cast<std::size_t>(rank());
    cuda::check(cudaMemcpyAsync(out[self].raw(), mine[self].raw(), bytes_of(mine[self]),
                                cudaMemcpyDeviceToDevice, stream),
                "copy");
    std::vector<PeerMessage> sends, receives;
    for (int member = 0; member < size(); ++member) {
      const auto m = static_cast<std::size_t>(member);
      if (member == rank()) continue;
      if (mine[m].bytes() > 0) sends.push_back({mine[m], member});
      if (out[m].bytes() > 0) receives.push_back({out[m], member});
    }
    return start(sends, receives, stream);
  });
}

Event NcclCommunicator::all_to_all(const Tensor& out, const Tensor& mine, const After& after) {
  PITON_ASSERT(out.dtype() == mine.dtype() && out.elements() == mine.elements() &&
                   out.elements() % size() == 0 && mine.contiguous() && mine.place() == out.place(),
               "all-to-all of {} over {} ranks into {}", to_string(mine), size(), to_string(out));
  const std::int64_t moved = out.bytes() / size() * (size() - 1);
  count({.all_to_all_bytes = moved, .received_bytes = moved, .collectives = 1});
  const auto parts = [&](const Tensor& whole) {
    const std::int64_t elements = whole.elements() / size();
    std::vector<Tensor> all;
    for (int member = 0; member < size(); ++member)
      all.push_back(whole.flatten().slice(0, elements * member, elements));
    return all;
  };
  return exchange_parts(parts(out), parts(mine), out, after);
}

Event NcclCommunicator::all_to_all_rows(const Tensor& out, const Tensor& mine,
                                        const RowCounts& counts, const After& after) {
  check_rows(*this, out, mine, counts);
  PITON_ASSERT(mine.contiguous() && out.contiguous() && mine.place() == out.place(),
               "all-to-all of rows of {} into {}", to_string(mine), to_string(out));
  count(traffic_of_rows(*this, counts, out.dim(1) * size_bytes(out.dtype())));
  std::vector<Tensor> received, sent;
  for (int m = 0; m < size(); ++m) {
    received.push_back(out.slice(0, counts.first_received(m, rank()), counts.at(m, rank())));
    sent.push_back(mine.slice(0, counts.first_sent(rank(), m), counts.at(rank(), m)));
  }
  return exchange_parts(received, sent, out, after);
}

Event NcclCommunicator::broadcast(const Tensor& data, int root, const After& after) {
  PITON_ASSERT(root >= 0 && root < size(), "root {} of {}", root, size());
  const bool sends = root == rank();
  count({.broadcast_bytes = sends ? data.bytes() * (size() - 1) : 0,
         .received_bytes = sends ? 0 : data.bytes(),
         .collectives = 1});
  return all_.enqueue("broadcast", data, after, [&](cudaStream_t stream) {
    return shared_.library.broadcast(data.raw(), data.raw(), bytes_of(data), NcclType::kU8, root,
                                     all_.comm(), stream);
  });
}

// One after the other: all members open those that they share in the same order.
void NcclCommunicator::open_lanes(const std::vector<MessageLane>& lanes, int count) {
  PITON_ASSERT(lane_count_ == 0 || lane_count_ == count, "group {}: {} lanes, then {}", name_,
               lane_count_, count);
  lane_count_ = count;
  for (const MessageLane& lane : lanes) {
    if ((lane.from != rank() && lane.to != rank()) || lanes_.contains(lane)) continue;
    const auto [low, high] = std::minmax(lane.from, lane.to);
    lanes_[lane] =
        std::make_unique<Channel>(shared_,
                                  std::vector<int>{world_ranks_[static_cast<std::size_t>(low)],
                                                   world_ranks_[static_cast<std::size_t>(high)]},
                                  fmt::format("group {}, messages {} from member {} to {}", name_,
                                              lane.number, lane.from, lane.to));
    lanes_[lane]->connect(lane.from == rank());
  }
}

// Both send a byte: it is what makes the connections.
void NcclCommunicator::connect(const std::vector<int>& members) {
  Arena arena(shared_.device, 1);
  const auto count = static_cast<std::int64_t>(members.size());
  const Tensor bytes = arena.allocate(DType::kU8, {2, count}, MemoryKind::kWorkspace);
  std::vector<PeerMessage> sends, receives;
  for (std::int64_t i = 0; i < count; ++i) {
    const int member = members[static_cast<std::size_t>(i)];
    sends.push_back({bytes.select(0, 0).slice(0, i, 1), member});
    receives.push_back({bytes.select(0, 1).slice(0, i, 1), member});
  }
  all_.enqueue("first exchange", bytes, all_.stream(),
               [&](cudaStream_t stream) { return start(sends, receives, stream); })
      .wait();
}

Channel& NcclCommunicator::lane_of(int from, int to, int tag) {
  PITON_ASSERT(to >= 0 && to < size() && from >= 0 && from < size() && tag >= 0,
               "a message from {} to {} of {}, tag {}", from, to, size(), tag);
  const int number = lane_count_ > 0 ? tag % lane_count_ : 0;
  const auto found = lanes_.find({from, to, number});
  if (found == lanes_.end()) {
    refuse(name_, "messages that are not those of a pipeline");
  }
  return *found->second;
}

Event NcclCommunicator::send(const Tensor& data, int member, int tag, Stream& after) {
  Channel& lane = lane_of(rank(), member, tag);
  count({.point_to_point_bytes = data.bytes()});
  return lane.enqueue("send", data, after, [&](cudaStream_t stream) {
    return shared_.library.send(data.raw(), bytes_of(data), NcclType::kU8, 1 - lane.rank(),
                                lane.comm(), stream);
  });
}

Event NcclCommunicator::receive(const Tensor& data, int member, int tag, Stream& after) {
  Channel& lane = lane_of(member, rank(), tag);
  count({.received_bytes = data.bytes()});
  return lane.enqueue("receive", data, after, [&](cudaStream_t stream) {
    return shared_.library.receive(data.raw(), bytes_of(data), NcclType::kU8, 1 - lane.rank(),
                                   lane.comm(), stream);
  });
}

// A group that was started is ended, also after an error.
Result NcclCommunicator::start(const std::vector<PeerMessage>& sends,
                               const std::vector<PeerMessage>& receives, cudaStream_t stream) {
  const Library& library = shared_.library;
  Result result = library.group_start();
  if (result != Result::kSuccess) return result;
  for (const PeerMessage& one : sends) {
    if (result != Result::kSuccess || one.data.bytes() == 0) continue;
    result = library.send(one.data.raw(), bytes_of(one.data), NcclType::kU8, one.member,
                          all_.comm(), stream);
  }
  for (const PeerMessage& one : receives) {
    if (result != Result::kSuccess || one.data.bytes() == 0) continue;
    result = library.receive(one.data.raw(), bytes_of(one.data), NcclType::kU8, one.member,
                             all_.comm(), stream);
  }
  const Result end = library.group_end();
  return result != Result::kSuccess ? result : end;
}

Exchanged NcclCommunicator::exchange(const std::vector<PeerMessage>& sends,
                                     const std::vector<PeerMessage>& receives, Stream& after) {
  Tensor largest;  // names the operation
  const auto bytes = [&](const std::vector<PeerMessage>& messages) {
    std::int64_t sum = 0;
    for (const auto& [data, member, tag] : messages) {
      PITON_ASSERT(member >= 0 && member < size() && member != rank() && data.contiguous() &&
                       data.place() == shared_.device.place(),
                   "an exchange of {} with member {} of {}", to_string(data), member, size());
      sum += data.bytes();
      if (!largest.defined() || data.bytes() > largest.bytes()) largest = data;
    }
    return sum;
  };
  count({.point_to_point_bytes = bytes(sends), .received_bytes = bytes(receives)});
  if (!largest.defined()) return {};
  const Event done = all_.enqueue("exchange", largest, after, [&](cudaStream_t stream) {
    return start(sends, receives, stream);
  });
  return {.sent = std::vector<Event>(sends.size(), done),
          .received = std::vector<Event>(receives.size(), done)};
}

std::vector<std::string> NcclCommunicator::gather_bytes(const std::string& mine) {
  return shared_.rendezvous.gather("group " + name_, world_ranks_, mine);
}

void NcclCommunicator::barrier() { gather_bytes(""); }

std::unique_ptr<SymmetricMemory> NcclCommunicator::allocate_symmetric(std::int64_t) {
  refuse(name_, "fused linears");
}

void NcclCommunicator::count(const TrafficCounts& carried) {
  {
    const std::scoped_lock lock(mutex_);
    traffic_ += carried;
  }
  const std::scoped_lock lock(shared_.mutex);
  shared_.traffic += carried;
}

TrafficCounts NcclCommunicator::traffic() const {
  const std::scoped_lock lock(mutex_);
  return traffic_;
}

}  // namespace piton::nccl
