// A decoding engine without a cache: each token computes its whole text again.
#pragma once

#include <map>
#include <memory>

#include "api/model.h"
#include "generate/decoding_engine.h"

namespace piton {

class UncachedEngine final : public DecodingEngine {
 public:
  explicit UncachedEngine(Model& model) : model_(model) {}
  std::int64_t submit(DecodingRequest request) override;
  void cancel(std::int64_t request) override { texts_.erase(request); }
  std::vector<DecodingEvent> step() override;
  bool idle() const override { return texts_.empty(); }
  DecodingCounts counts() const override;

 private:
  struct Text {
    DecodingRequest request;
    std::vector<std::int32_t> ids;
  };
  DecodingEvent next(std::int64_t number, Text& text);

  Model& model_;
  std::map<std::int64_t, Text> texts_;
  std::int64_t submitted_ = 0;
  DecodingCounts counts_;
};

}  // namespace piton
