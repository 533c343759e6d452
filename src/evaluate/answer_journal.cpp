#include "evaluate/answer_journal.h"

#include <cmath>

#include "base/error.h"
#include "base/files/files.h"

namespace piton {
namespace {

using Json = nlohmann::json;

// Two runs of a model on machines with other instruction sets differ by rounding alone.
constexpr double kProbeTolerance = 1e-4;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string lines_of(const RequestAnswers& answers) {
  std::string lines;
  for (const auto& [request, answer] : answers) {
    Json line = {{"request", request}};
    line["log_likelihood"] = answer.log_likelihood;
    line["greedy"] = answer.greedy;
    if (!answer.text.empty()) line["text"] = answer.text;
    lines += line_of(line);
  }
  return lines;
}

void add_answer(std::string_view text, RequestAnswers& answers) {
  const Json line = read_json_or_discarded<Json>(text);
  if (!line.is_object() || !line.contains("request") || !line["request"].is_number_unsigned())
    return;
  answers[line["request"].get<std::size_t>()] = {
      .log_likelihood = line.value("log_likelihood", 0.0),
      .greedy = line.value("greedy", false),
      .text = line.value("text", "")};
}

AnswerJournal::AnswerJournal(std::optional<std::filesystem::path> path, const JournalKey& key,
                             bool writes)
    : path_(std::move(path)) {
  if (!path_) return;
  if (std::filesystem::exists(*path_)) read(read_text_file(*path_), key);
  if (!writes) return;
  // Whole lines alone, so that new ones follow them.
  write_text_file(*path_, line_of({{"key", key.facts}, {"probe", key.probe}}) + lines_of(answers_));
  file_ = std::make_unique<AppendedFile>(*path_);
}

void AnswerJournal::read(const std::string& text, const JournalKey& key) {
  bool first = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == text.npos) return;
    const std::string_view written = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (first) {
      first = false;
      const Json line = read_json_or_discarded<Json>(written);
      const bool same = line.is_object() && line.contains("key") && line.contains("probe") &&
                        line["probe"].is_number() && line["key"] == key.facts &&
                        std::abs(line["probe"].get<double>() - key.probe) <=
                            kProbeTolerance * std::max(1.0, std::abs(key.probe));
      if (same) continue;
      throw Error(Fault::kUsage,
                  "{}: holds answers of another evaluation (other model, data or options); give "
                  "another --save-results, or remove the file",
                  path_->string());
    }
    add_answer(written, answers_);
  }
}

void AnswerJournal::add(const RequestAnswers& answers) {
  if (!file_) return;
  const std::string failure = file_->append(lines_of(answers));
  if (!failure.empty()) throw Error(Fault::kData, "{}: {}", path_->string(), failure);
}

}  // namespace piton
