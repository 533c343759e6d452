// A group of ranks of the world that the engine serves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/ranks/engine.h"
#include "comm/ranks/group_queue.h"
#include "comm/ranks/mail.h"
#include "comm/ranks/shared_runner.h"

namespace piton {

// Traffic of all groups of a rank; outlives them.
struct TrafficTotal {
  std::mutex mutex;
  TrafficCounts counts;
};

struct RankGroup {
  std::vector<int> world_ranks;
  std::string name;
  // The same on all of these ranks, and different from that of every other group they share.
  std::uint64_t number = 0;
};

class RankCommunicator final : public Communicator {
 public:
  // Collective over the ranks of the group.
  RankCommunicator(RankEngine& engine, Device& device, RankGroup group,
                   std::shared_ptr<TrafficTotal> total);
  ~RankCommunicator() override;

  int rank() const override { return rank_; }
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
  int largest_tag() const override { return made_.largest_tag; }
  std::vector<std::string> gather_bytes(const std::string& mine) override;
  void barrier() override;
  std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) override;
  void count(const TrafficCounts& carried) override;
  TrafficCounts traffic() const override;

 private:
  // Results of make().
  struct Made {
    std::shared_ptr<RankChannel> channel;
    SharedRunner* shared = nullptr;  // if all members are on one host; owned by `queue`
    std::shared_ptr<GroupQueue> queue;
    std::shared_ptr<MessageMail> mail;  // if the group spans several hosts
    int largest_tag = std::numeric_limits<int>::max();
  };
  // `host_ranks`: ranks of the members on this host if all are on it; else empty.
  static void make(Made& made, RankEngine& engine, const std::vector<int>& world_ranks,
                   const std::string& name, const std::vector<int>& host_ranks);
  std::byte* address_of(const Tensor& tensor) const;
  std::vector<std::int64_t> even_parts(std::int64_t elements) const;
  // Enqueues a collective. `after` null: it starts at once.
  Event ask(Collective collective, const After* after);
  Event post(bool send, const Tensor& data, int member, int tag, Stream& after);
  void make_ready(const std::shared_ptr<Job>& job, const After* after);
  void count(std::int64_t TrafficCounts::*kind, std::int64_t sent, std::int64_t received,
             bool collective);
  void gather_host(std::byte* whole, std::vector<std::int64_t> begins);

  RankEngine* engine_;
  Device* device_;
  std::vector<int> world_ranks_;
  std::string name_;
  std::uint64_t number_;
  int rank_ = 0;
  bool one_host_ = false;
  std::vector<int> host_ranks_;  // of the members; -1 on other hosts
  Made made_;
  std::shared_ptr<TrafficTotal> total_;
  mutable std::mutex mutex_;  // guards traffic_
  TrafficCounts traffic_;
};

}  // namespace piton
