// The place where the ranks of a run meet, on a thread of rank 0. Internal to this folder.
//
// It waits until all ranks have said hello, collects the parts of gathers and returns them, and
// tells all ranks if one of them fails, leaves without goodbye, or does not come in time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/connection.h"
#include "comm/rendezvous/meeting_place.h"
#include "comm/rendezvous/messages.h"

namespace piton {

class RendezvousServer {
 public:
  // Throws Error(kUsage) if the port cannot be used.
  RendezvousServer(const MeetingPlace& place, double timeout_seconds);
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;
  ~RendezvousServer();  // closes all connections

  int port() const { return listener_.port(); }
  // Waits until every rank has said goodbye or is lost, or until `limit` is over.
  void wait_for_goodbyes(std::chrono::seconds limit) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Guest {
    RankConnection connection;
    FrameBuffer buffer;
    int rank = -1;  // unknown before the hello
    bool gone = false;
  };
  struct Gather {
    std::vector<int> ranks;
    std::map<int, std::string> parts;  // by rank
    Clock::time_point begun;
  };

  void run();
  void receive(Guest& guest);
  void take(Guest& guest, const std::string& frame);
  void greet(Guest& guest, MessageReader& hello);
  void add_part(const Guest& guest, MessageReader& message);
  void lose(Guest& guest);
  void check_times();
  void fail(const std::string& why);
  Guest* guest_of(int rank);

  RankListener listener_;
  int size_;
  std::chrono::duration<double> timeout_;
  Clock::time_point begun_ = Clock::now();
  std::vector<std::unique_ptr<Guest>> guests_;
  std::map<std::string, Gather> gathers_;
  std::optional<std::string> failure_;
  bool complete_ = false;         // all ranks have come
  std::atomic<int> goodbyes_{0};  // ranks that have left or are lost
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace piton
