// `piton report` of results of evaluations: a self-contained page of HTML.
#pragma once

#include <string>
#include <vector>

#include "report/results_record.h"

namespace piton {

// A table of all scores, one column a folder; with two folders or more the difference of each to
// the first, question by question; and of each folder the questions that were answered worst.
// `all` has at least one. `made`: date, for the footer.
std::string results_page(const std::vector<ResultsRecord>& all, const std::string& made);

}  // namespace piton
