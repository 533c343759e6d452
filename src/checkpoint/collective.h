// Shared by saving and loading: faults that all ranks learn of, and bytes of tensors on the host.
#pragma once

#include <cstddef>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/store.h"

namespace piton {

// The first fault of this rank in a phase; later ones are consequences.
class FirstFault {
 public:
  // Runs `work`, unless there was a fault before; keeps an Error that it throws.
  template <typename F>
  void run(F&& work) {
    if (error_) return;
    try {
      work();
    } catch (const Error& error) {
      error_ = error;
    } catch (const std::filesystem::filesystem_error& error) {
      error_ = Error(Fault::kData, "{}: {}", error.path1().string(), error.code().message());
    } catch (const std::bad_alloc&) {
      error_ = Error(Fault::kMemory, std::string("out of memory on the host"));
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<Error> error_;
};

// Collective: returns when all ranks have called it without a fault, else throws the fault of the
// lowest rank that had one: unchanged on that rank, as ReportedByAnotherRank on the others.
void agree(Communicator& ranks, const FirstFault& fault);

// A phase that this rank does (or, with `only` set, that rank alone); all ranks wait for its end.
template <typename F>
void phase(Communicator& ranks, std::optional<int> only, F&& work) {
  FirstFault fault;
  if (!only || *only == ranks.rank()) fault.run(work);
  agree(ranks, fault);
}

// What `find` returns on the first rank, which alone calls it: a text, which all ranks get.
// Collective; throws as phase() does.
template <typename F>
std::string found_by_first(Communicator& ranks, F&& find) {
  std::string found;
  phase(ranks, 0, [&] { found = find(); });
  return ranks.gather_bytes(found)[0];
}

// The bytes of a contiguous tensor in host memory: its own, or a copy.
class HostBytes {
 public:
  HostBytes(const Tensor& tensor, Device& device, Stream& stream);
  const std::byte* data() const { return data_; }

 private:
  Tensor tensor_;  // kept alive
  std::vector<std::byte> copy_;
  const std::byte* data_ = nullptr;
};

}  // namespace piton
