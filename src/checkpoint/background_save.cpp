#include "checkpoint/background_save.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/files/system_files.h"
#include "base/seconds.h"
#include "base/signals_blocked.h"
#include "comm/gathered_values.h"

namespace piton {
namespace {

constexpr std::int64_t kCopyPart = std::int64_t{2} << 20;  // bytes that one thread copies at once
constexpr std::int64_t kAlignment = 64;  // of each job, so that it may be read as its dtype

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Memory that is not of an arena: it lives as long as the run.
class OwnStorage final : public Storage {
 public:
  OwnStorage(Memory& memory, std::int64_t bytes)
      : Storage(memory.allocate(bytes), bytes, memory.place()), memory_(memory) {}
  ~OwnStorage() override { memory_.release(data(), bytes()); }

 private:
  Memory& memory_;
};

}  // namespace

bool SaveCopy::make_room(const StoreContext& context, const SaveLayout& layout,
                         Communicator& ranks) {
  std::int64_t bytes = 0;
  for (const WriteJob& job : layout.writes.jobs) bytes += aligned(layout.bytes(job));
  // All ranks of a host write about the same number of bytes. The system would promise more memory
  // than there is, and end the run when it is used.
  FirstFault fault;
  bool fits = bytes <= this->bytes();
  if (!fits) {
    bytes_ = {};
    fits = bytes * context.mesh.world().host_size() < host_memory().left;
    if (fits) {
      fault.run([&] {
        bytes_ = Tensor(std::make_shared<OwnStorage>(device_.host_memory(), bytes), 0, DType::kU8,
                        Shape{bytes});
      });
      fits = !fault.error();
    }
  }
  const bool all = true_on_all(ranks, fits);
  if (!all) bytes_ = {};
  return all;
}

bool SaveCopy::prepare(const StoredModel& model, const StoreContext& context,
                       const SaveOptions& options, ThreadPool& threads) {
  Communicator& ranks = save_group(context.mesh);
  if (!make_room(context, lay_out(model, ranks, options.file_bytes), ranks)) return false;
  threads.run((bytes() + kCopyPart - 1) / kCopyPart, [&](std::int64_t part) {
    const std::int64_t begin = part * kCopyPart;
    std::memset(bytes_.raw() + begin, 0,
                static_cast<std::size_t>(std::min(kCopyPart, bytes() - begin)));
  });
  return true;
}

void SaveCopy::copy(const Tensor& to, const Tensor& from, Device& device, Stream& stream,
                    ThreadPool& threads) {
  if (&device != &device_) return device.download(from, to.raw(), stream);
  if (from.place().kind != DeviceKind::kHost) return device.copy(to, from, stream);
  stream.synchronize();
  const std::int64_t bytes = to.bytes();
  threads.run((bytes + kCopyPart - 1) / kCopyPart, [&](std::int64_t part) {
    const std::int64_t begin = part * kCopyPart;
    std::memcpy(to.raw() + begin, from.raw() + begin,
                static_cast<std::size_t>(std::min(kCopyPart, bytes - begin)));
  });
}

bool SaveCopy::take(const StoredModel& model, const StoreContext& context, const SaveLayout& layout,
                    ThreadPool& threads, Communicator& ranks) {
  if (!make_room(context, layout, ranks)) return false;
  FirstFault fault;
  std::int64_t at = 0;
  for_each_source(model, layout, context, fault,
                  [&](const Tensor& source, std::span<const WriteJob> jobs, Device& device) {
                    for (const WriteJob& job : jobs) {
                      const std::int64_t elements = job.end - job.begin;
                      const Tensor to(bytes_.storage(), at, source.dtype(), Shape{elements});
                      copy(to, source.slice(0, layout.place_in_source(job), elements), device,
                           context.stream, threads);
                      at += aligned(layout.bytes(job));
                    }
                  });
  fault.run([&] { context.stream.synchronize(); });
  agree(ranks, fault);
  return true;
}

void SaveCopy::give(const SaveLayout& layout, JobWriter& writer, FirstFault& fault) const {
  fault.run([&] {
    std::int64_t at = 0;
    for (const WriteJob& job : layout.writes.jobs) {
      writer.write(job, bytes_.raw() + at);
      at += aligned(layout.bytes(job));
    }
  });
}

std::unique_ptr<BackgroundSave> BackgroundSave::start(const StoredModel& model,
                                                      const StoreContext& context, SaveOrder order,
                                                      SaveCopy& copy, ThreadPool& threads) {
  PITON_ASSERT(order.options.keep >= 0 && order.options.file_bytes > 0);
  const auto begin = std::chrono::steady_clock::now();
  Communicator& ranks = save_group(context.mesh);
  SaveLayout layout = lay_out(model, ranks, order.options.file_bytes);
  if (!copy.take(model, context, layout, threads, ranks)) return nullptr;
  // The thread must not keep handles of tensors: it would free them at its own time.
  layout.parameters.clear();
  layout.state.clear();
  order.state = with_progress(std::move(order.state), model);
  std::unique_ptr<BackgroundSave> save(new BackgroundSave(std::move(order), std::move(layout)));
  save->begin_ = begin;
  const SignalsBlocked for_the_thread;
  try {
    save->thread_ = std::thread([self = save.get(), &ranks, &copy, &threads] {
      threads.unpin_this_thread();
      self->run(ranks, copy);
    });
  } catch (const std::system_error& error) {
    throw Error(Fault::kMemory,
                "checkpoint: the system refused a thread for the save: {}; raise the limit on "
                "processes, or give --no-async-save",
                error.code().message());
  }
  pthread_setname_np(save->thread_.native_handle(), "piton-save");
  return save;
}

void BackgroundSave::run(Communicator& ranks, const SaveCopy& copy) {
  try {
    folder_ = write_save(order_, layout_, ranks, [&](JobWriter& writer, FirstFault& fault) {
      copy.give(layout_, writer, fault);
    });
  } catch (...) {
    error_ = std::current_exception();
  }
  seconds_ = seconds_since(begin_);
  over_ = true;
}

BackgroundSave::~BackgroundSave() {
  if (thread_.joinable()) thread_.join();
}

std::filesystem::path BackgroundSave::wait() {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  return folder_;
}

}  // namespace piton
