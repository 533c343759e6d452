// Runs the programs that a model wrote, and scores them.
#pragma once

#include "base/progress.h"
#include "evaluate/evaluation.h"
#include "evaluate/python_sandbox.h"

namespace piton {

// "passed", or why a program failed: "timed out", "killed by signal 9", "exit code 1: NameError:
// x". A program passes if it runs to its end: one that exits earlier does not. Throws as
// PythonSandbox::run().
std::string code_verdict(const PythonSandbox& sandbox, const std::string& program,
                         const SandboxLimits& limits);

// Sets the verdicts and the score of each sample of a task of code. On one rank.
void run_code_tests(TaskEvaluation& evaluation, const PythonSandbox& sandbox, Progress& progress);

}  // namespace piton
