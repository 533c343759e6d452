#include "kernels/cuda/trial/product_trial.h"

#include <array>

#include "device/cuda/check.h"

namespace piton::cuda {
namespace {

constexpr int kRuns = 4;              // that are timed, of each algorithm
constexpr float kWorthwhile = 0.98F;  // of the time of the first one: less is noise
constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Memory of the stream, and events; empty if there is no room.
class Trial {
 public:
  Trial(const TrialSizes& sizes, cudaStream_t stream) : stream_(stream) {
    const std::int64_t left = aligned(2 * sizes.left);
    const std::int64_t right = aligned(2 * sizes.right);
    const std::int64_t y = aligned(sizes.y_bytes);
    const auto all = static_cast<std::size_t>(left + right + 2 * y + kAlignment);
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "look at the memory");
    if (free < 2 * all) return;
    if (cudaMallocAsync(&memory_, all, stream) != cudaSuccess) {
      cudaGetLastError();  // a later call shall not find it
      memory_ = nullptr;
      return;
    }
    char* next = static_cast<char*>(memory_);
    first = {next, next + left, next + left + right};
    other = first;
    other.y = next + left + right + y;
    differ = reinterpret_cast<int*>(next + left + right + 2 * y);
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "event of a trial");
    write_trial_numbers(sizes.dtype, first.left, sizes.left, stream);
    write_trial_numbers(sizes.dtype, first.right, sizes.right, stream);
    clear(first.y, y);
  }
  ~Trial() {
    if (memory_ == nullptr) return;
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaFreeAsync(memory_, stream_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool has_memory() const { return memory_ != nullptr; }

  void clear(void* data, std::int64_t bytes) const {
    check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), stream_), "memory of a trial");
  }

  // Of kRuns runs, in milliseconds.
  float time(const std::function<bool()>& run) const {
    check(cudaEventRecord(events_[0], stream_), "start of a trial");
    for (int i = 0; i < kRuns; ++i) run();
    check(cudaEventRecord(events_[1], stream_), "end of a trial");
    check(cudaEventSynchronize(events_[1]), "trial of a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "time of a trial");
    return milliseconds;
  }

  bool same(std::int64_t bytes) const {
    clear(differ, sizeof(int));
    compare_trials(first.y, other.y, bytes / 2, differ, stream_);
    int found = 0;
    check(cudaMemcpyAsync(&found, differ, sizeof found, cudaMemcpyDeviceToHost, stream_),
          "result of a trial");
    check(cudaStreamSynchronize(stream_), "trial of a product");
    return found == 0;
  }

  TrialMemory first{};
  TrialMemory other{};
  int* differ = nullptr;

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
  std::array<cudaEvent_t, 2> events_{};
};

}  // namespace

std::size_t fastest_algorithm(std::size_t count, const TrialSizes& sizes, cudaStream_t stream,
                              const std::function<bool(std::size_t, const TrialMemory&)>& run) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "look at the stream");
  if (count < 2 || status != cudaStreamCaptureStatusNone) return 0;
  const Trial trial(sizes, stream);
  if (!trial.has_memory() || !run(0, trial.first)) return 0;
  std::size_t best = 0;
  float least = kWorthwhile * trial.time([&] { return run(0, trial.first); });
  for (std::size_t i = 1; i < count; ++i) {
    trial.clear(trial.other.y, sizes.y_bytes);
    if (!run(i, trial.other) || !trial.same(sizes.y_bytes)) continue;
    const float time = trial.time([&] { return run(i, trial.other); });
    if (time >= least) continue;
    least = time;
    best = i;
  }
  return best;
}

}  // namespace piton::cuda
