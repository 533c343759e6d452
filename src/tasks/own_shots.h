// Examples that are part of tasks: those of their papers, as lm-evaluation-harness 0.4.13 (MIT) has
// them in the code of the task.
#pragma once

#include <vector>

#include "base/json.h"

namespace piton {

// MBPP (tasks/mbpp/utils.py): task, tests, code.
std::vector<nlohmann::json> mbpp_shots();
// MATH, of Lewkowycz et al. 2022 (tasks/minerva_math/utils.py): problem, solution.
std::vector<nlohmann::json> minerva_shots();

}  // namespace piton
