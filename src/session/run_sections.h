// Passes the sections of a run (base/sections.h) on to those that observe them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/sections.h"
#include "parallel/schedule.h"

namespace piton {

// The names of sections are those of Megatron-LM's timers, and "logging".
inline constexpr std::string_view kStepSection = "step";
inline constexpr std::string_view kEvaluateSection = "evaluate";
inline constexpr std::string_view kDataSection = "batch-generator";
inline constexpr std::string_view kSaveSection = "save-checkpoint";
inline constexpr std::string_view kLoadSection = "load-checkpoint";
inline constexpr std::string_view kLoggingSection = "logging";
inline constexpr std::string_view kForwardBackwardSection = "forward-backward";
inline constexpr std::string_view kGradientSumsSection = "all-grads-sync";
inline constexpr std::string_view kOptimizerSection = "optimizer";
inline constexpr std::string_view kPublishSection = "params-all-gather";
inline constexpr std::string_view kForwardSection = "forward-compute";
inline constexpr std::string_view kBackwardSection = "backward-compute";

class RunSections final : public SectionObserver {
 public:
  // `observer` must outlive it.
  void add(SectionObserver& observer) { observers_.push_back(&observer); }
  bool empty() const { return observers_.empty(); }

  void begin_section(std::string_view name, std::int64_t number) override {
    end_pass();
    begin(name, number);
  }
  void end_section(std::string_view name) override {
    end_pass();
    end(name);
  }

  // A pass over a micro-batch begins. It ends with the next pass, or with the section around it:
  // the pipeline tells of beginnings only.
  void begin_pass(Pass pass, std::int64_t micro_batch) {
    end_pass();
    if (observers_.empty()) return;
    pass_ = pass == Pass::kForward ? kForwardSection : kBackwardSection;
    begin(pass_, micro_batch);
  }

 private:
  void begin(std::string_view name, std::int64_t number) {
    for (SectionObserver* observer : observers_) observer->begin_section(name, number);
  }
  void end(std::string_view name) {
    for (SectionObserver* observer : observers_) observer->end_section(name);
  }
  void end_pass() {
    if (pass_.empty()) return;
    end(pass_);
    pass_ = {};
  }

  std::vector<SectionObserver*> observers_;
  std::string_view pass_;  // under way, or empty
};

}  // namespace piton
