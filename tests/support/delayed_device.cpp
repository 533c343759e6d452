// Two mappings of one size: one whose addresses fault, and a shadow that holds the bytes.
#include "support/delayed_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/host_device.h"
#include "device/settable_fence.h"

namespace piton {
namespace {

// SplitMix64 (Steele et al. 2014): delays need no more than that.
std::uint64_t next_random(std::uint64_t* state) {
  std::uint64_t z = (*state += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// Runs its queue on a separate thread, each piece after a delay.
class DelayedStream final : public Stream {
 public:
  DelayedStream(std::uint64_t seed, int max_delay_us)
      : random_(seed), max_delay_us_(max_delay_us), thread_([this] { serve(); }) {}

  ~DelayedStream() override {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Event record() override {
    auto fence = std::make_shared<SettableFence>();
    push({[fence] { fence->finish(); }, /*late=*/false});
    return Event(std::move(fence));
  }

  void enqueue(std::function<void()> work) override { push({std::move(work), /*late=*/true}); }

 private:
  struct Piece {
    std::function<void()> work;
    bool late = false;
  };

  void follow(const Event& event) override {
    push({[event] { event.wait(); }, /*late=*/false});
  }

  void push(Piece piece) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(std::move(piece));
    }
    changed_.notify_all();
  }

  void serve() {
    while (true) {
      Piece piece;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        piece = std::move(queue_.front());
        queue_.pop_front();
      }
      if (piece.late && max_delay_us_ > 0) {
        const std::uint64_t delay =
            next_random(&random_) % static_cast<std::uint64_t>(max_delay_us_ + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
      }
      piece.work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  bool closing_ = false;
  std::uint64_t random_;
  int max_delay_us_;
  std::thread thread_;  // last: it uses all of the above
};

std::byte* map(std::int64_t bytes, int protection) {
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(Fault::kMemory, "delayed device: cannot reserve {} bytes of addresses: {}", bytes,
                system_message(errno));
  }
  return static_cast<std::byte*>(data);
}

constexpr std::int64_t kPage = 4096;

std::int64_t whole_pages(std::int64_t bytes) {
  return std::max<std::int64_t>(bytes + kPage - 1, kPage) / kPage * kPage;
}

}  // namespace

struct DelayedDevice::State {
  std::int64_t bytes;
  std::byte* addresses;  // unreadable
  std::byte* shadow;     // the bytes at the same offsets
  std::uint64_t seed;
  int max_delay_us;
  std::atomic<std::uint64_t> streams = 0;
  std::mutex mutex;
  std::map<std::int64_t, std::int64_t> used;  // offset -> bytes
  HostDevice host;
};

DelayedDevice::DelayedDevice(std::uint64_t seed, int max_delay_us, std::int64_t address_space_bytes)
    : state_(std::make_unique<State>()) {
  state_->bytes = whole_pages(address_space_bytes);
  state_->addresses = map(state_->bytes, PROT_NONE);
  state_->shadow = map(state_->bytes, PROT_READ | PROT_WRITE);
  state_->seed = seed;
  state_->max_delay_us = max_delay_us;
}

DelayedDevice::~DelayedDevice() {
  munmap(state_->addresses, static_cast<std::size_t>(state_->bytes));
  munmap(state_->shadow, static_cast<std::size_t>(state_->bytes));
}

std::byte* DelayedDevice::allocate(std::int64_t bytes) {
  const std::int64_t size = whole_pages(bytes);
  const std::scoped_lock lock(state_->mutex);
  std::int64_t offset = 0;  // first gap that is large enough
  for (const auto& [used_offset, used_bytes] : state_->used) {
    if (used_offset - offset >= size) break;
    offset = used_offset + used_bytes;
  }
  if (offset + size > state_->bytes) {
    throw Error(Fault::kMemory, "delayed device: out of memory: {} bytes asked of {}", bytes,
                state_->bytes);
  }
  state_->used[offset] = size;
  // All bits set is a NaN in every floating type and -1 in every integer type.
  std::memset(state_->shadow + offset, 0xFF, static_cast<std::size_t>(size));
  return state_->addresses + offset;
}

void DelayedDevice::release(std::byte* data, std::int64_t) {
  const std::scoped_lock lock(state_->mutex);
  const auto erased = state_->used.erase(data - state_->addresses);
  PITON_ASSERT(erased == 1, "delayed device: release of memory that was not allocated");
}

std::unique_ptr<Stream> DelayedDevice::make_stream() {
  return std::make_unique<DelayedStream>(state_->seed + state_->streams++ * 0x9E3779B9U,
                                         state_->max_delay_us);
}

std::byte* DelayedDevice::host_address(const Tensor& tensor) const {
  // Compared as numbers: the two pointers may belong to different mappings.
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw());
  const auto begin = reinterpret_cast<std::uintptr_t>(state_->addresses);
  PITON_ASSERT(address >= begin && address < begin + static_cast<std::uintptr_t>(state_->bytes),
               "delayed device: {} is not in its memory", to_string(tensor));
  return state_->shadow + (address - begin);
}

void DelayedDevice::upload(const void* host, const Tensor& dst, Stream& stream) {
  PITON_ASSERT(dst.contiguous(), "upload to {}", to_string(dst));
  const auto* bytes = static_cast<const std::byte*>(host);
  std::vector<std::byte> copy(bytes, bytes + dst.bytes());
  stream.enqueue([copy = std::move(copy), to = host_address(dst)] {
    if (!copy.empty()) std::memcpy(to, copy.data(), copy.size());
  });
}

void DelayedDevice::download(const Tensor& src, void* host, Stream& stream) {
  PITON_ASSERT(src.contiguous(), "download of {}", to_string(src));
  stream.enqueue([from = host_address(src), host, bytes = static_cast<std::size_t>(src.bytes())] {
    if (bytes > 0) std::memcpy(host, from, bytes);
  });
  stream.synchronize();
}

void DelayedDevice::copy(const Tensor& dst, const Tensor& src, Stream& stream) {
  check_copy(dst, src);
  const auto address = [this](const Tensor& tensor) {
    return tensor.place().kind == DeviceKind::kHost ? tensor.raw() : host_address(tensor);
  };
  PITON_ASSERT(dst.place() == place() || src.place() == place(),
               "delayed device: neither {} nor {} is in its memory", to_string(dst),
               to_string(src));
  stream.enqueue(
      [to = address(dst), from = address(src), bytes = static_cast<std::size_t>(dst.bytes())] {
        if (bytes > 0) std::memmove(to, from, bytes);
      });
}

Memory& DelayedDevice::host_memory() { return state_->host; }

void DelayedDevice::zero(const Tensor& dst, Stream& stream) {
  PITON_ASSERT(dst.contiguous(), "zero of {}", to_string(dst));
  stream.enqueue([to = host_address(dst), bytes = static_cast<std::size_t>(dst.bytes())] {
    std::memset(to, 0, bytes);
  });
}

}  // namespace piton
