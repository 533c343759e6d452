#include "model/families.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

// As their publishers count them.
TEST(Families, HaveTheParametersThatArePublished) {
  EXPECT_EQ(preset("gpt2-124m").parameters(), 124'439'808);
  EXPECT_EQ(preset("gpt2-355m").parameters(), 354'823'168);
  EXPECT_EQ(preset("llama2-7b").parameters(), 6'738'415'616);
  EXPECT_EQ(preset("qwen1.5-0.5b").parameters(), 463'987'712);
  EXPECT_EQ(preset("qwen2.5-0.5b").parameters(), 494'032'768);
  EXPECT_EQ(preset("qwen3-0.6b").parameters(), 596'049'920);
}

}  // namespace
}  // namespace piton
