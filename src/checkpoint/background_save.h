// A save whose files are written while training continues. Training waits for one copy of what this
// rank writes, in host memory; a thread then does what save_checkpoint() does after that, with the
// same bytes, files and hashes.
//
// Ranks stay together because the thread of each rank does the same collectives of the save group,
// which no one else uses until the save is over: they wait for the threads of the other ranks only,
// never for a step. So a save ends even if training has failed on some rank, unless a
// rank is lost.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/threads.h"
#include "checkpoint/save_files.h"
#include "checkpoint/store.h"

namespace piton {

// Host memory for the copy (page-locked for a GPU); kept from save to save.
class SaveCopy {
 public:
  // `device` must outlive it.
  explicit SaveCopy(Device& device) : device_(device) {}
  std::int64_t bytes() const { return bytes_.defined() ? bytes_.bytes() : 0; }

  // Collective. Takes the memory for the copies of this model, and touches it, so that the first
  // save takes no longer than the others. Returns false, on all ranks, if a host has not enough.
  bool prepare(const StoredModel& model, const StoreContext& context, const SaveOptions& options,
               ThreadPool& threads);

  // Copies the jobs of this rank, by all threads. Collective over `ranks`. Returns false, on all
  // ranks, if a host has no memory for the copies of its ranks.
  bool take(const StoredModel& model, const StoreContext& context, const SaveLayout& layout,
            ThreadPool& threads, Communicator& ranks);
  // The copied bytes of a job; they follow one another in the order of the jobs.
  void give(const SaveLayout& layout, JobWriter& writer, FirstFault& fault) const;

 private:
  bool make_room(const StoreContext& context, const SaveLayout& layout, Communicator& ranks);
  void copy(const Tensor& to, const Tensor& from, Device& device, Stream& stream,
            ThreadPool& threads);

  Device& device_;
  Tensor bytes_;  // u8
};

class BackgroundSave {
 public:
  // Collective. Copies the state and starts to write. `copy` must stay as it is until the save is
  // over. `threads`: the compute threads, which copy; the new thread runs wherever it may. Returns
  // null on all ranks if a host has no memory for the copy; then nothing has been done. Arguments
  // and errors as with save_checkpoint().
  static std::unique_ptr<BackgroundSave> start(const StoredModel& model,
                                               const StoreContext& context, SaveOrder order,
                                               SaveCopy& copy, ThreadPool& threads);
  // Waits for the end; an error is dropped.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // True when the thread of this rank is done; those of the others may still be at work.
  bool over() const { return over_; }
  // Waits for the end. Returns the checkpoint's folder, or throws the error of the save: the same
  // one on all ranks, as save_checkpoint() does.
  std::filesystem::path wait();
  double seconds() const { return seconds_; }  // from start() to the end; after wait()

 private:
  BackgroundSave(SaveOrder order, SaveLayout layout)
      : order_(std::move(order)), layout_(std::move(layout)) {}
  void run(Communicator& ranks, const SaveCopy& copy);

  SaveOrder order_;
  SaveLayout layout_;
  std::chrono::steady_clock::time_point begin_;
  std::filesystem::path folder_;
  std::exception_ptr error_;
  double seconds_ = 0;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace piton
