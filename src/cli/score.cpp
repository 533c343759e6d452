// piton score: how likely a model finds a text.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "api/model.h"
#include "base/files.h"
#include "base/nesting.h"
#include "checkpoint/safetensors.h"
#include "cli/command.h"
#include "cli/launch.h"

namespace piton::cli {
namespace {

struct ScoreOptions {
  std::string load;
  std::string ids_file;
  std::string logits;
  std::string gradients;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load", "run or checkpoint of the model", {.placeholder = "DIR"}}, load);
    v(Option{"ids-file",
             "JSON list of lists of token ids, instead of a text",
             {.placeholder = "F.json"}},
      ids_file);
    v(Option{"logits",
             "write the logits of all sequences, one after another: fp32 [tokens, vocabulary]",
             {.placeholder = "F.safetensors"}},
      logits);
    v(Option{"gradients",
             "write the gradients of the mean loss under canonical names",
             {.placeholder = "F.safetensors"}},
      gradients);
    v(Option{"json", "print one JSON object with the log-likelihood of each token"}, json);
  }
};

std::vector<std::vector<std::int32_t>> ids_of_file(const std::string& path) {
  const std::string text = read_text_file(path);
  check_json_depth(text, path);
  const nlohmann::json lists = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&](const std::string& got) {
    throw Error(Fault::kData, "{}: got {}, wanted a JSON list of lists of token ids", path, got);
  };
  if (!lists.is_array()) refuse(lists.is_discarded() ? "text that is not JSON" : lists.type_name());
  std::vector<std::vector<std::int32_t>> sequences;
  for (const auto& list : lists) {
    if (!list.is_array()) refuse(list.type_name());
    auto& ids = sequences.emplace_back();
    for (const auto& id : list) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() > INT32_MAX)
        refuse(id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
  }
  return sequences;
}

// Of a row of a text, which has one token more than the model takes, the last is only a label.
std::span<const std::int32_t> inputs_of(const std::vector<std::int32_t>& ids, std::int64_t length) {
  return std::span(ids).first(std::min(ids.size(), static_cast<std::size_t>(length)));
}

// A long text goes in rows of the model's length; each row's first token is the one before it.
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

// Collective; `writes` on one rank.
void write_logits(Model& model, const std::vector<std::vector<std::int32_t>>& sequences,
                  const std::string& path, bool writes) {
  const std::int64_t width = model.config().vocabulary;
  const std::int64_t length = model.config().max_positions;
  std::int64_t rows = 0;
  for (const auto& ids : sequences)
    rows += static_cast<std::int64_t>(inputs_of(ids, length).size());
  std::optional<SafetensorsWriter> writer;
  if (writes) {
    writer.emplace(path, std::vector<SafetensorsEntry>{
                             {.name = "logits", .dtype = "F32", .shape = {rows, width}}});
  }
  for (const auto& ids : sequences) {
    if (ids.empty()) continue;
    const Tensor part = model.logits(inputs_of(ids, length));
    if (writer) writer->append({part.raw(), static_cast<std::size_t>(part.bytes())});
  }
  if (writer) writer->commit();
}

}  // namespace

int run_score(Invocation& invocation) {
  GeneralOptions general;
  ScoreOptions options;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Scoring", options);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  const std::vector<std::string> files = invocation.parse(set, general);
  refuse_more_arguments(files, 1);
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  if (files.empty() == options.ids_file.empty())
    throw Error(Fault::kUsage, "score: wanted either a FILE of text or --ids-file");
  Engine engine(engine_options(general), invocation.log);
  const auto model = Model::load(engine.machine(), options.load, tokenizer, layout);
  const std::vector<std::vector<std::int32_t>> sequences =
      files.empty() ? ids_of_file(options.ids_file)
                    : rows_of(model->require_tokenizer().encode(read_text_file(files[0]), {}),
                              model->config().max_positions);

  double sum = 0;
  std::int64_t count = 0;
  nlohmann::ordered_json each = nlohmann::ordered_json::array();
  for (const auto& ids : sequences) {
    const Model::Score score = model->score(ids);
    sum += score.sum();
    count += static_cast<std::int64_t>(score.log_likelihood.size());
    if (options.json) each.push_back(score.log_likelihood);
  }
  if (count == 0)
    throw Error(Fault::kData, "score: no token to score; wanted a sequence of two tokens or more");
  const bool leads = engine.world().rank() == 0;
  if (!options.logits.empty()) write_logits(*model, sequences, options.logits, leads);
  if (!options.gradients.empty()) write_safetensors(options.gradients, model->gradients(sequences));

  if (!leads) return 0;
  const double loss = -sum / static_cast<double>(count);
  if (options.json) {
    const nlohmann::ordered_json out{{"loss", loss},
                                     {"perplexity", std::exp(loss)},
                                     {"tokens", count},
                                     {"log_likelihood", each}};
    std::fputs((out.dump() + "\n").c_str(), stdout);
  } else {
    std::fputs(fmt::format("loss {:.6f} nats a token, perplexity {:.4f}, {} tokens\n", loss,
                           std::exp(loss), count)
                   .c_str(),
               stdout);
  }
  return 0;
}

}  // namespace piton::cli
