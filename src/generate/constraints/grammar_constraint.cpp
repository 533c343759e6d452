#include "generate/constraints/grammar_constraint.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/nesting.h"
#include "generate/constraints/grammar_walk.h"
#include "generate/constraints/json_schema.h"
#include "generate/constraints/regular_expression.h"

namespace piton {
namespace {

using Position = GrammarWalk::Position;

constexpr std::size_t kMostPlaces = 20'000;  // 20 MB of transitions
constexpr std::size_t kMostMasks = 256;      // 5 MB for a vocabulary of 150,000

ByteGrammar choices_grammar(const std::string& text, std::string_view where) {
  const auto list = read_json_or_discarded<nlohmann::json>(text);
  const auto is_text = [](const nlohmann::json& one) {
    return one.is_string() && !one.get_ref<const std::string&>().empty();
  };
  if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), is_text))
    throw Error(Fault::kUsage, "{}: wanted a list of texts that are not empty", where);
  GrammarBuilder grammar;
  std::vector<GrammarBuilder::Part> parts;
  for (const nlohmann::json& one : list) parts.push_back(grammar.literal(one.get<std::string>()));
  return grammar.finish(grammar.choice(std::move(parts)), where);
}

ByteGrammar schema_grammar(const std::string& text, std::string_view where) {
  try {
    check_json_depth(text, std::string(where));
  } catch (const Error& error) {
    throw Error(Fault::kUsage, std::string(error.what()));
  }
  const auto schema = read_json_or_discarded<nlohmann::ordered_json>(text);
  if (schema.is_discarded()) throw Error(Fault::kUsage, "{}: the schema is not JSON", where);
  return json_schema_grammar(schema, where);
}

}  // namespace

std::shared_ptr<const ByteGrammar> constraint_grammar(const ConstraintText& constraint,
                                                      std::string_view where) {
  switch (constraint.kind) {
    case ConstraintKind::kJsonSchema:
      return std::make_shared<ByteGrammar>(schema_grammar(constraint.text, where));
    case ConstraintKind::kJsonObject:
      return std::make_shared<ByteGrammar>(json_object_grammar());
    case ConstraintKind::kRegex: {
      GrammarBuilder grammar;
      const auto whole = regular_expression(grammar, constraint.text, {}, where);
      return std::make_shared<ByteGrammar>(grammar.finish(whole, where));
    }
    case ConstraintKind::kChoices:
      return std::make_shared<ByteGrammar>(choices_grammar(constraint.text, where));
    case ConstraintKind::kNone:
      break;
  }
  return nullptr;
}

struct GrammarConstraint::State {
  struct Mask {
    std::vector<bool> allowed;
    bool any = false;
  };

  State(std::shared_ptr<const ByteGrammar> grammar, std::shared_ptr<const TokenTree> vocabulary,
        std::vector<std::int32_t> end_ids)
      : walk(std::move(grammar)),
        tokens(std::move(vocabulary)),
        ends(std::move(end_ids)),
        place(walk.start()) {}

  // The tokens that continue a text at `place`, without ends.
  const Mask& mask() {
    const auto found = masks.find(place);
    if (found != masks.end()) return found->second;
    if (walk.places() > kMostPlaces || masks.size() >= kMostMasks) {
      masks.clear();
      place = walk.forget_others(place);
    }
    std::vector<bool> allowed(static_cast<std::size_t>(tokens->vocabulary()));
    const std::vector<TokenTree::Node>& nodes = tokens->nodes();
    std::vector<Position> path = {place};  // path[d]: after d bytes
    for (std::size_t i = 0; i < nodes.size();) {
      const TokenTree::Node& node = nodes[i];
      const auto depth = static_cast<std::size_t>(node.depth);
      path.resize(depth + 1);
      const Position next = walk.after(path[depth], node.byte);
      if (next == GrammarWalk::kDead) {
        i = static_cast<std::size_t>(node.next);
        continue;
      }
      for (std::int32_t at = node.first_id; at < node.last_id; ++at) {
        allowed[static_cast<std::size_t>(tokens->ids()[at])] = true;
      }
      path.push_back(next);
      ++i;
    }
    const bool any = std::find(allowed.begin(), allowed.end(), true) != allowed.end();
    return masks.emplace(place, Mask{std::move(allowed), any}).first->second;
  }

  GrammarWalk walk;
  std::shared_ptr<const TokenTree> tokens;
  std::vector<std::int32_t> ends;
  Position place;
  bool ended = false;
  std::map<Position, Mask> masks;
};

GrammarConstraint::GrammarConstraint(std::shared_ptr<const ByteGrammar> grammar,
                                     std::shared_ptr<const TokenTree> tokens,
                                     std::vector<std::int32_t> ends)
    : state_(std::make_unique<State>(std::move(grammar), std::move(tokens), std::move(ends))) {}

GrammarConstraint::~GrammarConstraint() = default;

void GrammarConstraint::allow(std::vector<bool>& allowed) {
  if (done()) return;
  const std::vector<bool>& mask = state_->mask().allowed;
  const std::size_t common = std::min(mask.size(), allowed.size());
  std::copy(mask.begin(), mask.begin() + static_cast<std::ptrdiff_t>(common), allowed.begin());
  const bool may_end = state_->walk.may_end(state_->place);
  for (const std::int32_t id : state_->ends) {
    if (id >= 0 && static_cast<std::size_t>(id) < allowed.size())
      allowed[static_cast<std::size_t>(id)] = may_end;
  }
}

void GrammarConstraint::advance(std::int32_t id) {
  State& s = *state_;
  if (std::find(s.ends.begin(), s.ends.end(), id) != s.ends.end()) {
    s.ended = true;
    return;
  }
  for (const char byte : s.tokens->bytes(id)) {
    s.place = s.walk.after(s.place, static_cast<std::uint8_t>(byte));
    PITON_ASSERT(s.place != GrammarWalk::kDead, "token {} was not allowed", id);
  }
}

bool GrammarConstraint::done() const {
  State& s = *state_;
  if (s.ended || !s.walk.may_continue(s.place)) return true;
  const bool may_end = s.walk.may_end(s.place) && !s.ends.empty();
  return !s.mask().any && !may_end;  // the mask is needed for the next token anyway
}

bool GrammarConstraint::complete() const {
  return state_->ended || state_->walk.may_end(state_->place);
}

}  // namespace piton
