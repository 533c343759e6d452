#include "comm/mpi/transport.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/mpi/mpi_call.h"

namespace piton {

namespace {

class MpiWindow final : public SharedWindow {
 public:
  MpiWindow(MPI_Comm comm, std::int64_t segment_bytes) : SharedWindow(segment_bytes) {
    const std::int64_t page = page_bytes();
    MPI_Info info = MPI_INFO_NULL;
    check_mpi(MPI_Info_create(&info), "MPI_Info_create");
    // Separate segments, so that the pages of each are near the member that touches them first.
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    std::byte* mine = nullptr;
    const int code =
        MPI_Win_allocate_shared(bytes_ + page, 1, info, comm, static_cast<void*>(&mine), &window_);
    MPI_Info_free(&info);
    if (code != MPI_SUCCESS) {
      throw Error(
          Fault::kMemory,
          "comm: no shared memory of {} bytes for each rank of this host; make /dev/shm larger "
          "(in a container: --shm-size), or start fewer ranks on a host",
          bytes_);
    }
    int size = 0;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    for (int member = 0; member < size; ++member) {
      MPI_Aint bytes = 0;
      int unit = 0;
      std::byte* base = nullptr;
      check_mpi(MPI_Win_shared_query(window_, member, &bytes, &unit, static_cast<void*>(&base)),
                "MPI_Win_shared_query");
      // MPI may put its data before a segment. Mappings start at a page boundary in every
      // process, so rounding up gives the same bytes in each.
      const auto address = reinterpret_cast<std::uintptr_t>(base);
      const auto aligned = (address + page - 1) / page * page;
      PITON_ASSERT(static_cast<std::int64_t>(aligned - address) + bytes_ <= bytes,
                   "a shared segment of {} bytes, wanted {}", bytes, bytes_);
      segments_.push_back(reinterpret_cast<std::byte*>(aligned));
    }
  }

  void free() override {
    if (window_ != MPI_WIN_NULL) check_mpi(MPI_Win_free(&window_), "MPI_Win_free");
    segments_.clear();
  }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
};

// A message, in as many parts as its bytes need.
class MpiTransfer final : public Transfer {
 public:
  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }

  bool done() override {
    int all = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return all != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
};

class MpiChannel final : public RankChannel {
 public:
  explicit MpiChannel(MPI_Comm comm) : comm_(comm) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  }

  int rank() const override { return rank_; }

  std::unique_ptr<Transfer> send(const std::byte* data, std::int64_t bytes, int member,
                                 int tag) override {
    auto transfer = std::make_unique<MpiTransfer>();
    for (std::int64_t at = 0; at == 0 || at < bytes; at += kMessageBytes) {
      check_mpi(MPI_Isend(data + at, static_cast<int>(std::min(kMessageBytes, bytes - at)),
                          MPI_BYTE, member, tag, comm_, &transfer->add()),
                "MPI_Isend");
    }
    return transfer;
  }

  std::unique_ptr<Transfer> receive(std::byte* data, std::int64_t bytes, int member,
                                    int tag) override {
    auto transfer = std::make_unique<MpiTransfer>();
    for (std::int64_t at = 0; at == 0 || at < bytes; at += kMessageBytes) {
      check_mpi(MPI_Irecv(data + at, static_cast<int>(std::min(kMessageBytes, bytes - at)),
                          MPI_BYTE, member, tag, comm_, &transfer->add()),
                "MPI_Irecv");
    }
    return transfer;
  }

  int largest_tag() const override { return largest_mpi_tag(comm_); }

  void barrier() override { check_mpi(MPI_Barrier(comm_), "MPI_Barrier"); }

  std::unique_ptr<SharedWindow> share(std::int64_t segment_bytes) override {
    return std::make_unique<MpiWindow>(comm_, segment_bytes);
  }

 private:
  MPI_Comm comm_;
  int rank_ = 0;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const LaunchedJob& job) : record_(std::make_unique<JobRecord>(job)) {}

  const char* name() const override { return "MPI"; }

  void join() override {
    int given = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int size = 0;
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    MPI_Comm machine = MPI_COMM_NULL;
    check_mpi(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
        "MPI_Comm_split_type");
    int lowest = rank_;
    check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, machine), "MPI_Bcast");
    machine_of_.resize(static_cast<std::size_t>(size));
    check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, machine_of_.data(), 1, MPI_INT, MPI_COMM_WORLD),
              "MPI_Allgather");
  }

  int rank() const override { return rank_; }
  const std::vector<int>& machine_of() const override { return machine_of_; }

  std::shared_ptr<RankChannel> make_channel(const std::vector<int>& world_ranks) override {
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check_mpi(
        MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
        "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return std::make_shared<MpiChannel>(comm);
  }

  // A barrier with a timeout: no rank frees what another still uses, and none waits forever for a
  // lost rank.
  void final_barrier(const std::function<void()>& check) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
    for (;;) {
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
      check();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  void leave() override { check_mpi(MPI_Finalize(), "MPI_Finalize"); }

  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

  void remove_files() override { record_.reset(); }

 private:
  std::unique_ptr<JobRecord> record_;
  int rank_ = 0;
  std::vector<int> machine_of_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const LaunchedJob& job) {
  return std::make_unique<MpiTransport>(job);
}

}  // namespace piton
