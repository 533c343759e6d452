// The processes of the ranks that one launcher starts, from their start to the end of the last one.
//
// Each rank is in a separate process group, so a terminal reaches the launcher alone.
//
//   SIGINT, SIGTERM, SIGHUP, SIGUSR1   reach the ranks as SIGUSR1: a training run ends its step,
//                                      saves and ends with 75, however long that takes. Later ones
//                                      have no effect, but for
//   a second SIGINT or SIGTERM         a quarter of a second after the first: ends all ranks at
//   once a rank that fails                  ends the run: the others have the time to say what they
//   see,
//                                      are then asked to end (SIGTERM), and then killed. 75 is no
//                                      failure: the others save too
//   the launcher is killed             its ranks are killed too
//
// The output of ranks is passed on in whole lines, standard input to rank 0.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/launcher/line_relay.h"

namespace piton::cli {

struct RankPlan {
  std::vector<std::string> words;  // a program, as a path, and its arguments
  int ranks = 1;                   // on this host
  int first_rank = 0;              // of these, in the run
  int world_size = 1;
  std::string address = "127.0.0.1";  // of rank 0
  int port = 0;
  std::chrono::duration<double> grace{3};  // between the steps after a failure
};

class RankProcesses {
 public:
  // Starts them. Throws Error(kUsage) if the program cannot be started; none runs then.
  explicit RankProcesses(const RankPlan& plan);
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();  // kills those that still run

  // Waits for all, and returns the code of the first one that failed, 128 + the number of the
  // signal that ended it or the run, 75 if all have saved, or 0.
  int wait();

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    int id = 0;  // 0: has ended
    int rank = 0;
  };
  struct Channels {
    int in = -1;
    int out = -1;
    int error = -1;
  };

  void start(const RankPlan& plan, int number);
  Channels channels_of(int number);
  void turn();
  void take_signals();
  void ask(int signal);
  void deliver();
  void reap();
  void note_end(const Process& process, int status);
  void end_others();
  void kill_all(int signal) const;
  bool any_runs() const;

  std::chrono::duration<double> grace_;
  std::vector<Process> processes_;
  LineRelay relay_;
  int signals_ = -1;  // signalfd
  Clock::time_point started_ = Clock::now();

  int first_ = 0;      // the first request
  int first_end_ = 0;  // the first SIGINT or SIGTERM
  bool delivered_ = false;
  Clock::time_point first_end_at_;
  bool at_once_ = false;  // a second SIGINT or SIGTERM has come

  std::optional<int> failure_;  // code of the first rank that failed
  Clock::time_point failed_at_;
  int steps_after_failure_ = 0;
  bool saved_ = false;  // a rank has ended with 75
};

}  // namespace piton::cli
