#include "comm/ranks/job.h"

#include <gtest/gtest.h>

#include <thread>

namespace piton {
namespace {

TEST(JobEnd, IsReachedByAJobThatEndsAndNotByOneThatIsOpen) {
  Job open;
  EXPECT_FALSE(JobEnd(open).within(0.01));
  Job job;
  const JobEnd end(job);
  std::thread other([&] { job.finish(); });
  EXPECT_TRUE(end.within(60));
  EXPECT_TRUE(end.within(0));
  EXPECT_TRUE(JobEnd(job).within(0));
  other.join();
  Job failed;
  failed.fail("why");
  EXPECT_TRUE(JobEnd(failed).within(0));
}

}  // namespace
}  // namespace piton
