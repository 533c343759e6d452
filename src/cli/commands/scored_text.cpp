#include "cli/commands/scored_text.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "data/records/byte_stream.h"
#include "data/records/whole_text.h"

namespace piton::cli {
namespace {

constexpr std::size_t kReadTogether = 32;  // sequences, between two lines of progress

// Splits a long text into rows of the model's length. The first token of a row is the last one of
// the row before.
std::vector<std::vector<std::int32_t>> rows_of(const std::vector<std::int32_t>& ids,
                                               std::int64_t length) {
  std::vector<std::vector<std::int32_t>> rows;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<std::size_t>(length)) {
    const std::size_t end = std::min(ids.size(), begin + static_cast<std::size_t>(length) + 1);
    rows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                      ids.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return rows;
}

// The texts of a file of JSON lines under `keys`, each a document.
std::vector<std::string> texts_of(const std::string& file, const std::string& lines,
                                  const std::vector<std::string>& keys) {
  std::vector<std::string> texts;
  std::istringstream stream(lines);
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json record = read_json_or_discarded<nlohmann::json>(line);
    for (const std::string& key : keys) {
      if (!record.is_object() || !record.contains(key) || !record[key].is_string()) {
        throw Error(Fault::kData,
                    "{}: line {}: wanted a JSON object with a text under \"{}\" (--json-keys)",
                    file, number, key);
      }
      texts.push_back(record[key].get<std::string>());
    }
  }
  return texts;
}

}  // namespace

std::vector<std::vector<std::int32_t>> rows_to_score(const std::string& file,
                                                     std::vector<std::string> keys,
                                                     const SpecialTokensOptions& special,
                                                     const Model& model, Log& log) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const SpecialTokensRule rule = rule_of(special, model.special_tokens());
  const std::string said = describe_rule(rule, tokenizer);
  if (!said.empty()) log.info(said);
  const std::string text = read_whole_text(file);
  if (keys.empty() && unpacked_name(file).ends_with(".jsonl")) {
    keys = {"text"};
    log.info(fmt::format("{}: JSON lines; scoring the text under \"text\" (--json-keys)", file));
  }
  const std::vector<std::string> texts =
      keys.empty() ? std::vector{text} : texts_of(file, text, keys);
  std::vector<std::vector<std::int32_t>> sequences;
  for (const std::string& one : texts) {
    const auto ids = tokenizer.encode(one, {.add_special_tokens = rule.add});
    for (auto& row : rows_of(ids, model.config().max_positions))
      sequences.push_back(std::move(row));
  }
  return sequences;
}

TextLoss loss_of(Model& model, std::span<const std::vector<std::int32_t>> sequences,
                 Progress& progress, const std::function<void(const Model::Score&)>& each) {
  TextLoss loss;
  ThrottledProgress shown(progress, std::ssize(sequences));
  std::int64_t done = 0;
  while (!sequences.empty()) {
    const auto batch = sequences.first(std::min(sequences.size(), kReadTogether));
    sequences = sequences.subspan(batch.size());
    for (const Model::Score& score : model.scores(batch)) {
      loss.sum -= score.sum();
      loss.tokens += std::ssize(score.log_likelihood);
      if (each) each(score);
    }
    done += std::ssize(batch);
    shown.at(done, [&] {
      return fmt::format("{:.0f} tokens/s", static_cast<double>(loss.tokens) / shown.seconds());
    });
  }
  progress.finish();
  return loss;
}

}  // namespace piton::cli
