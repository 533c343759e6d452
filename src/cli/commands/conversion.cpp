#include "cli/commands/conversion.h"

#include <algorithm>

namespace piton::cli {
namespace {

struct Stopped {};

// Shows the progress, and throws Stopped where a signal has come: what is unfinished is removed.
class UntilStopped final : public Progress {
 public:
  UntilStopped(Progress& shown, const StopSignals& signals) : shown_(shown), signals_(signals) {}

  void update(const ProgressState& state) override {
    if (signals_.first() != 0) throw Stopped();
    shown_.update(state);
  }
  void finish() override { shown_.finish(); }

 private:
  Progress& shown_;
  const StopSignals& signals_;
};

}  // namespace

std::optional<ConvertReport> until_stopped(Invocation& invocation, StopSignals& signals,
                                           const std::function<ConvertReport(Progress&)>& work) {
  signals.promise("stopping; what is unfinished is removed");
  UntilStopped progress(invocation.progress, signals);
  try {
    return work(progress);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

std::string lines_of(const ConvertReport& report, const std::string& target) {
  const double gigabytes = static_cast<double>(report.bytes) * 1e-9;
  std::string text = fmt::format(
      "{}: {} from {}: {} parameters, {:.3f} GB in {:.1f} s ({:.2f} GB/s)\n", target,
      report.adapter_format.empty() ? name(report.to) : report.adapter_format, name(report.from),
      report.parameters, gigabytes, report.seconds, gigabytes / std::max(report.seconds, 1e-9));
  if (report.verified) {
    text += fmt::format(
        "verified: {} tensors equal to the bit{}; {} tokens through both: logits differ by {:.3g} "
        "at most, KL {:.3g}\n",
        report.verified->tensors,
        report.quantization ? " to what the source's become in these types" : "",
        report.verified->tokens, report.verified->largest_difference, report.verified->divergence);
    if (report.texts > 0)
      text +=
          fmt::format("verified: the tokenizers give the same ids for {} texts\n", report.texts);
    if (report.quantization) {
      text += fmt::format(
          "quantization: logits differ by {:.3g} at most (the largest is {:.3g}), KL {:.3g}\n",
          report.quantization->largest_difference, report.quantization->largest_logit,
          report.quantization->divergence);
    }
  } else {
    text += "not verified\n";
  }
  return text;
}

nlohmann::ordered_json json_of(const ConvertReport& report) {
  nlohmann::ordered_json out = {
      {"from", name(report.from)},
      {"to", report.adapter_format.empty() ? name(report.to) : report.adapter_format},
      {"parameters", report.parameters},
      {"bytes", report.bytes},
      {"seconds", report.seconds},
      {"verified", nullptr}};
  if (report.verified) {
    out["verified"] = {{"tensors", report.verified->tensors},
                       {"tokens", report.verified->tokens},
                       {"largest_difference", report.verified->largest_difference},
                       {"kl", report.verified->divergence}};
    if (report.texts > 0) out["verified"]["texts"] = report.texts;
  }
  if (report.quantization) {
    out["quantization"] = {{"largest_difference", report.quantization->largest_difference},
                           {"largest_logit", report.quantization->largest_logit},
                           {"kl", report.quantization->divergence}};
  }
  return out;
}

}  // namespace piton::cli
