// Passes that nobody observes: those of a decoding engine are not those of micro-batches.
#pragma once

#include <utility>

#include "parallel/pipeline.h"

namespace piton {

// Takes the observer of a pipeline away while it exists. The pipeline must outlive it.
class WithoutObserver {
 public:
  explicit WithoutObserver(Pipeline& pipeline)
      : pipeline_(pipeline), kept_(std::exchange(pipeline.observer, {})) {}
  ~WithoutObserver() { pipeline_.observer = std::move(kept_); }
  WithoutObserver(const WithoutObserver&) = delete;
  WithoutObserver& operator=(const WithoutObserver&) = delete;

 private:
  Pipeline& pipeline_;
  decltype(Pipeline::observer) kept_;
};

}  // namespace piton
