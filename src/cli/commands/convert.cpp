// piton convert: converts a model to another format and verifies the result.
#include "convert/convert.h"

#include "api/engine.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/compatibility/converter_flags.h"
#include "cli/launch.h"
#include "cli/terminal/stop_signals.h"

namespace piton::cli {
namespace {

struct ShowOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print one JSON object"}, json);
  }
};

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

void print_lines(const ConvertReport& report, const ConvertOptions& options) {
  const double gigabytes = static_cast<double>(report.bytes) * 1e-9;
  std::string text = fmt::format(
      "{}: {} from {}: {} parameters, {:.3f} GB in {:.1f} s ({:.2f} GB/s)\n", options.save,
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
  std::fputs(text.c_str(), stdout);
}

void print_json(const ConvertReport& report) {
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
  std::fputs((out.dump() + "\n").c_str(), stdout);
}

}  // namespace

int run_convert(Invocation& invocation) {
  StopSignals signals(invocation.log);
  GeneralOptions general;
  ConvertOptions options;
  ShowOptions show;
  OptionSet set;
  set.add("Conversion", options);
  set.add("Output", show);
  set.add("Model of a Megatron checkpoint that keeps no arguments", options.model);
  ConverterFlags others;
  set.set_foreign(&others);
  refuse_more_arguments(invocation.parse(set, general));
  others.report(invocation.log);
  if (is_launched()) {
    throw Error(Fault::kUsage,
                "convert: started as one of several ranks; one process makes the files of every "
                "layout: start it without mpirun");
  }
  Engine engine(engine_options(general), invocation.log);
  signals.promise("stopping; what is unfinished is removed");
  UntilStopped progress(invocation.progress, signals);
  ConvertReport report;
  try {
    report = convert(engine.machine(), options, progress);
  } catch (const Stopped&) {
    return 128 + signals.first();
  }
  invocation.warn_of_root(general);
  for (const std::string& note : report.notes) invocation.log.warning(note);
  if (show.json) {
    print_json(report);
  } else {
    print_lines(report, options);
  }
  return 0;
}

}  // namespace piton::cli
