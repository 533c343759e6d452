#include "cli/commands/continuation.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "generate/stop_words.h"
#include "text/unicode/utf8.h"

namespace piton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr DecodeOptions kShown{.skip_special_tokens = true};

// Bytes that are no characters are shown as U+FFFD.
std::string line_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Continuer::Continuer(Model& model, const SamplingOptions& sampling, const BeamOptions& beams,
                     const std::vector<std::string>& stop, bool echo)
    : model_(model), sampling_(sampling), beams_(beams), echo_(echo) {
  for (const std::string& word : stop) {
    if (word.empty()) throw Error(Fault::kUsage, "--stop: got \"\", wanted a word");
    const Tokenizer& tokenizer = model.require_tokenizer();
    const std::optional<std::int32_t> id = tokenizer.id_of(word);
    if (id && tokenizer.is_special(*id)) {
      stop_ids_.push_back(*id);
    } else {
      stop_words_.push_back(word);
    }
  }
}

void Continuer::set_constraint(const ConstraintText& constraint) {
  grammar_ = constraint_grammar(constraint, "generate");
  if (!grammar_) return;
  tokens_ = std::make_shared<TokenTree>(model_.require_tokenizer(), model_.config().vocabulary);
}

std::string Continuer::text_of(const Prompt& prompt) const {
  if (!prompt.text.empty() || model_.tokenizer() == nullptr) return prompt.text;
  return replace_bad_utf8(model_.tokenizer()->decode(prompt.ids, kShown));
}

std::span<const std::int32_t> Continuer::before(std::span<const std::int32_t> prompt) const {
  if (model_.config().encoder_decoder) return {};
  return prompt;
}

std::int64_t Continuer::most_tokens(const Prompt& prompt) const {
  if (!longest_) return sampling_.max_new_tokens;
  return std::min(sampling_.max_new_tokens, *longest_ - std::ssize(before(prompt.ids)));
}

void Continuer::set_longest(std::int64_t tokens, std::span<const Prompt> prompts) {
  longest_ = tokens;
  for (const Prompt& prompt : prompts) {
    if (most_tokens(prompt) > 0) continue;
    throw Error(Fault::kUsage, "--max-length: got {}, and a prompt has {} tokens; wanted more",
                tokens, before(prompt.ids).size());
  }
}

bool Continuer::is_stop(std::int32_t id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

std::vector<std::vector<Continuation>> Continuer::run(
    std::span<const Prompt> prompts, const std::function<void(const std::string&)>& show,
    std::int64_t samples) const {
  if (beams_.num_beams == 1) return sampled(prompts, show, samples);
  std::vector<std::vector<Continuation>> all;
  for (const Prompt& prompt : prompts) {
    std::vector<Continuation>& best = all.emplace_back(beams(prompt));
    best.resize(std::min(best.size(), static_cast<std::size_t>(samples)));
  }
  show(all.front().front().text);
  return all;
}

std::vector<std::vector<Continuation>> Continuer::sampled(
    std::span<const Prompt> prompts, const std::function<void(const std::string&)>& show,
    std::int64_t samples) const {
  struct Growing {
    std::optional<StreamDecoder> decoder;
    StopWords stop;
    std::int64_t left = 0;  // tokens
  };
  const auto n = static_cast<std::size_t>(samples);
  const std::size_t texts = prompts.size() * n;  // text i is sample i % n of prompt i / n
  std::vector<Continuation> all(texts);
  std::vector<Growing> growing(texts, {std::nullopt, StopWords(stop_words_), 0});
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::uint64_t> draws;
  std::vector<std::optional<std::int64_t>> adapters;
  for (std::size_t i = 0; i < texts; ++i) {
    ids.push_back(prompts[i / n].ids);
    draws.push_back(prompts[i / n].first_draw + i % n);
    adapters.push_back(prompts[i / n].adapter);
    growing[i].left = most_tokens(prompts[i / n]);
    if (model_.tokenizer() != nullptr) {
      growing[i].decoder.emplace(*model_.tokenizer(), kShown);
      growing[i].decoder->start_after(before(ids.back()));
    }
  }
  const auto add = [&](std::size_t i, const std::string& bytes) {
    const std::string text = replace_bad_utf8(bytes);
    if (i == 0 && !text.empty()) show(text);
    all[i].text += text;
  };
  const auto each = [&](std::size_t i, const GeneratedToken& token) {
    Growing& one = growing[i];
    if (one.decoder) add(i, one.stop.push(one.decoder->push(token.id)));
    const bool interrupted = interrupted_ && interrupted_();
    return !interrupted && !one.stop.found() && !is_stop(token.id) && --one.left > 0;
  };
  std::vector<std::shared_ptr<GrammarConstraint>> constraints;
  for (std::size_t i = 0; i < texts && grammar_; ++i) {
    constraints.push_back(std::make_shared<GrammarConstraint>(grammar_, tokens_, model_.ends()));
  }
  const std::vector<std::shared_ptr<TokenConstraint>> plain(constraints.begin(), constraints.end());
  auto tokens = model_.generate_batch(
      {.ids = ids, .draws = draws, .constraints = plain, .adapters = adapters}, sampling_, each);
  for (std::size_t i = 0; i < texts; ++i) {
    all[i].tokens = std::move(tokens[i]);
    all[i].is_cut = grammar_ && !growing[i].stop.found() && !constraints[i]->complete();
    Growing& one = growing[i];
    if (!one.decoder || one.stop.found()) continue;
    add(i, one.stop.push(one.decoder->finish()));
    add(i, one.stop.finish());
  }
  std::vector<std::vector<Continuation>> of_prompts(prompts.size());
  for (std::size_t i = 0; i < texts; ++i) of_prompts[i / n].push_back(std::move(all[i]));
  return of_prompts;
}

// The text of whole tokens up to a stop word; `stopped` if there is one, or a stop id.
std::string Continuer::text_of(const Prompt& prompt, const std::vector<std::int32_t>& ids,
                               bool* stopped) const {
  *stopped = !ids.empty() && is_stop(ids.back());
  if (model_.tokenizer() == nullptr) return "";
  StopWords stop(stop_words_);
  StreamDecoder decoder(*model_.tokenizer(), kShown);
  decoder.start_after(before(prompt.ids));
  std::string decoded;
  for (const std::int32_t id : ids) decoded += decoder.push(id);
  std::string text = stop.push(decoded + decoder.finish());
  *stopped = *stopped || stop.found();
  text += stop.finish();
  return replace_bad_utf8(text);
}

std::vector<Continuation> Continuer::beams(const Prompt& prompt) const {
  const auto ids_of = [](std::span<const LikelyToken> tokens) {
    std::vector<std::int32_t> ids;
    for (const LikelyToken& token : tokens) ids.push_back(token.id);
    return ids;
  };
  const bool looks = !stop_words_.empty() || !stop_ids_.empty();
  const auto ends = [&](std::span<const LikelyToken> tokens) {
    bool stopped = false;
    if (looks) text_of(prompt, ids_of(tokens), &stopped);
    return stopped;
  };
  std::vector<Continuation> all;
  for (const Beam& beam : model_.beams(prompt.ids, most_tokens(prompt), beams_, ends)) {
    Continuation& one = all.emplace_back();
    bool stopped = false;
    one.text = text_of(prompt, ids_of(beam.tokens), &stopped);
    for (const LikelyToken& token : beam.tokens) one.tokens.push_back({token, {}});
    one.score = beam.score;
  }
  return all;
}

std::string Continuer::json_line(const Prompt& prompt, const std::vector<Continuation>& all) const {
  const Tokenizer* words = model_.tokenizer();
  const auto object_of = [&](const Continuation& one, bool with_prompt) {
    OrderedJson out;
    out["text"] = echo_ ? text_of(prompt) + one.text : one.text;
    if (with_prompt) out["prompt_ids"] = prompt.ids;
    for (const GeneratedToken& token : one.tokens) {
      out["ids"].push_back(token.id);
      out["log_probabilities"].push_back(token.log_probability);
      if (token.likeliest.empty()) continue;
      OrderedJson likeliest = OrderedJson::array();
      for (const LikelyToken& other : token.likeliest) {
        OrderedJson entry = {{"id", other.id}};
        if (words != nullptr) entry["piece"] = words->piece(other.id);
        entry["log_probability"] = other.log_probability;
        likeliest.push_back(std::move(entry));
      }
      out["likeliest"].push_back(std::move(likeliest));
    }
    if (one.score) out["score"] = *one.score;
    return out;
  };
  OrderedJson out = object_of(all.front(), /*with_prompt=*/true);
  const char* several = beams_.num_beams > 1 ? "beams" : "samples";
  if (all.size() > 1) {
    for (const Continuation& one : all) out[several].push_back(object_of(one, false));
  }
  return line_of(out) + "\n";
}

std::string Continuer::token_lines(const Continuation& one) const {
  const Tokenizer* words = model_.tokenizer();
  const auto shown = [&](const LikelyToken& token) {
    const std::string piece =
        words != nullptr ? line_of(OrderedJson(words->piece(token.id))) : std::to_string(token.id);
    return fmt::format("{:.4f} {}", token.log_probability, piece);
  };
  std::string lines;
  for (const GeneratedToken& token : one.tokens) {
    lines += shown(token);
    for (std::size_t i = 0; i < token.likeliest.size(); ++i) {
      lines += (i == 0 ? "  of  " : ", ") + shown(token.likeliest[i]);
    }
    lines += "\n";
  }
  return lines;
}

}  // namespace piton::cli
