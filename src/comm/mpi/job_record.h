// What the ranks of one job leave on this host when they are killed, and how the next run finds it.
//
// Open MPI names its files in shared memory after the number of the job,
// vader_segment.HOST.UID.JOB.N and osc_sm.HOST.JOB.N.M, and keeps a folder in the temporary
// directory. mpirun removes them; where it is killed too, or a rank dies while it makes one, they
// stay. So each rank holds, from before MPI starts, a shared kernel lock on one file of the job:
//
//   MEMORY/piton-job.UID.JOB    "SESSION-FOLDER\nLAUNCHER START NAMESPACE\n"
//
// The kernel drops the lock when a process dies, however it does: who gets it exclusively has proof
// that no rank of this job is left on this host. Only then, and only files with that job's number,
// of the same owner, which no process maps, are removed; and the session folder once the launcher
// (its process number and start time, in the same namespace of process numbers) is gone as well.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace piton {

// The job that a launcher started on this host.
struct LaunchedJob {
  std::string number;             // hexadecimal, as in the names of its files; empty: unknown
  std::filesystem::path session;  // the launcher's folder, .../pid.N; may be empty
};

class JobRecord {
 public:
  // Makes the record of `job`, or joins the other ranks in it, and removes what dead jobs of this
  // user have left. Never throws: without `memory`, or without locks there, nothing is recorded.
  JobRecord(const LaunchedJob& job, std::filesystem::path memory = "/dev/shm") noexcept;
  // The last rank of the host removes what the job has left, and the record.
  ~JobRecord();
  JobRecord(const JobRecord&) = delete;
  JobRecord& operator=(const JobRecord&) = delete;

 private:
  std::filesystem::path memory_;
  std::filesystem::path path_;
  int descriptor_ = -1;  // holds the lock
};

// Removes what jobs of this user have left in `memory` all of whose ranks are dead. Never throws.
void sweep_dead_jobs(const std::filesystem::path& memory = "/dev/shm") noexcept;

}  // namespace piton
