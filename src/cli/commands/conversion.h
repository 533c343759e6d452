// Common parts of the commands that write a model from another one: convert and quantize.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/terminal/stop_signals.h"
#include "convert/convert.h"

namespace piton::cli {

// The report of `work`, which shows its progress; nullopt if a signal ended it, and what was
// unfinished is removed.
std::optional<ConvertReport> until_stopped(Invocation& invocation, StopSignals& signals,
                                           const std::function<ConvertReport(Progress&)>& work);

// `target`: the name of what was written.
std::string lines_of(const ConvertReport& report, const std::string& target);
nlohmann::ordered_json json_of(const ConvertReport& report);

}  // namespace piton::cli
