#include "cli/compatibility/meeting_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "support/errors.h"

namespace piton::cli {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::HasSubstr;

std::optional<MeetingPlace> place(const Variables& variables) {
  return find_meeting_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node7"},
                          {"MASTER_PORT", "4321"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(MeetingPlace, IsThatOfTorchrun) {
  const auto found = place(kTorchrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->address, "node7");
  EXPECT_EQ(found->port, 4321);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->host_rank, 1);
  EXPECT_EQ(found->host_size, 4);
}

TEST(MeetingPlace, IsNotThePortAtWhichTorchrunListens) {
  EXPECT_EQ(place(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"))->port, 4322);
  EXPECT_EQ(place(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False"))->port, 4321);
  EXPECT_EQ(place(with(kTorchrun, "PITON_PORT", "999"))->port, 999);
  EXPECT_EQ(place(with(kTorchrun, "PITON_PORT", "1"))->port, 1);
  EXPECT_EQ(place(with(kTorchrun, "PITON_PORT", "65535"))->port, 65535);
}

TEST(MeetingPlace, IsThatOfSrunWithMasterAddress) {
  Variables srun{{"SLURM_PROCID", "3"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  EXPECT_FALSE(place(srun));
  const auto found = place(with(srun, "MASTER_ADDR", "node1"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->host_rank, 1);
  EXPECT_EQ(found->host_size, 2);
  EXPECT_EQ(found->port, 29500);
}

TEST(MeetingPlace, OfMpirunOnOneHostIsThisHost) {
  Variables mpirun{{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(place(mpirun)->address, "127.0.0.1");
  mpirun["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  mpirun["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_FALSE(place(mpirun));
  EXPECT_EQ(place(with(mpirun, "MASTER_ADDR", "node1"))->address, "node1");
}

TEST(MeetingPlace, OfSrunAndMpiexecOnOneHostIsThisHost) {
  Variables srun{{"SLURM_PROCID", "3"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_LOCALID", "3"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4"}};
  EXPECT_EQ(place(srun)->address, "127.0.0.1");
  Variables mpiexec{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(place(mpiexec)->address, "127.0.0.1");
  EXPECT_EQ(place(mpiexec)->rank, 1);
}

TEST(MeetingPlace, NeedsNoNumbersOfTheHost) {
  Variables own = kTorchrun;
  own.erase("LOCAL_RANK");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { place(own); }), HasSubstr("LOCAL_RANK: got \"\""));
  own.erase("LOCAL_WORLD_SIZE");
  const auto found = place(own);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->host_rank, -1);
  own.erase("MASTER_ADDR");
  EXPECT_FALSE(place(own));
}

// Scripts that start each rank by hand do not count the ranks of a host.
TEST(MeetingPlace, NeedsNoNumberOfRanksOfTheHost) {
  Variables own = kTorchrun;
  own.erase("LOCAL_WORLD_SIZE");
  const auto found = place(own);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->host_rank, 1);
  EXPECT_EQ(found->host_size, 2);  // at least
  EXPECT_EQ(found->address, "node7");
  own["LOCAL_RANK"] = "7";  // all may be on this host, which other ranks cannot know
  own.erase("MASTER_ADDR");
  EXPECT_FALSE(place(own));
}

TEST(MeetingPlace, IsNoneForOneProcess) {
  EXPECT_FALSE(place({}));
  EXPECT_FALSE(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(place({{"SLURM_PROCID", "0"}}));  // a batch script
}

TEST(MeetingPlace, RefusesWhatIsNoNumber) {
  const auto message = [](const Variables& variables) {
    return message_of(Fault::kUsage, [&] { place(variables); });
  };
  EXPECT_EQ(message(with(kTorchrun, "RANK", "8")),
            "environment: RANK: got \"8\", wanted a number from 0 to 7");
  EXPECT_THAT(message(with(kTorchrun, "WORLD_SIZE", "eight")), HasSubstr("got \"eight\""));
  EXPECT_THAT(message(with(kTorchrun, "LOCAL_RANK", "")), HasSubstr("LOCAL_RANK: got \"\""));
  EXPECT_THAT(message(with(kTorchrun, "MASTER_PORT", "65536")), HasSubstr("from 1 to 65535"));
  for (const char* port : {"0", "65536"}) {
    EXPECT_EQ(
        message(with(kTorchrun, "PITON_PORT", port)),
        fmt::format("environment: PITON_PORT: got \"{}\", wanted a number from 1 to 65535", port));
  }
}

}  // namespace
}  // namespace piton::cli
