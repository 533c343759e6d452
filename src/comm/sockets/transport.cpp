#include "comm/sockets/transport.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/sockets/machine.h"
#include "comm/sockets/memory.h"
#include "comm/sockets/messages_over_tcp.h"

namespace piton {

namespace {

class SocketChannel final : public RankChannel {
 public:
  SocketChannel(Rendezvous& rendezvous, MessagesOverTcp& messages, std::vector<int> world_ranks,
                std::uint64_t number)
      : rendezvous_(rendezvous),
        messages_(messages),
        world_ranks_(std::move(world_ranks)),
        number_(number) {
    while (world_ranks_[static_cast<std::size_t>(rank_)] != rendezvous.rank()) ++rank_;
  }

  int rank() const override { return rank_; }
  std::unique_ptr<Transfer> send(const std::byte* data, std::int64_t bytes, int member,
                                 int tag) override {
    return messages_.send(label(member, tag), data, bytes);
  }
  std::unique_ptr<Transfer> receive(std::byte* data, std::int64_t bytes, int member,
                                    int tag) override {
    return messages_.receive(label(member, tag), data, bytes);
  }
  int largest_tag() const override { return std::numeric_limits<int>::max(); }
  void barrier() override { rendezvous_.gather("barrier", world_ranks_, ""); }
  std::unique_ptr<SharedWindow> share(std::int64_t segment_bytes) override {
    return share_memory(rendezvous_, world_ranks_, segment_bytes);
  }

 private:
  MessagesOverTcp::Label label(int member, int tag) const {
    return {
        .channel = number_, .other = world_ranks_[static_cast<std::size_t>(member)], .tag = tag};
  }

  Rendezvous& rendezvous_;
  MessagesOverTcp& messages_;
  std::vector<int> world_ranks_;
  std::uint64_t number_;
  int rank_ = 0;
};

class SocketTransport final : public Transport {
 public:
  SocketTransport(const MeetingPlace& place, double timeout_seconds)
      : rendezvous_(std::make_unique<Rendezvous>(place, timeout_seconds)),
        rank_(place.rank),
        all_(static_cast<std::size_t>(place.size)),
        messages_(place.rank, rendezvous_->own_address() == kThisHostAddress
                                  ? ReachedFrom::kThisHost
                                  : ReachedFrom::kAnywhere) {
    std::iota(all_.begin(), all_.end(), 0);
    const RankAddress own = messages_.own_address();
    const MessageWriter mine = MessageWriter(MessageKind::kPart)
                                   .text(machine_name())
                                   .text(rendezvous_->own_address())
                                   .number(static_cast<std::uint64_t>(own.port))
                                   .number(own.token);
    std::map<std::string, int> lowest;  // rank of each machine
    std::vector<RankAddress> addresses;
    for (const std::string& its : rendezvous_->gather("addresses", all_, mine.bytes())) {
      MessageReader reader(its);
      reader.kind();
      const int rank = static_cast<int>(machine_of_.size());
      machine_of_.push_back(lowest.emplace(reader.text(), rank).first->second);
      RankAddress& address = addresses.emplace_back();
      address.host = reader.text();
      address.port = static_cast<int>(reader.number());
      address.token = reader.number();
    }
    messages_.set_addresses(std::move(addresses));
  }

  // Without leave() this rank has failed before it could say so: the others wait for it.
  ~SocketTransport() override {
    if (rendezvous_) rendezvous_->fail(static_cast<int>(Fault::kPeer), "");
  }

  const char* name() const override { return "sockets"; }
  void join() override {}  // the constructor has, which tells what is wrong in time
  int rank() const override { return rank_; }
  const std::vector<int>& machine_of() const override { return machine_of_; }

  std::shared_ptr<RankChannel> make_channel(const std::vector<int>& world_ranks) override {
    // The n-th channel of the same ranks has the same number on each of them.
    const std::uint64_t number = hash64({reinterpret_cast<const char*>(world_ranks.data()),
                                         world_ranks.size() * sizeof(world_ranks[0])},
                                        made_[world_ranks]++);
    return std::make_shared<SocketChannel>(*rendezvous_, messages_, world_ranks, number);
  }

  bool progress() override { return messages_.progress(); }
  void drop() override { messages_.drop(); }

  void announce_failure(int code, const std::string& why) override { rendezvous_->fail(code, why); }
  std::optional<std::string> failure() const override {
    if (!rendezvous_) return std::nullopt;
    if (auto why = rendezvous_->failure()) return why;
    return messages_.failure();
  }

  // The rendezvous itself learns of lost ranks and of time that is over.
  void final_barrier(const std::function<void()>& /*check*/) override {
    rendezvous_->gather("end", all_, "");
  }
  void leave() override { rendezvous_.reset(); }
  void abort(int /*code*/) override {}

 private:
  std::unique_ptr<Rendezvous> rendezvous_;  // until this rank leaves
  int rank_;
  std::vector<int> all_;
  MessagesOverTcp messages_;
  std::vector<int> machine_of_;
  std::map<std::vector<int>, std::uint64_t> made_;
};

}  // namespace

std::unique_ptr<Transport> make_socket_transport(const MeetingPlace& place,
                                                 double timeout_seconds) {
  return std::make_unique<SocketTransport>(place, timeout_seconds);
}

}  // namespace piton
