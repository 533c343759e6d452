// What a build without MPI has in place of it.
#include "comm/mpi/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/mpi/library.h"
#include "device/host_device.h"
#include "support/errors.h"

namespace piton {
namespace {

TEST(WorldWithoutMpi, NamesPitonLaunch) {
  HostDevice device;
  EXPECT_THAT(message_of(Fault::kUsage, [&] { make_mpi_world(device, {}); }),
              testing::AllOf(testing::HasSubstr("this build has no MPI"),
                             testing::HasSubstr("piton launch"), testing::HasSubstr("PITON_MPI")));
}

TEST(LibraryWithoutMpi, IsNamedByNothing) { EXPECT_EQ(mpi_library(), ""); }

}  // namespace
}  // namespace piton
