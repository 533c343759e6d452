// Messages between ranks of different hosts, over TCP.
//
// Each rank listens. Who sends to a rank for the first time connects to it, so a pair of ranks has
// a connection for each direction that it uses. A connection carries
//
//   24 bytes   Greeting                  once: which rank this is, and that it belongs to the run
//   24 bytes   Header, then the bytes    for each message
//
// Bytes go from the memory of the sender to that of the receiver, without copies of this program.
// Only a message that comes before its receive waits in a buffer, so that it delays no other one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/ranks/job.h"
#include "comm/ranks/transport.h"
#include "comm/rendezvous/connection.h"

namespace piton {

// Where a rank listens.
struct RankAddress {
  std::string host;
  int port = 0;
  std::uint64_t token = 0;  // only ranks of the run know it
};

class MessagesOverTcp {
 public:
  MessagesOverTcp(int rank, ReachedFrom from);
  MessagesOverTcp(const MessagesOverTcp&) = delete;
  MessagesOverTcp& operator=(const MessagesOverTcp&) = delete;
  ~MessagesOverTcp();

  // Of this rank; the host is for others to say.
  RankAddress own_address() const {
    return {.host = "", .port = listener_.port(), .token = token_};
  }
  // Before the first message.
  void set_addresses(std::vector<RankAddress> all) { addresses_ = std::move(all); }

  // A message belongs to `channel`, which has the same number on both ranks. `other`: a rank of
  // the world.
  struct Label {
    std::uint64_t channel = 0;
    int other = 0;
    int tag = 0;
  };
  std::unique_ptr<Transfer> send(const Label& label, const std::byte* data, std::int64_t bytes);
  std::unique_ptr<Transfer> receive(const Label& label, std::byte* data, std::int64_t bytes);

  // Moves bytes; true if some have moved. Never waits, except for a new connection.
  bool progress();
  // Ends all transfers, and takes no more.
  void drop();

  // A rank whose connection has ended while messages were under way. Any thread.
  std::optional<std::string> failure() const;

 private:
  using Key = std::tuple<std::uint64_t, int, int>;  // channel, other, tag
  static Key key(const Label& label) { return {label.channel, label.other, label.tag}; }

  struct Greeting {
    std::uint64_t protocol;
    std::uint64_t token;  // of the one that listens
    std::int64_t rank;
  };
  struct Header {
    std::uint64_t channel;
    std::int64_t tag;
    std::int64_t bytes;
  };
  static_assert(sizeof(Greeting) == 24 && sizeof(Header) == 24);

  struct Moving {
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    bool done = false;
  };
  class OpenTransfer;

  // A message without a receive. Its bytes are not set before they come.
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    std::int64_t bytes = 0;
  };

  struct Sending {
    Header header{};
    std::shared_ptr<Moving> moving;
    std::int64_t written = 0;  // of the header and the bytes
  };
  struct Outgoing {
    RankConnection connection;
    std::deque<Sending> queue;
  };
  struct Incoming {
    RankConnection connection;
    int rank = -1;                     // unknown before the greeting
    std::byte head[sizeof(Header)]{};  // the greeting, or the header of the message that arrives
    std::int64_t head_bytes = 0;
    std::int64_t taken = 0;          // bytes of the message
    std::shared_ptr<Moving> target;  // where it goes: to its receive,
    Buffer buffer;                   // or here, until there is one
    bool lost = false;

    Header header() const;
  };
  enum class Read { kSome, kNothing, kEnd };

  void connect(Outgoing& outgoing, int other) const;
  bool write(int other, Outgoing& outgoing);
  void accept_all();
  bool read(Incoming& incoming);
  static Read read_bytes(Incoming& incoming, std::byte* to, std::int64_t bytes,
                         std::int64_t& count);
  bool take_head(Incoming& incoming);
  void start_message(Incoming& incoming);
  void end_message(Incoming& incoming);
  void finish(Moving& moving);
  void lose(int other);
  static void expect_bytes(const Label& label, std::int64_t came, std::int64_t wanted);

  int rank_;
  std::uint64_t token_;
  RankListener listener_;
  int events_ = -1;  // epoll: the listener and the incoming connections
  std::vector<RankAddress> addresses_;
  std::map<int, Outgoing> outgoing_;  // by rank
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::map<Key, std::deque<std::shared_ptr<Moving>>> asked_;  // receives without a message
  std::map<Key, std::deque<Buffer>> kept_;                    // whole messages without a receive
  std::int64_t open_ = 0;                                     // transfers that are not done
  bool dropped_ = false;

  struct Lost {
    int rank;
    Clock::time_point since;
  };
  mutable std::mutex mutex_;  // guards lost_
  std::optional<Lost> lost_;
};

}  // namespace piton
