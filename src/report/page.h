// `piton report`: runs on a self-contained page of HTML, for a screen or a phone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace piton {

struct PageOptions {
  std::string made;                  // date, for the footer of the page
  std::optional<int> refresh_every;  // seconds, if the page is rewritten while a run is active
};

// Curves of loss, learning rate, norm of the gradient, throughput and memory; for each run its
// progress, its checkpoints and its failure; and the options, those that differ between runs first.
// `runs` has at least one.
std::string report_page(const std::vector<RunRecord>& runs, const PageOptions& options);

}  // namespace piton
