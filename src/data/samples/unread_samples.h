// Sources that have a size alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"
#include "data/samples/sample_source.h"

namespace piton {

// An empty split. Reading a sample from it is the user's mistake.
class EmptySource final : public SampleSource {
 public:
  EmptySource(std::string name, std::int64_t sequence)
      : name_(std::move(name)), sequence_(sequence) {}
  std::int64_t size() const override { return 0; }
  std::int64_t sequence() const override { return sequence_; }
  void sample(std::int64_t, Sample&) const override {
    throw Error(Fault::kData, "{} set: empty; give it a larger share (--split) or a larger corpus",
                name_);
  }

 private:
  std::string name_;
  std::int64_t sequence_;
};

// Running text whose samples are counted, not read.
class CountedSource final : public SampleSource {
 public:
  CountedSource(std::int64_t size, std::int64_t sequence) : size_(size), sequence_(sequence) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence() const override { return sequence_; }
  void sample(std::int64_t, Sample&) const override { PITON_ASSERT(false, "counted, not read"); }

 private:
  std::int64_t size_;
  std::int64_t sequence_;
};

}  // namespace piton
