// In place of NCCL: collectives between processes of one host whose "GPU memory" is the emulator's.
//
// A group is a file in shared memory, with a slot for each rank. A collective goes through the
// slots in rounds, and blocks until it has finished: unlike NCCL's, it does not wait for a stream,
// since the work of the emulator's streams has been done before. Sums run in the order of ranks in
// fp32 (fp64 for fp64), and are rounded once. A send copies to a mailbox; a receive is deferred
// until its event is waited for, as others may have to send first. Those between ncclGroupStart and
// ncclGroupEnd run together and block, like collectives. Only what src/comm/nccl/library.h names is
// here.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tensor/rounded.h"

namespace {

constexpr int kMostRanks = 8;
constexpr std::size_t kSlotBytes = 1 << 20;

enum Result { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum Type { kU8 = 1, kI32 = 2, kI64 = 4, kF16 = 6, kF32 = 7, kF64 = 8, kBF16 = 9 };
enum class Kind : int { kReduce, kGather, kScatter, kBroadcast };

// What all ranks of a collective have to agree on.
struct Asked {
  Kind kind;
  int type;
  int op;
  int root;
  std::uint64_t count;
  bool operator==(const Asked&) const = default;
};

struct Slot {
  std::atomic<std::uint64_t> phase;  // steps that this rank has finished
  Asked asked;
  unsigned char data[kSlotBytes];
};

// Of the messages from a rank to another one: the bytes from `taken` to `sent` are in it. Memory is
// taken when it is first used.
constexpr std::uint64_t kMailBytes = 4 << 20;
struct Mail {
  std::atomic<std::uint64_t> sent;
  std::atomic<std::uint64_t> taken;
  unsigned char data[kMailBytes];
};

struct Board {
  std::atomic<int> joined;
  Mail mails[kMostRanks][kMostRanks];  // from, to
  Slot slots[kMostRanks];
};

std::size_t size_of(int type) {
  switch (type) {
    case kU8:
      return 1;
    case kF16:
    case kBF16:
      return 2;
    case kI32:
    case kF32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

struct ncclComm {
  Board* board = nullptr;
  int rank = 0;
  int size = 1;
  std::uint64_t phase = 0;
  std::atomic<bool> aborted{false};
};

namespace {

// This rank has finished a step; true when all have, false if the group was aborted.
bool meet(ncclComm& comm) {
  comm.board->slots[comm.rank].phase = ++comm.phase;
  for (int rank = 0; rank < comm.size; ++rank) {
    while (comm.board->slots[rank].phase < comm.phase) {
      if (comm.aborted) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  return true;
}

template <typename T, typename Sum>
void combine(const std::vector<const unsigned char*>& parts, std::size_t elements, bool largest,
             unsigned char* out) {
  for (std::size_t i = 0; i < elements; ++i) {
    Sum all{};
    for (std::size_t part = 0; part < parts.size(); ++part) {
      T one;
      std::memcpy(&one, parts[part] + i * sizeof(T), sizeof(T));
      Sum value;
      if constexpr (sizeof(T) == 2) {
        value = piton::to_float(one);
      } else {
        value = one;
      }
      all = part == 0 ? value : largest ? std::max(all, value) : all + value;
    }
    T result;
    if constexpr (sizeof(T) == 2) {
      result = piton::rounded<T>(all);
    } else {
      result = static_cast<T>(all);
    }
    std::memcpy(out + i * sizeof(T), &result, sizeof(T));
  }
}

void combine(int type, const std::vector<const unsigned char*>& parts, std::size_t elements,
             bool largest, unsigned char* out) {
  switch (type) {
    case kF64:
      return combine<double, double>(parts, elements, largest, out);
    case kF32:
      return combine<float, float>(parts, elements, largest, out);
    case kI64:
      return combine<std::int64_t, std::int64_t>(parts, elements, largest, out);
    case kBF16:
      return combine<piton::BFloat16, float>(parts, elements, largest, out);
    default:
      return combine<piton::Float16, float>(parts, elements, largest, out);
  }
}

void from_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
}
void to_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
}

// Elements [begin, begin + n) of the whole (of each part, for gather and scatter) in a round.
// `asked.count` is that of the whole, or of a part.
struct Round {
  ncclComm& comm;
  const Asked& asked;
  const unsigned char* source;
  unsigned char* target;
  cudaStream_t stream;
  std::size_t begin;
  std::size_t n;

  void fill(unsigned char* slot) const {
    const std::size_t one = size_of(asked.type);
    if (asked.kind == Kind::kBroadcast && comm.rank != asked.root) return;
    const int parts = asked.kind == Kind::kScatter ? comm.size : 1;
    for (int part = 0; part < parts; ++part) {
      const std::size_t first = static_cast<std::size_t>(part) * asked.count + begin;
      from_device(slot + static_cast<std::size_t>(part) * n * one, source + first * one, n * one,
                  stream);
    }
  }

  void take() const {
    const std::size_t one = size_of(asked.type);
    const auto slot = [&](int rank) { return comm.board->slots[rank].data; };
    if (asked.kind == Kind::kBroadcast) {
      return to_device(target + begin * one, slot(asked.root), n * one, stream);
    }
    if (asked.kind == Kind::kGather) {
      for (int rank = 0; rank < comm.size; ++rank) {
        const std::size_t first = static_cast<std::size_t>(rank) * asked.count + begin;
        to_device(target + first * one, slot(rank), n * one, stream);
      }
      return;
    }
    const std::size_t mine =
        asked.kind == Kind::kScatter ? static_cast<std::size_t>(comm.rank) * n * one : 0;
    std::vector<const unsigned char*> parts;
    for (int rank = 0; rank < comm.size; ++rank) parts.push_back(slot(rank) + mine);
    std::vector<unsigned char> result(n * one);
    combine(asked.type, parts, n, asked.op == 2, result.data());
    to_device(target + begin * one, result.data(), n * one, stream);
  }
};

Result run(ncclComm* comm, const Asked& asked, const void* source, void* target,
           cudaStream_t stream) {
  Slot& own = comm->board->slots[comm->rank];
  const auto parts = static_cast<std::size_t>(asked.kind == Kind::kScatter ? comm->size : 1);
  const std::size_t most = kSlotBytes / size_of(asked.type) / parts;
  for (std::size_t begin = 0; begin < asked.count; begin += most) {
    const Round round{*comm,
                      asked,
                      static_cast<const unsigned char*>(source),
                      static_cast<unsigned char*>(target),
                      stream,
                      begin,
                      std::min<std::size_t>(most, asked.count - begin)};
    own.asked = asked;
    round.fill(own.data);
    if (!meet(*comm)) return kSystemError;
    for (int rank = 0; rank < comm->size; ++rank) {
      if (!(comm->board->slots[rank].asked == asked)) {
        std::fprintf(stderr, "fake NCCL: ranks %d and %d call different collectives\n", rank,
                     comm->rank);
        return kInvalidUsage;
      }
    }
    round.take();
    if (!meet(*comm)) return kSystemError;
  }
  return kSuccess;
}

// Passes as many bytes as there is room for (`write`) or as there are; returns their number.
std::uint64_t pass_some(Mail& mail, bool write, unsigned char* bytes, std::uint64_t count) {
  const std::uint64_t sent = mail.sent;
  const std::uint64_t taken = mail.taken;
  const std::uint64_t at = (write ? sent : taken) % kMailBytes;
  const std::uint64_t there = write ? kMailBytes - (sent - taken) : sent - taken;
  const std::uint64_t piece = std::min({there, kMailBytes - at, count});
  if (write) {
    std::memcpy(mail.data + at, bytes, piece);
    mail.sent += piece;
  } else {
    std::memcpy(bytes, mail.data + at, piece);
    mail.taken += piece;
  }
  return piece;
}

// A message through a mailbox.
struct Passage {
  ncclComm* comm;
  bool write;
  int peer;
  void* target;  // of a receive
  std::vector<unsigned char> bytes;
  cudaStream_t stream;
  std::uint64_t done = 0;

  bool over() const { return done == bytes.size(); }
  bool pass() {  // true if something was passed
    const int from = write ? comm->rank : peer;
    const int to = write ? peer : comm->rank;
    const std::uint64_t piece =
        pass_some(comm->board->mails[from][to], write, bytes.data() + done, bytes.size() - done);
    done += piece;
    if (over() && !write) to_device(target, bytes.data(), bytes.size(), stream);
    return piece > 0;
  }
};

// All of them at the same time; of the same two ranks and direction one after another.
Result pass_all(std::vector<Passage>& all) {
  for (;;) {
    bool over = true, moved = false;
    std::map<std::tuple<ncclComm*, bool, int>, bool> busy;
    for (Passage& one : all) {
      if (one.over()) continue;
      over = false;
      bool& before = busy[{one.comm, one.write, one.peer}];
      if (!before) moved = one.pass() || moved;
      before = true;
      if (one.comm->aborted) return kSystemError;
    }
    if (over) return kSuccess;
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void receive(void* data) {
  const std::unique_ptr<Passage> one(static_cast<Passage*>(data));
  std::vector<Passage> alone{std::move(*one)};
  pass_all(alone);
}

// What was called since ncclGroupStart.
thread_local bool is_grouped = false;
thread_local std::vector<Passage> grouped;

}  // namespace

struct UniqueId {
  char name[128];
};

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  *version = 22805;
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == kInvalidUsage ? "invalid usage" : "an error of the fake NCCL";
}

int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  const int length = std::snprintf(id->name, sizeof(id->name), "/piton_fake_nccl_%d_%d",
                                   static_cast<int>(::getpid()), made++);
  const int file = ::shm_open(id->name, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (length < 0 || file < 0 || ::ftruncate(file, sizeof(Board)) != 0) return kSystemError;
  ::close(file);
  return kSuccess;
}

int ncclCommInitRank(ncclComm** comm, int ranks, UniqueId id, int rank) {
  if (ranks > kMostRanks || rank >= ranks) return kInvalidArgument;
  const int file = ::shm_open(id.name, O_RDWR, 0600);
  if (file < 0) return kSystemError;
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return kSystemError;
  *comm = new ncclComm;
  (*comm)->board = static_cast<Board*>(memory);
  (*comm)->rank = rank;
  (*comm)->size = ranks;
  ++(*comm)->board->joined;
  while ((*comm)->board->joined < ranks) std::this_thread::yield();
  if (rank == 0) ::shm_unlink(id.name);
  return kSuccess;
}

int ncclCommDestroy(ncclComm* comm) {
  ::munmap(comm->board, sizeof(Board));
  delete comm;
  return kSuccess;
}
// Another thread may be in a collective of it, so it is not freed.
int ncclCommAbort(ncclComm* comm) {
  comm->aborted = true;
  return kSuccess;
}
int ncclCommGetAsyncError(ncclComm*, int* result) {
  *result = kSuccess;
  return kSuccess;
}

int ncclAllReduce(const void* source, void* target, std::size_t count, int type, int op,
                  ncclComm* comm, cudaStream_t stream) {
  return run(comm, {Kind::kReduce, type, op, 0, count}, source, target, stream);
}
int ncclAllGather(const void* source, void* target, std::size_t count, int type, ncclComm* comm,
                  cudaStream_t stream) {
  return run(comm, {Kind::kGather, type, 0, 0, count}, source, target, stream);
}
int ncclReduceScatter(const void* source, void* target, std::size_t count, int type, int op,
                      ncclComm* comm, cudaStream_t stream) {
  return run(comm, {Kind::kScatter, type, op, 0, count}, source, target, stream);
}
int ncclBroadcast(const void* source, void* target, std::size_t count, int type, int root,
                  ncclComm* comm, cudaStream_t stream) {
  return run(comm, {Kind::kBroadcast, type, 0, root, count}, source, target, stream);
}
int ncclSend(const void* source, std::size_t count, int type, int peer, ncclComm* comm,
             cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size || peer == comm->rank) return kInvalidArgument;
  Passage one{comm, true, peer, nullptr, {}, stream};
  one.bytes.resize(count * size_of(type));
  from_device(one.bytes.data(), source, one.bytes.size(), stream);
  if (is_grouped) {
    grouped.push_back(std::move(one));
    return kSuccess;
  }
  std::vector<Passage> alone{std::move(one)};
  return pass_all(alone);
}
int ncclRecv(void* target, std::size_t count, int type, int peer, ncclComm* comm,
             cudaStream_t stream) {
  if (peer < 0 || peer >= comm->size || peer == comm->rank) return kInvalidArgument;
  Passage one{comm, false, peer, target, {}, stream};
  one.bytes.resize(count * size_of(type));
  if (is_grouped) {
    grouped.push_back(std::move(one));
  } else {
    emulator_defer(stream, receive, new Passage(std::move(one)));
  }
  return kSuccess;
}
int ncclGroupStart() {
  if (is_grouped) return kInvalidUsage;
  is_grouped = true;
  return kSuccess;
}
int ncclGroupEnd() {
  if (!is_grouped) return kInvalidUsage;
  is_grouped = false;
  std::vector<Passage> all = std::move(grouped);
  grouped.clear();
  return pass_all(all);
}

}  // extern "C"
#pragma GCC visibility pop
