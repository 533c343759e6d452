// SymmetricMemory in a shared window; for groups of several hosts, in private memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/ranks/engine.h"
#include "comm/ranks/shared_window.h"

namespace piton {

inline constexpr int kSymmetricCounters = 64;

// The segments of a window, one for each member: data, then the counters.
struct SymmetricSegments {
  std::shared_ptr<SharedWindow> window;
  std::int64_t bytes = 0;  // of data
  Place place;             // of the data
};

struct SymmetricGroup {
  std::vector<int> members;  // host ranks
  int rank = 0;              // this process's place among them
  std::string name;
};

class WindowSymmetricMemory final : public SymmetricMemory {
 public:
  // `on_drop` runs when this object and all its tensors are destroyed.
  WindowSymmetricMemory(RankEngine& engine, SymmetricSegments segments, SymmetricGroup group,
                        std::function<void()> on_drop);

  // Bytes of a segment that holds `bytes` of data.
  static std::int64_t segment_bytes(std::int64_t bytes);
  // Called once by the segment's owner before others use it.
  static void make_counters(std::byte* segment, std::int64_t bytes);

  Tensor mine() const override { return peers_[rank_]; }
  Tensor peer(int member) const override { return peers_[member]; }
  void signal(int member, int slot, std::int64_t bytes) override;
  void wait(int slot, std::uint64_t value) override;
  void sum(const Tensor& out, std::int64_t begin) override;

 private:
  struct Counters {
    Doorbell bell;
    std::atomic<std::uint64_t> value[kSymmetricCounters];
  };
  Counters& counters(int member) const;

  RankEngine* engine_;
  std::shared_ptr<SharedWindow> window_;
  int rank_;
  std::int64_t bytes_;
  std::string group_;
  std::vector<Tensor> peers_;
};

// For a group of several hosts: peer() is empty for every member but this one, and only this
// member's counters can be signaled.
class PrivateSymmetricMemory final : public SymmetricMemory {
 public:
  PrivateSymmetricMemory(Device& device, int rank, std::int64_t bytes);
  Tensor mine() const override { return memory_->mine(); }
  Tensor peer(int member) const override;
  void signal(int member, int slot, std::int64_t bytes) override;
  void wait(int slot, std::uint64_t value) override { memory_->wait(slot, value); }
  void sum(const Tensor& out, std::int64_t begin) override;

 private:
  std::unique_ptr<Communicator> self_;  // its symmetric memory does all this
  std::unique_ptr<SymmetricMemory> memory_;
  int rank_;
};

}  // namespace piton
