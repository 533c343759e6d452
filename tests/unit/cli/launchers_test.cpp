#include "cli/compatibility/launchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "support/errors.h"

namespace piton::cli {
namespace {

using testing::HasSubstr;

// Sets the variables of launchers. Those by which the test itself was started are lost.
class Launchers : public testing::Test {
 protected:
  static void set(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                             "SLURM_PROCID", "PMI_SIZE", "PMI_RANK", "WORLD_SIZE", "RANK"})
      ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string refusal(const std::map<std::string, std::string>& variables) {
    set(variables);
    return message_of(Fault::kUsage, [] { refuse_unjoined_processes(1); });
  }
  void TearDown() override { set({}); }
};

TEST_F(Launchers, OfProcessesThatAreNotJoinedAreRefusedFromTheFirstRankOn) {
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(refusal({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", rank}}),
                HasSubstr("srun started 2 processes (SLURM_STEP_NUM_TASKS is set)"));
    EXPECT_THAT(refusal({{"PMI_SIZE", "3"}, {"PMI_RANK", rank}}),
                HasSubstr("mpiexec of another MPI started 3 processes"));
    EXPECT_THAT(refusal({{"WORLD_SIZE", "4"}, {"RANK", rank}}),
                HasSubstr("torchrun started 4 processes"));
  }
  EXPECT_THAT(refusal({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}),
              HasSubstr("srun started 2 processes (SLURM_NTASKS is set)"));
}

TEST_F(Launchers, OfOneProcessAreNotRefused) {
  for (const std::map<std::string, std::string>& variables :
       {std::map<std::string, std::string>{},
        {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}},  // a batch script
        {{"WORLD_SIZE", "1"}, {"RANK", "0"}},
        {{"WORLD_SIZE", "two"}, {"RANK", "0"}},
        {{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}}) {
    set(variables);
    EXPECT_NO_THROW(refuse_unjoined_processes(1));
  }
  set({{"WORLD_SIZE", "2"}, {"RANK", "0"}});
  EXPECT_NO_THROW(refuse_unjoined_processes(2));
}

}  // namespace
}  // namespace piton::cli
