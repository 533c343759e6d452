// A stream whose work runs on a separate thread, in order, while the host continues.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "device/device.h"

namespace piton {

// If a piece of work throws, the ones behind it are dropped. From then on every wait for an event
// of the stream throws the same exception, as does record().
class ThreadStream final : public Stream {
 public:
  ThreadStream();
  ~ThreadStream() override;  // waits for all work

  Event record() override;
  void enqueue(std::function<void()> work) override;

 private:
  class Failure;
  class RecordedFence;
  struct Piece {
    std::function<void()> work;
    std::shared_ptr<RecordedFence> fence;  // in place of work
  };
  void follow(const Event& event) override;
  void push(Piece piece);
  void serve();

  std::shared_ptr<Failure> failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace piton
