// The drills, one program; each of its files is a test of CTest. With other words, a rank of a run
// that fails (faults_drill.cpp):
//   drills_all rank FAULT FAULT FLAGS...      pretrain with these flags and these two --fault
#include <gmock/gmock.h>

#include <cstdio>

#include "api/engine.h"
#include "base/progress.h"
#include "drills/tiny_run.h"
#include "train/pretrain.h"

namespace piton::drill {
namespace {

class ErrorLog final : public Log {
 public:
  void write(LogLevel, std::string_view message) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
  }
};

struct RankOptions {
  int threads = 0;
  double minutes = 10;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"threads", "as of piton"}, threads);
    v(Option{"distributed-timeout-minutes", "as of piton"}, minutes);
  }
};

// As piton ends: one line for an error, and its code.
int be_a_rank(const Words& faults, const Words& flags) {
  try {
    RankOptions rank;
    PretrainOptions options;
    OptionSet set;
    set.add("Rank", rank);
    options.add_to(set);
    set.parse(flags);
    options.faults.fault = faults;
    ErrorLog log;
    Engine engine({.threads = rank.threads, .launched = true, .timeout_seconds = 60 * rank.minutes},
                  log);
    SilentProgress progress;
    pretrain(engine.machine(), options,
             {.planner = &engine.planner(),
              .stop = [] { return 0; },
              .over = [] {},
              .progress = progress});
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "rank: %s\n", error.what());
    return static_cast<int>(error.fault());
  }
}

}  // namespace
}  // namespace piton::drill

int main(int count, char** words) {
  if (count > 3 && std::string(words[1]) == "rank") {
    return piton::drill::be_a_rank({words + 2, words + 4}, {words + 4, words + count});
  }
  testing::InitGoogleMock(&count, words);
  return RUN_ALL_TESTS();
}
