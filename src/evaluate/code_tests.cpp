#include "evaluate/code_tests.h"

#include <map>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "tasks/answers/python_text.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// The last line of the output, shortened: usually the exception.
std::string last_line(const std::string& output) {
  constexpr std::size_t kLongest = 200;
  const std::string text = replace_bad_utf8(output);
  const std::string_view bare = python_stripped(text);
  const std::size_t mark = bare.rfind('\n');
  std::string line(mark == bare.npos ? bare : bare.substr(mark + 1));
  if (line.size() > kLongest) line = replace_bad_utf8(line.substr(0, kLongest)) + "...";
  return line;
}

// Of each answer. Answers that are drawn are often equal: a program runs once.
std::vector<std::string> verdicts_of(const Task& task, const TaskSample& sample,
                                     const SampleResponse& response, const PythonSandbox& sandbox) {
  std::map<std::string, std::string> known;
  std::vector<std::string> verdicts;
  const auto add = [&](const std::string& text) {
    const std::string program = task.program(sample.code, text);
    const auto [found, is_new] = known.try_emplace(program);
    if (is_new) found->second = code_verdict(sandbox, program, {.seconds = task.program_seconds});
    verdicts.push_back(found->second);
  };
  if (response.texts.empty()) add(response.text);
  for (const std::string& text : response.texts) add(text);
  return verdicts;
}

}  // namespace

std::string code_verdict(const PythonSandbox& sandbox, const std::string& program,
                         const SandboxLimits& limits) {
  StreamHash hash;
  hash.add(std::as_bytes(std::span(program)));
  // Standard output itself, since sys.stdout may be another object at the end of the program.
  const std::string mark = "\nend of " + hash.hex() + "\n";
  const std::string whole =
      fmt::format("{}\n__import__('os').write(1, b'\\nend of {}\\n')\n", program, hash.hex());
  const SandboxOutcome outcome = sandbox.run(whole, limits);
  if (outcome.timed_out) return "timed out";
  if (outcome.signal != 0) return fmt::format("killed by signal {}", outcome.signal);
  if (outcome.exit_code != 0)
    return fmt::format("exit code {}: {}", outcome.exit_code, last_line(outcome.output));
  return outcome.output.find(mark) == std::string::npos ? "exited before its end" : kPassed;
}

void run_code_tests(TaskEvaluation& evaluation, const PythonSandbox& sandbox, Progress& progress) {
  const Task& task = evaluation.data.task;
  ThrottledProgress shown(progress, std::ssize(evaluation.data.samples));
  std::int64_t passed = 0;
  for (std::size_t i = 0; i < evaluation.data.samples.size(); ++i) {
    const TaskSample& sample = evaluation.data.samples[i];
    SampleResponse& response = evaluation.responses[i];
    response.verdicts = verdicts_of(task, sample, response, sandbox);
    evaluation.scores[i] = score_sample(task, sample, response);
    passed += evaluation.scores[i].correct ? 1 : 0;
    shown.at(static_cast<std::int64_t>(i) + 1,
             [&] { return fmt::format("{}: {} questions passed", task.name, passed); });
  }
  progress.finish();
}

}  // namespace piton
