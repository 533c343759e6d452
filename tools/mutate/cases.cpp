// Linked into every test of a woven tree: says in the log of switch.h which test case reaches which
// fault ("17 Suite.Case") and how many milliseconds each took ("=12 Suite.Case").
#include <gtest/gtest.h>

#include "switch.h"

namespace piton::mutate {
namespace {

class CaseRecorder : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(case_name, sizeof case_name, "%s.%s", test.test_suite_name(), test.name());
    for (auto& fault : reached) fault.store(false, std::memory_order_relaxed);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    write_reach_log("=%ld %s\n", static_cast<long>(test.result()->elapsed_time()), case_name);
    std::snprintf(case_name, sizeof case_name, "-");
  }
};

[[maybe_unused]] const bool added = [] {
  // The list of listeners owns it.
  if (reach_log != nullptr) {
    testing::UnitTest::GetInstance()->listeners().Append(
        std::make_unique<CaseRecorder>().release());
  }
  return true;
}();

}  // namespace
}  // namespace piton::mutate
