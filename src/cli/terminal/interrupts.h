// SIGINT (Ctrl-C) while a command answers a person: it ends the answer, not the process.
//
// As with StopSignals no handler is installed. In the thread that makes this object SIGINT is
// blocked while there is an Answer, and then waits until it is asked for; at other times it ends
// the process, as usual. Other threads never get it: make this object before them.
#pragma once

namespace piton::cli {

class Interrupts {
 public:
  Interrupts();  // blocks SIGINT, which threads that are started now inherit
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Call it when the other threads are there: from now on SIGINT ends the process, unless there is
  // an Answer.
  void threads_are_made();

  class Answer {
   public:
    Answer();   // SIGINT waits
    ~Answer();  // one that nobody asked for has no effect
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;

    // Whether SIGINT has come. Of the thread that made this object.
    bool interrupted();

   private:
    bool interrupted_ = false;
  };
};

}  // namespace piton::cli
