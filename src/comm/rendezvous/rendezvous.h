// Ranks find each other over TCP, without MPI: under torchrun, srun, or anything that starts
// processes with MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
//
// Rank 0 listens at MASTER_PORT. All ranks connect to it, exchange small texts through it, and
// learn when one of them fails or is lost. Large data do not go through it. Nothing is encrypted or
// signed: use it in a network where only the run's users reach the port, as with torchrun.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/connection.h"
#include "comm/rendezvous/meeting_place.h"

namespace piton {

class RendezvousServer;

class Rendezvous {
 public:
  // Returns when all ranks are there. Throws Error(kUsage) if the place cannot be used or two ranks
  // have the same number, and Error(kPeer) naming the ranks that have not come in time.
  Rendezvous(const MeetingPlace& place, double timeout_seconds);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  // Leaves. In rank 0 it waits for the others to leave, at most ten seconds. Waits for nobody
  // after a failure.
  ~Rendezvous();

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const MeetingPlace& place() const { return place_; }
  // Where ranks of other hosts reach this one.
  std::string own_address() const;

  // The bytes of all `ranks` (ascending, this one among them), in their order. Blocks. Calls with
  // the same name and ranks are matched by their order. Throws Error(kPeer) if the run fails, or a
  // rank does not come in time.
  std::vector<std::string> gather(const std::string& name, std::span<const int> ranks,
                                  const std::string& mine);

  // Tells all ranks that this one has failed with exit code `code`. Returns when rank 0 knows it.
  void fail(int code, const std::string& why);
  // Why the run cannot continue.
  std::optional<std::string> failure() const;
  // `report` is called once with failure(): here if there is one, else on another thread. When the
  // next on_failure() returns, an earlier report does not run any more. Must not call this object.
  void on_failure(std::function<void(const std::string&)> report);

 private:
  void join(double timeout_seconds);
  void run();
  void take(const std::string& frame);
  void set_failure(const std::string& why);
  void send(const std::string& frame);

  MeetingPlace place_;
  std::unique_ptr<RendezvousServer> server_;  // in rank 0
  RankConnection connection_;
  std::mutex send_mutex_;  // whole frames: threads fail while another one gathers
  FrameBuffer buffer_;
  std::mutex report_mutex_;  // guards report_; locked before mutex_
  std::function<void(const std::string&)> report_;
  mutable std::mutex mutex_;  // guards the next four
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::string>> gathered_;  // by key, not taken yet
  std::map<std::string, std::int64_t> calls_;                 // of name and ranks
  std::optional<std::string> failure_;
  bool leaves_ = false;
  std::thread thread_;
};

}  // namespace piton
