// A group of ranks whose tensors are on GPUs. Internal to this folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/message_lanes.h"
#include "comm/nccl/library.h"
#include "comm/nccl/watch.h"
#include "comm/rendezvous/rendezvous.h"

namespace piton::nccl {

// What the groups of a world share.
struct Shared {
  Device& device;
  const Library& library;
  Rendezvous& rendezvous;
  Watch& watch;
  std::mutex mutex;       // guards the next one
  TrafficCounts traffic;  // of all groups
};

// Ranks that NCCL joins, and the stream of their operations.
class Channel {
 public:
  // Collective over `world_ranks`: ascending, this rank among them. `name`: for messages.
  Channel(Shared& shared, std::vector<int> world_ranks, std::string name);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  int rank() const { return rank_; }
  Comm comm() const { return comm_; }
  Stream& stream() { return *stream_; }
  // Enqueues `call` behind `after`. `kind` and `data`: for messages.
  Event enqueue(std::string_view kind, const Tensor& data, const After& after,
                const std::function<Result(cudaStream_t)>& call);
  // Of two ranks, which call it at the same time: one sends to the other. NCCL connects them in
  // their first message, which blocks each host until the other one has called it too. In the
  // middle of a schedule both could wait for different messages.
  void connect(bool sends);

 private:
  Shared& shared_;
  std::string name_;
  int rank_ = 0;
  std::unique_ptr<Stream> stream_;
  Comm comm_ = nullptr;
  std::int64_t operations_ = 0;
};

class NcclCommunicator final : public Communicator, public LanedMessages {
 public:
  // Collective over `world_ranks`: ascending, this rank among them.
  NcclCommunicator(Shared& shared, std::vector<int> world_ranks, std::string name);

  int rank() const override { return all_.rank(); }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  std::string name() const override { return name_; }

  Event all_reduce(const Tensor& data, Reduction reduction, const After& after) override;
  Event all_gather(const Tensor& out, const Tensor& mine, const After& after) override;
  Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) override;
  Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) override;
  Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                        const After& after) override;
  Event broadcast(const Tensor& data, int root, const After& after) override;
  Event send(const Tensor& data, int member, int tag, Stream& after) override;
  Event receive(const Tensor& data, int member, int tag, Stream& after) override;
  Exchanged exchange(const std::vector<PeerMessage>& sends,
                     const std::vector<PeerMessage>& receives, Stream& after) override;
  std::vector<std::string> gather_bytes(const std::string& mine) override;
  void barrier() override;
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override;
  void count(const TrafficCounts& carried) override;
  TrafficCounts traffic() const override;

  void open_lanes(const std::vector<MessageLane>& lanes, int count) override;
  void connect(const std::vector<int>& members) override;

 private:
  Channel& lane_of(int from, int to, int tag);
  // Part m of `mine` goes to member m, part m of `out` comes from it, that of this one is copied.
  Event exchange_parts(const std::vector<Tensor>& out, const std::vector<Tensor>& mine,
                       const Tensor& whole, const After& after);
  // Starts all of them together, on the stream of the group.
  Result start(const std::vector<PeerMessage>& sends, const std::vector<PeerMessage>& receives,
               cudaStream_t stream);

  Shared& shared_;
  std::vector<int> world_ranks_;
  std::string name_;
  Channel all_;
  int lane_count_ = 0;
  std::map<MessageLane, std::unique_ptr<Channel>> lanes_;  // those of this rank
  mutable std::mutex mutex_;                               // guards traffic_
  TrafficCounts traffic_;
};

}  // namespace piton::nccl
