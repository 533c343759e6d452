// Messages between two ranks, matched by (rank, group, tag), in order within a tag.
//
// Within a host, the sender writes a message into the ring of its pair of ranks as soon as there is
// room, and the reader empties its rings at once: a message without a receive waits in a buffer. So
// a message never delays collectives or messages of other tags. The size of these buffers is
// limited only by how far the sender's schedule runs ahead. Between hosts the transport does
// the same.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/ranks/host_board.h"
#include "comm/ranks/host_map.h"
#include "comm/ranks/job.h"
#include "comm/ranks/transport.h"

namespace piton {

struct Mail {
  bool send = false;
  int peer = 0;             // host rank (HostMail) or member of the group (MessageMail)
  std::uint64_t group = 0;  // the same number on every member of a group
  int tag = 0;
  int world_rank = 0;  // the peer's
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::vector<std::shared_ptr<Storage>> memory;  // see Collective::memory
  std::string
      text;  // for error messages: "group pipeline: receive of 4096 bytes, tag 3, from rank 2"
  Clock::time_point asked;
  std::shared_ptr<Job> job;

  void finish() {
    memory.clear();
    job->finish();
  }
};

// The queue of requests of both kinds of mail.
class Mailbox : public Activity {
 public:
  void add(Mail mail);  // any thread
  std::optional<Wait> longest_wait(Clock::time_point now) override;
  void fail(const std::string& why) override;
  bool pending() const override;

 protected:
  using Key = std::tuple<bool, int, std::uint64_t, int>;  // send, peer, group, tag
  static Key key(const Mail& mail) { return {mail.send, mail.peer, mail.group, mail.tag}; }
  void take_new();  // moves new requests to `asked_`
  // Drops the messages in transfer; their jobs have been failed.
  virtual void drop() = 0;
  virtual std::vector<Mail*> under_way() = 0;

  std::map<Key, std::deque<Mail>> asked_;  // not started; in order within a key

 private:
  mutable std::mutex mutex_;  // guards the next two
  std::vector<Mail> added_;
  std::optional<std::string> failure_;
};

class HostMail final : public Mailbox {
 public:
  explicit HostMail(HostBoard& board);
  bool progress() override;
  bool pending() const override;
  bool polls() const override { return false; }

 private:
  struct Header {
    std::uint64_t group;
    std::int64_t tag;
    std::int64_t bytes;
  };
  struct Sending {
    Mail mail;
    std::int64_t written = -1;  // bytes of the message; -1: the header is not written yet
  };
  struct Arriving {
    Header header{};
    bool active = false;
    std::int64_t taken = 0;
    std::optional<Mail> mail;       // its receive: bytes go straight into its memory; or
    std::vector<std::byte> buffer;  // bytes are kept here until there is a receive
  };
  void drop() override;
  std::vector<Mail*> under_way() override;
  bool start_ready();
  bool write(int peer);
  bool read(int peer);

  HostBoard* board_;
  std::vector<std::deque<Sending>> sending_;                // for each host rank
  std::vector<Arriving> arriving_;                          // from each host rank
  std::map<Key, std::deque<std::vector<std::byte>>> kept_;  // whole messages without a receive
};

class MessageMail final : public Mailbox {
 public:
  // Only this mailbox may use `channel`.
  MessageMail(std::shared_ptr<RankChannel> channel, HostTraffic traffic)
      : channel_(std::move(channel)), traffic_(std::move(traffic)) {}
  bool progress() override;
  bool pending() const override;
  bool polls() const override { return !moving_.empty(); }

 private:
  struct Moving {
    Mail mail;
    std::unique_ptr<Transfer> transfer;
  };
  // The transport may still write into the memory of these messages.
  void drop() override { dropped_ = std::exchange(moving_, {}); }
  std::vector<Mail*> under_way() override;

  std::shared_ptr<RankChannel> channel_;
  HostTraffic traffic_;
  std::vector<Moving> moving_;
  std::vector<Moving> dropped_;
};

}  // namespace piton
