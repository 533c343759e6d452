#include "cli/commands/score_pairs.h"

#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands/model_chat_template.h"
#include "data/preprocess/instruct_plan.h"
#include "data/records/whole_record_parser.h"

namespace piton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnswerPair {
  std::vector<std::vector<std::int32_t>> ids;  // of the better and the worse text
  std::string subset;                          // "": none
};

std::vector<AnswerPair> read_pairs(const Model& model, const RewardRequest& request, Log& log) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const ChatTemplate chosen = model_chat_template(model, request.chat_template, request.load);
  PreprocessOptions options;
  options.input = {request.file};
  options.skip_option.clear();
  options.instruct.handler_name = "auto";
  options.wanted_form = SampleForm::kPairs;
  options.chat_templates = {.files = model.chat_templates(), .fault = ""};
  options.chat_templates.files.templates = {
      {.name = "default", .text = chosen.source(), .where = chosen.name()}};
  const std::vector<InputFile> files = files_of(options, log);
  const auto plan = make_instruct_plan(options, tokenizer, files, log);
  PITON_ASSERT(plan && plan->prompt != nullptr, "pairs without a prompt");
  BlockReader::Rules rules = reader_rules(options, *plan);
  rules.optional_columns.emplace_back("subset");
  BlockReader reader(files, rules, {});
  std::vector<AnswerPair> pairs;
  const auto use = [&](const Json& record) {
    AnswerPair pair;
    for (TaughtText& text :
         plan->prompt->encode(read_conversation(*plan->handler, plan->fields, record)))
      pair.ids.push_back(std::move(text.ids));
    pair.subset = optional_text_at(record, "subset");
    pairs.push_back(std::move(pair));
  };
  for_each_record(reader, options.sample_by, use,
                  [&](const BadRecord& bad) { refuse_bad_record(bad, options); });
  if (pairs.empty()) throw Error(Fault::kData, "{}: no pair, wanted one or more", request.file);
  return pairs;
}

// Sums over pairs.
struct PairSums {
  std::int64_t pairs = 0;
  std::int64_t right = 0;  // the better answer has the higher reward
  double chosen = 0;
  double rejected = 0;

  void add(double better, double worse) {
    ++pairs;
    right += better > worse ? 1 : 0;
    chosen += better;
    rejected += worse;
  }
  double mean(double sum) const { return sum / static_cast<double>(pairs); }
  Json json() const {
    return {{"pairs", pairs},
            {"rewards_accuracy", mean(static_cast<double>(right))},
            {"rewards_chosen", mean(chosen)},
            {"rewards_rejected", mean(rejected)},
            {"rewards_margin", mean(chosen) - mean(rejected)}};
  }
  std::string line(const std::string& name) const {
    return fmt::format("{:24} {:>7} {:>9.4f} {:>10.4f} {:>10.4f} {:>10.4f}\n", name, pairs,
                       mean(static_cast<double>(right)), mean(chosen), mean(rejected),
                       mean(chosen) - mean(rejected));
  }
};

}  // namespace

void print_pair_rewards(Model& model, const RewardRequest& request, Log& log) {
  PairSums all;
  std::map<std::string, PairSums> subsets;
  Json rewards = Json::array();
  for (const AnswerPair& pair : read_pairs(model, request, log)) {
    const std::vector<double> both = model.rewards(pair.ids);
    all.add(both.at(0), both.at(1));
    if (!pair.subset.empty()) subsets[pair.subset].add(both[0], both[1]);
    rewards.push_back(both);
  }
  if (!request.prints) return;
  std::string out;
  if (request.json) {
    Json object = all.json();
    for (const auto& [name, sums] : subsets) object["subsets"][name] = sums.json();
    object["rewards"] = rewards;
    out = object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  } else {
    out = fmt::format("{:24} {:>7} {:>9} {:>10} {:>10} {:>10}\n", "", "pairs", "accuracy", "chosen",
                      "rejected", "margin");
    for (const auto& [name, sums] : subsets) out += sums.line(name);
    out += all.line("all");
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
}

}  // namespace piton::cli
