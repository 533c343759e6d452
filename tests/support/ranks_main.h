// The main function of a rank test: include it in one file of the program.
//
// Every rank runs every test, in the same order, so tests may use collectives. Rank 0 reports like
// GoogleTest; the others print only failures, with their rank. All ranks return the same code.
//
// The file selects the options of the world by defining piton::ranks::options().
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "ranks/setting.h"

namespace piton::ranks {

class FailuresOfRank final : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOfRank(int rank) : rank_(rank) {}
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s %s:%d\n%s\n", rank_, test_.c_str(),
                 result.file_name() ? result.file_name() : "", result.line_number(),
                 result.message());
  }

 private:
  int rank_;
  std::string test_;  // GoogleTest cannot be asked for it while it reports a failure
};

}  // namespace piton::ranks

int main(int argc, char** argv) {
  using namespace piton;
  testing::InitGoogleTest(&argc, argv);
  HostDevice device;
  auto world = ranks::make_launched_world(device, ranks::options());
  std::vector<int> all(world->size());
  std::iota(all.begin(), all.end(), 0);
  auto everyone = world->make_group(all, "everyone");
  ranks::setting() = {&device, world.get(), everyone.get()};
  if (world->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new ranks::FailuresOfRank(world->rank()));
  }
  int code = RUN_ALL_TESTS();
  try {
    for (const std::string& its : everyone->gather_bytes(code == 0 ? "" : "failed")) {
      if (!its.empty()) code = 1;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "[rank %d] %s\n", world->rank(), error.what());
    code = 1;
  }
  return code;
}
