#include "tasks/code_answers.h"

#include <algorithm>

#include "tasks/answers/python_text.h"
#include "tasks/task_records.h"

namespace piton {
namespace {

std::string with_tests(std::string program, const CodeQuestion& question) {
  return std::move(program) + "\n" + question.test + "\ncheck(" + question.entry_point + ")\n";
}

// The second of the parts that white space divides a line into; "" if there is one part.
std::string_view second_part(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r\f\v";
  const std::size_t space = line.find_first_of(kSpace);
  if (space == line.npos) return "";
  const std::size_t begin = line.find_first_not_of(kSpace, space);
  if (begin == line.npos) return "";
  return line.substr(begin, line.find_first_of(kSpace, begin) - begin);
}

}  // namespace

CodeQuestion code_question_of(const nlohmann::json& fields) {
  const auto text = [&](std::string_view name) {
    return find_field(fields, name)->get<std::string>();
  };
  return {.prompt = text("prompt"), .test = text("test"), .entry_point = text("entry_point")};
}

std::string completed_program(const CodeQuestion& question, std::string_view answer) {
  return with_tests(question.prompt + std::string(answer), question);
}

std::string tested_program(const CodeQuestion& question, std::string_view answer) {
  return std::string(answer) + "\n" + question.test + "\n";
}

std::string extracted_program(const CodeQuestion& question, std::string_view answer) {
  const std::string text = question.prompt + " " + std::string(answer);
  std::string program = "from typing import List\nimport math\n";
  bool in_function = false;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    const std::string_view bare = python_stripped(line);
    const bool is_first = at == 0;
    at = end + 1;
    if (bare.empty()) continue;
    if (is_first && (line == "python" || line == "Python")) continue;
    const bool is_kept = bare.front() != line.front() || line.starts_with("from") ||
                         line.starts_with("import") || line.starts_with("def");
    if (is_kept)
      program += std::string(line) + "\n";
    else if (in_function)
      break;
    if (line.starts_with("def") && second_part(line) == question.entry_point) in_function = true;
  }
  return with_tests(std::move(program), question);
}

}  // namespace piton
