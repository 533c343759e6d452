// `piton report`: runs on one page of HTML that needs nothing beside itself, on a screen or a
// phone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_record.h"

namespace piton {

struct PageOptions {
  std::string made;                  // when, for the foot of the page
  std::optional<int> refresh_every;  // seconds, where the page is written anew while a run goes on
};

// Loss, learning rate, norm of the gradient, throughput and memory as curves; for each run how far
// it is, its checkpoints, how it failed; and the options, those that differ between runs first.
// `runs` has at least one.
std::string report_page(const std::vector<RunRecord>& runs, const PageOptions& options);

}  // namespace piton
