// Named parts of a run's work, as they begin and end on the thread that drives it: for timers and
// traces.
#pragma once

#include <cstdint>
#include <string_view>

namespace piton {

// Sections nest: the one that began last ends first. Names are literals; `number`: of the step, of
// the micro-batch, or -1.
class SectionObserver {
 public:
  virtual ~SectionObserver() = default;
  virtual void begin_section(std::string_view name, std::int64_t number) = 0;
  virtual void end_section(std::string_view name) = 0;
};

// A section from here to the end of the scope. `observer` null: no one is interested.
class Section {
 public:
  Section(SectionObserver* observer, std::string_view name, std::int64_t number = -1)
      : observer_(observer), name_(name) {
    if (observer_ != nullptr) observer_->begin_section(name_, number);
  }
  ~Section() {
    if (observer_ != nullptr) observer_->end_section(name_);
  }
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  SectionObserver* observer_;
  std::string_view name_;
};

}  // namespace piton
