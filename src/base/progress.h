// Progress of a long job. Libraries report it; cli shows it in one line.
#pragma once

#include <cstdint>
#include <string>

namespace piton {

struct ProgressState {
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0: unknown
  double seconds = 0;
  std::string note;  // "12.4 MB/s, 1024 documents"
};

class Progress {
 public:
  virtual ~Progress() = default;
  // Called a few times a second at most.
  virtual void update(const ProgressState& state) = 0;
  virtual void finish() = 0;
};

class SilentProgress final : public Progress {
 public:
  void update(const ProgressState&) override {}
  void finish() override {}
};

}  // namespace piton
