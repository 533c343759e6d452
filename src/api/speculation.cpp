#include "api/speculation.h"

#include <algorithm>

#include "base/log.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

// A pass of more rows costs more than the tokens that it may spare.
constexpr std::int64_t kMostDrafts = 64;
constexpr std::int64_t kDrafts = 4;  // as --help says

// The ids of both models mean the same.
void check_vocabularies(const Model& model, const Model& draft, const std::string& path) {
  const std::int64_t own = draft.config().vocabulary;
  const std::int64_t wanted = model.config().vocabulary;
  if (own != wanted)
    throw Error(Fault::kUsage,
                "--draft-model: the vocabulary of {} has {} tokens, and that of the model {}; name "
                "a model with the same tokenizer",
                path, own, wanted);
  const Tokenizer* a = draft.tokenizer();
  const Tokenizer* b = model.tokenizer();
  if (a == nullptr || b == nullptr || a->content_hash() == b->content_hash()) return;
  for (std::int32_t id = 0; id < std::min(a->vocabulary_size(), b->vocabulary_size()); ++id) {
    if (a->piece(id) == b->piece(id)) continue;
    throw Error(
        Fault::kUsage,
        "--draft-model: token {} of {} is {:?}, and that of the model is {:?}; name a model "
        "with the same tokenizer",
        id, path, a->piece(id), b->piece(id));
  }
}

}  // namespace

void SpeculationOptions::check() const {
  check_range("--prompt-lookup", prompt_lookup, 0, kMostDrafts);
  check_range("--draft-mtp", draft_mtp, 0, kMostDrafts);
  if (draft_tokens) {
    check_range("--draft-tokens", *draft_tokens, 1, kMostDrafts);
    if (draft_model.empty())
      throw Error(Fault::kUsage, "--draft-tokens: works only with --draft-model; leave it out");
  }
  if (!draft_quantize.empty() && draft_model.empty())
    throw Error(Fault::kUsage, "--draft-quantize: works only with --draft-model; leave it out");
  if (const std::vector<const char*> all = flags(); all.size() > 1)
    throw Error(Fault::kUsage, "{}, {}: both guess the next tokens; leave one of them out", all[0],
                all[1]);
}

std::vector<const char*> SpeculationOptions::flags() const {
  std::vector<const char*> all;
  if (prompt_lookup > 0) all.push_back("--prompt-lookup");
  if (draft_mtp > 0) all.push_back("--draft-mtp");
  if (!draft_model.empty()) all.push_back("--draft-model");
  return all;
}

Speculation::Speculation(const Machine& machine, const SpeculationOptions& options, Model& model,
                         const InferenceOptions& layout) {
  if (model.config().state_layers() > 0 && !options.flags().empty()) {
    throw Error(Fault::kUsage,
                "{}: guesses that are wrong are taken back, and layers of the gated delta "
                "rule, of Mamba-2 or with short convolutions have no state of before; leave it out",
                options.flags().front());
  }
  if (options.draft_mtp > 0) {
    if (model.config().mtp_layers == 0)
      throw Error(
          Fault::kUsage,
          "--draft-mtp: the model has no layer that predicts later tokens; leave it out, or "
          "use --prompt-lookup");
    model.set_drafter(DraftSource::later_layer(options.draft_mtp));
    return;
  }
  if (options.prompt_lookup > 0) {
    drafter_ = make_prompt_lookup(options.prompt_lookup);
  } else if (!options.draft_model.empty()) {
    InferenceOptions own = layout;
    own.quantize = options.draft_quantize;
    own.quantize_flag = "--draft-quantize";
    own.kv_cache_dtype = CacheNumbers::kOfModel;
    own.drafts_later = false;
    draft_model_ = Model::load(machine, options.draft_model, {}, own);
    check_vocabularies(model, *draft_model_, options.draft_model);
    engine_ = draft_model_->make_engine({});
    drafter_ = make_model_drafter(*engine_, draft_model_->config().max_positions,
                                  options.draft_tokens.value_or(kDrafts));
  }
  model.set_drafter(drafter_.get());
}

Speculation::~Speculation() = default;

void report_drafts(const DecodingCounts& counts, Log& log) {
  if (counts.draft_tokens == 0) return;
  const auto ratio = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  log.info(fmt::format(
      "guesses: {} of {} tokens were right ({:.0f} %), {:.2f} accepted in each of {} steps",
      counts.accepted_tokens, counts.draft_tokens,
      100 * ratio(counts.accepted_tokens, counts.draft_tokens),
      ratio(counts.accepted_tokens, counts.drafted_steps), counts.drafted_steps));
}

}  // namespace piton
