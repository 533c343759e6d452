// piton convert: converts a model to another format and verifies the result.
#include "convert/convert.h"

#include "api/engine.h"
#include "base/error.h"
#include "cli/commands/conversion.h"
#include "cli/compatibility/converter_flags.h"
#include "cli/launch.h"

namespace piton::cli {
namespace {

struct ShowOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print one JSON object"}, json);
  }
};

bool writes_rank_files(const ConvertOptions& options) {
  const std::string& to = options.save_model_type;
  const bool megatron = to == "mg" || (to.empty() && !options.megatron_flag().empty());
  return megatron && !options.is_torch_dist();
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
  if (others.writes_adapters()) {
    const std::string& to = options.save_model_type;
    if (!to.empty() && to != "hf" && to != "peft")
      throw Error(Fault::kUsage, "--save-lora-to-hf: got --to {}, wanted hf or peft", to);
    options.save_model_type = "peft";
  }
  others.check(writes_rank_files(options));
  others.report(invocation.log);
  if (is_launched()) {
    throw Error(Fault::kUsage,
                "convert: started as one of several ranks; one process makes the files of every "
                "layout: start it without mpirun");
  }
  Engine engine(engine_options(general), invocation.log);
  const std::optional<ConvertReport> report = until_stopped(
      invocation, signals,
      [&](Progress& progress) { return convert(engine.machine(), options, progress); });
  if (!report) return 128 + signals.first();
  invocation.warn_of_root(general);
  for (const std::string& note : report->notes) invocation.log.warning(note);
  const std::string text =
      show.json ? json_of(*report).dump() + "\n" : lines_of(*report, report->save);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
