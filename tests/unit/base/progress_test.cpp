#include "base/progress.h"

#include <gtest/gtest.h>

#include <vector>

namespace piton {
namespace {

class Shown final : public Progress {
 public:
  void update(const ProgressState& state) override { states.push_back(state); }
  void finish() override {}
  std::vector<ProgressState> states;
};

TEST(ThrottledProgress, ShowsAtOnceAndThenWhenTheIntervalIsOver) {
  Shown display;
  ThrottledProgress shown(display, 100, /*interval=*/1000);
  int notes = 0;
  const auto note = [&] { return std::to_string(++notes); };
  for (int done = 0; done < 5; ++done) shown.at(done, note);
  ASSERT_EQ(display.states.size(), 1);
  EXPECT_EQ(notes, 1) << "a note is made only where it is shown";
  EXPECT_EQ(display.states[0].done, 0);
  EXPECT_EQ(display.states[0].total, 100);
  EXPECT_EQ(display.states[0].note, "1");
  shown.show(7, "whatever the time is");
  ASSERT_EQ(display.states.size(), 2);
  EXPECT_EQ(display.states[1].done, 7);
  shown.at(100, note);
  ASSERT_EQ(display.states.size(), 3) << "the end is shown, whatever the time is";
  EXPECT_EQ(display.states[2].done, 100);
  ThrottledProgress always(display, 0, /*interval=*/0);
  for (int done = 0; done < 5; ++done) always.at(done, note);
  EXPECT_EQ(display.states.size(), 8);
}

}  // namespace
}  // namespace piton
