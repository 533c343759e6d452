// Passes the output of several processes on in whole lines, and input to one of them.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

namespace piton::cli {

class LineRelay {
 public:
  LineRelay() = default;
  LineRelay(const LineRelay&) = delete;
  LineRelay& operator=(const LineRelay&) = delete;
  ~LineRelay();

  // What comes from `from` goes to descriptor `to`. Closes `from` at its end.
  void add_output(int from, int to);
  // What a person types at standard input goes to `to`, as long as this process is in the
  // foreground of its terminal. Closes `to` at its end.
  void set_typed_input(int to) { typed_to_ = to; }

  // Waits until something comes, also from `other`, at most `milliseconds` (-1: no limit), and
  // passes it on. A line without an end is passed on after a while.
  void turn(int other, int milliseconds);
  bool open() const { return !outputs_.empty(); }
  // Passes on what is there, without waiting.
  void flush();

 private:
  using Clock = std::chrono::steady_clock;
  struct Output {
    int from = -1;
    int to = -1;
    std::string begun;  // a line without an end
    Clock::time_point since;
  };

  void read_output(Output& output);
  void write_lines(Output& output, std::string_view text);
  void write_begun(Output& output);
  void read_input();
  static bool in_foreground();

  std::vector<Output> outputs_;
  int typed_to_ = -1;
  bool unread_[3] = {};  // nobody reads this descriptor any more
};

}  // namespace piton::cli
