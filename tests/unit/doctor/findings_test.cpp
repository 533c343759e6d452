// What is found on machines that are made up, and that every fault has its remedy.
#include "doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/files/files.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

struct MadeUpMachine {
  HostFacts host{.processor = "Some Processor",
                 .cores = 8,
                 .online_cores = 8,
                 .memory = 64 * kGiB,
                 .available_memory = 60 * kGiB,
                 .open_files = 4096,
                 .locked_memory = 8 * kMiB,
                 .shared_memory_free = 32 * kGiB,
                 .folder = "/work",
                 .folder_free = 100 * kGiB,
                 .folder_writable = true};
  InstallationFacts installation{.instruction_sets = {"x86-64-v2", "x86-64-v3"},
                                 .chosen = "x86-64-v3",
                                 .mpi_library = "Open MPI v4.1.4, package: Debian OpenMPI",
                                 .parquet = true};
  LauncherFacts launcher{.path = "/usr/bin/mpirun", .version = "mpirun (Open MPI) 4.1.4"};
  BuildFacts build{.version = "0.1.0, commit abc", .build = "Release, GNU 12.2.0"};

  std::vector<Finding> found() const { return findings(host, installation, launcher, build); }
  Finding found(const std::string& about) const {
    for (const Finding& one : found()) {
      if (one.about == about) return one;
    }
    ADD_FAILURE() << "nothing is found about " << about;
    return {};
  }
};

TEST(Findings, OfAGoodMachineAreAllWell) {
  const MadeUpMachine machine;
  EXPECT_EQ(machine.found().size(), 12U);
  for (const Finding& one : machine.found()) {
    EXPECT_EQ(one.health, Health::kOk) << one.about << ": " << one.text;
    EXPECT_EQ(one.fix, "") << one.about;
    EXPECT_NE(one.text, "") << one.about;
  }
  EXPECT_EQ(machine.found("instruction sets").text,
            "x86-64-v2, x86-64-v3; the kernels use x86-64-v3");
  EXPECT_EQ(machine.found("cores").text, "8 of 8 may be used");
  EXPECT_EQ(machine.found("memory").text, "60.0 GiB of 64.0 GiB available");
  EXPECT_EQ(machine.found("MPI").text,
            "library: Open MPI v4.1.4; /usr/bin/mpirun: mpirun (Open MPI) 4.1.4");
}

// One thing is spoilt at a time: that one alone is found, with its fix.
TEST(Findings, NameWhatIsWrongAndWhatMendsIt) {
  struct Case {
    std::string about;
    std::function<void(MadeUpMachine&)> spoil;
    std::string text;
    std::string fix;
    Health health = Health::kWarning;
  };
  const Case cases[] = {
      {"instruction sets", [](MadeUpMachine& m) { m.installation.instruction_sets.clear(); },
       "older than x86-64-v2", "--kernels reference", Health::kMissing},
      {"instruction sets",
       [](MadeUpMachine& m) { m.installation.instruction_sets = {"x86-64-v2"}; }, "x86-64-v2",
       "-cpu host"},
      {"cores", [](MadeUpMachine& m) { m.host.core_quota = 2.5; }, "has the time of 2.5",
       "--threads 2"},
      {"cores", [](MadeUpMachine& m) { m.host.core_quota = 0.5; }, "has the time of 0.5",
       "--threads 1"},
      {"memory", [](MadeUpMachine& m) { m.host.memory_limit = kGiB; }, "may use 1.0 GiB",
       "docker run --memory"},
      {"memory", [](MadeUpMachine& m) { m.host.available_memory = 512 * kMiB; },
       "512 MiB of 64.0 GiB available", "end other programs"},
      {"open files", [](MadeUpMachine& m) { m.host.open_files = 256; }, "at most 256",
       "ulimit -n 4096"},
      {"locked memory", [](MadeUpMachine& m) { m.host.has_infiniband = true; },
       "InfiniBand needs more", "ulimit -l unlimited"},
      {"shared memory", [](MadeUpMachine& m) { m.host.shared_memory_free = 64 * kMiB; },
       "64 MiB free in /dev/shm", "--shm-size 8g"},
      {"shared memory", [](MadeUpMachine& m) { m.host.shared_memory_free.reset(); }, "no /dev/shm",
       "mount -t tmpfs"},
      {"disk", [](MadeUpMachine& m) { m.host.folder_free = kGiB; }, "1.0 GiB free in /work",
       "--save"},
      {"disk", [](MadeUpMachine& m) { m.host.folder_writable = false; }, "cannot be written to",
       "--save"},
      {"MPI", [](MadeUpMachine& m) { m.launcher.version = "mpirun (Open MPI) 5.0.3"; }, "5.0.3",
       "does not join the processes of Open MPI 4.1.4"},
      {"MPI", [](MadeUpMachine& m) { m.launcher.version = "HYDRA build details: 4.1.4"; }, "HYDRA",
       "put that one's mpirun first on PATH"},
      {"GPU", [](MadeUpMachine& m) { m.host.has_nvidia = true; }, "this build has no CUDA",
       "cmake --preset cuda"},
      {"GPU", [](MadeUpMachine& m) { m.installation.cuda_built = true; }, "no GPU answers",
       "nvidia-smi"},
      {"GPU",
       [](MadeUpMachine& m) {
         m.host.has_nvidia = m.installation.cuda_built = true;
         m.installation.cuda_obstacle = "the driver is for CUDA 12.2, wanted 13.0 or newer";
       },
       "cannot use it: the driver is for CUDA 12.2", "install the driver"},
      {"GPU",
       [](MadeUpMachine& m) {
         m.installation.cuda_built = true;
         m.installation.cuda_devices = 8;
         m.installation.nccl_obstacle = "NCCL: cannot open libnccl.so.2";
       },
       "8 for --kernels cuda; several ranks cannot be joined: NCCL: cannot open libnccl.so.2",
       "apt-get install libnccl2"},
      {"libraries", [](MadeUpMachine& m) { m.installation.parquet = false; },
       "Parquet cannot be read", "apt-get install python3-pip, then make"},
      {"build", [](MadeUpMachine& m) { m.build.build = "Debug, GNU 12.2.0"; }, "Debug",
       "cmake --preset cpu"},
  };
  for (const Case& one : cases) {
    MadeUpMachine machine;
    one.spoil(machine);
    for (const Finding& found : machine.found()) {
      if (found.about != one.about) {
        EXPECT_EQ(found.health, Health::kOk) << one.about << " spoils " << found.about;
        continue;
      }
      EXPECT_EQ(found.health, one.health) << one.about;
      EXPECT_THAT(found.text, HasSubstr(one.text));
      EXPECT_THAT(found.fix, HasSubstr(one.fix));
    }
  }
}

TEST(Findings, NeedNoMpirun) {
  MadeUpMachine machine;
  machine.launcher = {};
  EXPECT_EQ(machine.found("MPI").health, Health::kOk);
  EXPECT_THAT(machine.found("MPI").text, HasSubstr("no mpirun on the path, and none is needed"));
}

TEST(Findings, TakeWhatMakesNoDifferenceAsWell) {
  MadeUpMachine machine;
  machine.host.core_quota = 8;
  machine.host.open_files.reset();
  machine.host.locked_memory.reset();
  machine.host.has_infiniband = true;
  machine.host.has_nvidia = true;
  machine.installation.cuda_built = true;
  machine.installation.cuda_devices = 1;
  machine.installation.nccl_obstacle = "of no consequence for one GPU";
  machine.launcher.version = "mpirun (Open MPI) 4.1.6";
  for (const Finding& one : machine.found()) EXPECT_EQ(one.health, Health::kOk) << one.about;
}

TEST(Findings, DoNotMissADriverWithoutAGpu) {
  MadeUpMachine machine;
  machine.installation.cuda_built = true;
  machine.installation.cuda_obstacle = "no driver of NVIDIA is installed (libcuda.so.1)";
  EXPECT_EQ(machine.found("GPU").health, Health::kOk);
  EXPECT_THAT(machine.found("GPU").text, HasSubstr("no driver of NVIDIA is installed"));
}

class MadeUpSystem : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    write_text_file(folder_ / path, text);
  }
  HostFacts facts() { return read_host_facts(folder_.path(), folder_.path()); }
  TempFolder folder_;
};

TEST_F(MadeUpSystem, OfArmNamesThePartOfItsProcessor) {
  file("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  EXPECT_EQ(facts().processor, "ARM, implementer 0x41, part 0xd40");
}

TEST_F(MadeUpSystem, IsReadFromItsFiles) {
  file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some Processor @ 2 GHz\nprocessor : 1\n");
  file("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
  file("sys/class/infiniband/mlx5_0", "");
  file("proc/driver/nvidia/version", "NVRM");
  const HostFacts host = facts();
  EXPECT_EQ(host.processor, "Some Processor @ 2 GHz");
  EXPECT_EQ(host.memory, 8 * kGiB);
  EXPECT_EQ(host.available_memory, 4 * kGiB);
  EXPECT_FALSE(host.core_quota);
  EXPECT_FALSE(host.memory_limit);
  EXPECT_TRUE(host.has_infiniband);
  EXPECT_TRUE(host.has_nvidia);
  EXPECT_FALSE(host.shared_memory_free);
  EXPECT_GT(host.cores, 0);
  EXPECT_GE(host.online_cores, host.cores);
  EXPECT_GT(host.folder_free, 0);
  EXPECT_TRUE(host.folder_writable);
}

TEST_F(MadeUpSystem, HasTheLeastLimitOfItsControlGroups) {
  file("proc/meminfo", "MemTotal: 8388608 kB\n");
  file("proc/self/cgroup", "0::/a/b\n");
  file("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  file("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  file("sys/fs/cgroup/a/memory.max", "max\n");
  file("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  EXPECT_EQ(facts().core_quota, 1.5);
  EXPECT_EQ(facts().memory_limit, kGiB);
  file("sys/fs/cgroup/a/memory.max", "536870912\n");
  EXPECT_EQ(facts().memory_limit, kGiB / 2);
}

TEST_F(MadeUpSystem, MayHaveControlGroupsOfTheFirstVersion) {
  file("proc/meminfo", "MemTotal: 8388608 kB\n");
  file("proc/self/cgroup", "4:memory:/outer\n2:cpu,cpuacct:/outer\n0::/\n");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(facts().memory_limit, 2 * kGiB);
  EXPECT_EQ(facts().core_quota, 3.0);
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(facts().memory_limit);
  EXPECT_FALSE(facts().core_quota);
}

}  // namespace
}  // namespace piton
