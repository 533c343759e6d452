#include "cli/plan/speeds.h"

#include <algorithm>

#include "base/error.h"
#include "base/options/option_range.h"
#include "base/threads.h"

namespace piton::cli {
namespace {

// `value` x `unit`; 0 where it is not given.
double checked_rate(std::string_view flag, const std::optional<double>& value, double unit) {
  if (!value) return 0;
  if (!(*value > 0 && *value <= 1e9)) {
    throw Error(Fault::kUsage, "{}: got {}, wanted a number above 0 and at most 1e9", flag, *value);
  }
  return *value * unit;
}

}  // namespace

PlannedSpeeds SpeedOptions::check() const {
  if (device_tflops.has_value() != device_bandwidth.has_value()) {
    throw Error(Fault::kUsage,
                "--device-tflops, --device-bandwidth: got one of them, wanted both (what the "
                "device reaches), or none to measure on this machine");
  }
  check_range("--ranks-per-host", ranks_per_host, 1, 1 << 20);
  if (!(link_latency >= 0 && link_latency <= 1e6)) {
    throw Error(Fault::kUsage, "--link-latency: got {}, wanted 0 to 1e6 microseconds",
                link_latency);
  }
  PlannedSpeeds speeds{
      .link_bytes_per_second = checked_rate("--link-bandwidth", link_bandwidth, 1e9),
      .latency_seconds = link_latency * 1e-6,
      .ranks_of_host = ranks_per_host};
  speeds.host_link_bytes_per_second =
      host_link_bandwidth ? checked_rate("--host-link-bandwidth", host_link_bandwidth, 1e9)
                          : speeds.link_bytes_per_second;
  if (device_tflops) {
    speeds.device =
        DeviceRates{.flops_per_second = checked_rate("--device-tflops", device_tflops, 1e12),
                    .bytes_per_second = checked_rate("--device-bandwidth", device_bandwidth, 1e9)};
  }
  return speeds;
}

int threads_of_rank(const PlannedSpeeds& speeds, int ranks) {
  const int sharing = std::min(ranks, speeds.ranks_of_host);
  return std::max(static_cast<int>(available_cores().size()) / sharing, 1);
}

std::string time_lines(const RunPlan& plan, const StepTime& time, const PlannedSpeeds& speeds,
                       int threads) {
  const double tokens = static_cast<double>(plan.global_batch * plan.sequence);
  const auto share = [&](double seconds) { return 100 * seconds / time.seconds; };
  std::string text = fmt::format(
      "a step takes {:.4g} s ({:.4g} tokens/s): {:.1f} % work, {:.1f} % transfers that nothing "
      "hides, {:.1f} % idle in the pipeline\n",
      time.seconds, tokens / time.seconds, share(time.work), share(time.waited), share(time.idle));
  text += speeds.device
              ? std::string("  kernel calls: by the given rates")
              : fmt::format("  kernel calls: each measured alone on this machine, by {} thread{}",
                            threads, threads == 1 ? "" : "s");
  text += speeds.link_bytes_per_second > 0
              ? fmt::format("; links: {:.4g} GB/s within a host of {}, {:.4g} between hosts\n",
                            speeds.link_bytes_per_second / 1e9, speeds.ranks_of_host,
                            speeds.host_link_bytes_per_second / 1e9)
              : std::string("; transfers take no time without --link-bandwidth\n");
  return text;
}

}  // namespace piton::cli
