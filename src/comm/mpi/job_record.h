// Removes the files that killed jobs have left on this host.
//
// Open MPI names its files in shared memory after the number of the job,
// vader_segment.HOST.UID.JOB.N and osc_sm.HOST.JOB.N.M, and keeps a folder in the temporary
// directory. mpirun removes them. If it is killed too, or if a rank dies while it makes one, they
// stay. So each rank holds a shared kernel lock on one file of the job, taken before MPI starts:
//
//   MEMORY/piton-job.UID.JOB    "SESSION-FOLDER\nLAUNCHER START NAMESPACE\n"
//
// The kernel drops the lock when a process dies for any reason: a process that gets it exclusively
// knows that no rank of this job is alive on this host. Only then files are removed, and only those
// with that job's number and the same owner which no process maps. The session folder is removed if
// the launcher has ended too (process number and start time, in the same PID namespace).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace piton {

// A job that a launcher started on this host.
struct LaunchedJob {
  std::string number;             // hexadecimal, as in the names of its files; empty: unknown
  std::filesystem::path session;  // the launcher's folder, .../pid.N; may be empty
};

class JobRecord {
 public:
  // Makes the record of `job`, or joins the other ranks in it, and removes the files of dead jobs
  // of this user. Never throws: without `memory`, or without locks there, nothing is recorded.
  JobRecord(const LaunchedJob& job, std::filesystem::path memory = "/dev/shm") noexcept;
  // The last rank of the host removes the remaining files of the job, and the record.
  ~JobRecord();
  JobRecord(const JobRecord&) = delete;
  JobRecord& operator=(const JobRecord&) = delete;

 private:
  std::filesystem::path memory_;
  std::filesystem::path path_;
  int descriptor_ = -1;  // holds the lock
};

// Removes the files in `memory` of jobs of this user whose ranks are all dead. Never throws.
void sweep_dead_jobs(const std::filesystem::path& memory = "/dev/shm") noexcept;

}  // namespace piton
