// piton score: how probable a text is to a model.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "api/model.h"
#include "base/files/creatable.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/shell_word.h"
#include "checkpoint/safetensors.h"
#include "cli/command.h"
#include "cli/commands/ids_file.h"
#include "cli/commands/model_to_load.h"
#include "cli/commands/score_pairs.h"
#include "cli/commands/score_rewards.h"
#include "cli/commands/scored_text.h"
#include "cli/launch.h"
#include "cli/terminal/standard_input.h"

namespace piton::cli {
namespace {

struct ScoreOptions {
  ModelToLoad model;
  std::string ids_file;
  std::string logits;
  std::string gradients;
  std::vector<std::string> json_keys;
  SpecialTokensOptions special_tokens;
  bool json = false;
  bool reward = false;
  bool pairs = false;
  std::string chat_template;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    v(Option{"ids-file",
             "JSON file with lists of token ids to score, instead of a text",
             {.placeholder = "F.json"}},
      ids_file);
    v(Option{"logits",
             "safetensors file for the logits of all sequences, one after another: the tensor "
             "logits, "
             "fp32 [tokens, vocabulary]",
             {.placeholder = "F.safetensors"}},
      logits);
    v(Option{"gradients",
             "file for the gradients of the mean loss, under canonical names",
             {.placeholder = "F.safetensors"}},
      gradients);
    v(Option{"json-keys",
             "read the file as JSON lines and score the texts under these keys, each by itself",
             {.placeholder = "KEY"}},
      json_keys);
    special_tokens.visit(v);
    v(Option{"reward",
             "print the reward of each conversation of the file, or list of --ids-file, by a model "
             "of --stage rm"},
      reward);
    v(Option{"pairs",
             "with --reward: the file has pairs of answers (chosen, rejected); print how often the "
             "better one has the higher reward"},
      pairs);
    v(Option{"chat-template",
             "with --reward: file of a chat template in Jinja, the name of one of the model's, or "
             "one of --prompt-type (default: the model's own)",
             {.placeholder = "FILE"}},
      chat_template);
    v(Option{"json", "print one JSON object with the log-likelihood of each token"}, json);
  }
};

// One or more lists, of which none is empty: a text without ids has no reward.
std::vector<std::vector<std::int32_t>> lists_of_ids(const std::string& path) {
  std::vector<std::vector<std::int32_t>> lists = ids_of_file(path);
  const auto empty = std::ranges::find_if(lists, [](const auto& ids) { return ids.empty(); });
  if (empty != lists.end()) {
    throw Error(Fault::kData, "{}: list {} is empty, wanted ids to reward", path,
                empty - lists.begin() + 1);
  }
  if (lists.empty()) throw Error(Fault::kData, "{}: no list in it, wanted some", path);
  return lists;
}

// `file`: of conversations, or "" with --ids-file. `prints`: this rank.
RewardRequest reward_request(const ScoreOptions& options, const std::string& file, bool prints) {
  const char* other = !options.logits.empty()      ? "logits"
                      : !options.gradients.empty() ? "gradients"
                      : !options.json_keys.empty() ? "json-keys"
                                                   : nullptr;
  if (other != nullptr)
    throw Error(Fault::kUsage, "--{}: cannot be combined with --reward; leave one of the two out",
                other);
  RewardRequest request{
      .file = file, .load = options.model.load, .chat_template = options.chat_template};
  if (!options.ids_file.empty()) request.ids = lists_of_ids(options.ids_file);
  request.json = options.json;
  request.prints = prints;
  return request;
}

// If a row has one token more than the model takes, the last token is only a label.
std::span<const std::int32_t> inputs_of(const std::vector<std::int32_t>& ids, std::int64_t length) {
  return std::span(ids).first(std::min(ids.size(), static_cast<std::size_t>(length)));
}

// Collective; the rank with `writes` writes the file.
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

// With `each`, the log-likelihoods of the sequences: a JSON object.
std::string loss_line(const TextLoss& scored, const nlohmann::ordered_json* each) {
  const double loss = scored.mean();
  if (each == nullptr) {
    return fmt::format("loss {:.6f} nats a token, perplexity {:.4f}, {} tokens\n", loss,
                       std::exp(loss), scored.tokens);
  }
  const nlohmann::ordered_json out{{"loss", loss},
                                   {"perplexity", std::exp(loss)},
                                   {"tokens", scored.tokens},
                                   {"log_likelihood", *each}};
  return out.dump() + "\n";
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
  if (options.model.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  // Of several ranks the first one knows, and the others get what it reads.
  const bool from_pipe =
      files.empty() && options.ids_file.empty() && (has_standard_input() || !invocation.leads);
  if (!files.empty() == !options.ids_file.empty() && !from_pipe)
    throw Error(Fault::kUsage,
                "score: wanted either a FILE of text (- is standard input) or --ids-file");
  if (!options.ids_file.empty() && options.special_tokens.add) {
    throw Error(Fault::kUsage, "{}: is for text, and --ids-file gives ids; leave it out",
                options.special_tokens.flag());
  }
  if (options.pairs && !options.reward)
    throw Error(Fault::kUsage, "--pairs: needs --reward, as rewards are compared");
  if (options.pairs && !options.ids_file.empty()) {
    throw Error(Fault::kUsage,
                "--pairs: reads a file of records, and --ids-file gives ids; leave one out");
  }
  if (!options.chat_template.empty() && (!options.reward || !options.ids_file.empty())) {
    throw Error(Fault::kUsage,
                "--chat-template: works only with --reward and a file of conversations or pairs; "
                "leave it out");
  }
  for (const std::string& file : {options.logits, options.gradients})
    if (!file.empty() && invocation.leads) check_creatable(file);
  Engine engine(engine_options(general), invocation.log);
  invocation.together([&] { layout.check(engine.world().size()); });
  const auto model =
      Model::load(engine.machine(), options.model.load, tokenizer, layout, options.model.lora_load);
  if (from_pipe || (!files.empty() && files[0] == "-")) share_standard_input(engine.world());
  if (options.reward) {
    const std::string file = from_pipe ? "-" : files.empty() ? "" : files[0];
    const RewardRequest request = reward_request(options, file, engine.world().rank() == 0);
    if (options.pairs) {
      print_pair_rewards(*model, request, invocation.log);
    } else {
      print_rewards(*model, request);
    }
    return 0;
  }
  const std::vector<std::vector<std::int32_t>> sequences =
      !options.ids_file.empty()
          ? ids_of_file(options.ids_file)
          : rows_to_score(from_pipe ? "-" : files[0], options.json_keys, options.special_tokens,
                          *model, invocation.log_of_all());

  nlohmann::ordered_json each = nlohmann::ordered_json::array();
  const TextLoss scored =
      loss_of(*model, sequences, invocation.progress, [&](const Model::Score& score) {
        if (options.json) each.push_back(score.log_likelihood);
      });
  if (scored.tokens == 0)
    throw Error(Fault::kData, "score: no token to score; wanted a sequence of two tokens or more");
  const bool leads = engine.world().rank() == 0;
  if (!options.logits.empty()) write_logits(*model, sequences, options.logits, leads);
  if (!options.gradients.empty()) write_safetensors(options.gradients, model->gradients(sequences));

  if (!leads) return 0;
  std::fputs(loss_line(scored, options.json ? &each : nullptr).c_str(), stdout);
  if (!options.json && is_conversation()) {
    invocation.log.info(fmt::format("next: piton generate --load {} --prompt TEXT",
                                    shell_word(options.model.load)));
  }
  return 0;
}

}  // namespace piton::cli
