#include "generate/constraints/json_syntax.h"

#include "generate/constraints/characters.h"
#include "generate/constraints/json_numbers.h"

namespace piton {

using Part = GrammarBuilder::Part;

Part JsonSyntax::byte(char c) {
  const auto value = static_cast<std::uint8_t>(c);
  return grammar_.bytes(value, value);
}

Part JsonSyntax::space() {
  if (!space_) {
    space_ = grammar_.new_rule();
    const Part line = grammar_.sequence({byte('\n'), grammar_.repeat(byte(' '), 0, 16)});
    grammar_.define(*space_, grammar_.choice({grammar_.sequence({}), byte(' '), line}));
  }
  return grammar_.call(*space_);
}

Part JsonSyntax::character() {
  if (!character_) {
    character_ = grammar_.new_rule();
    const CharacterSet plain = complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}});
    std::vector<Part> escaped;
    for (const char c : std::string_view("\"\\/bfnrt")) escaped.push_back(byte(c));
    const auto digit = [&](std::string_view ranges) {  // pairs of first and last
      std::vector<Part> parts;
      for (std::size_t i = 0; i < ranges.size(); i += 2) {
        parts.push_back(grammar_.bytes(static_cast<std::uint8_t>(ranges[i]),
                                       static_cast<std::uint8_t>(ranges[i + 1])));
      }
      return grammar_.choice(std::move(parts));
    };
    const auto any = [&] { return digit("09afAF"); };
    // A number of four digits that is no surrogate.
    escaped.push_back(
        grammar_.sequence({byte('u'),
                           grammar_.choice({grammar_.sequence({digit("09acACefEF"), any()}),
                                            grammar_.sequence({digit("ddDD"), digit("07")})}),
                           any(), any()}));
    grammar_.define(*character_,
                    grammar_.choice({one_of(grammar_, plain, TextForm::kPlain),
                                     grammar_.sequence({byte('\\'), grammar_.choice(escaped)})}));
  }
  return grammar_.call(*character_);
}

Part JsonSyntax::quoted(Part content) { return grammar_.sequence({byte('"'), content, byte('"')}); }

Part JsonSyntax::string(std::int64_t least, std::optional<std::int64_t> most) {
  return quoted(grammar_.repeat(character(), least, most));
}

Part JsonSyntax::member(Part key, Part value) {
  return grammar_.sequence({key, byte(':'), space(), value});
}

Part JsonSyntax::comma() { return grammar_.sequence({byte(','), space()}); }

Part JsonSyntax::enclosed(char open, Part content, char close) {
  return grammar_.sequence({byte(open), space(), content, byte(close)});
}

Part JsonSyntax::any_object() {
  const Part member = this->member(string(0, std::nullopt), any_value());
  const Part more = grammar_.repeat(grammar_.sequence({comma(), member}), 0, std::nullopt);
  return enclosed('{', grammar_.optional(grammar_.sequence({member, more, space()})), '}');
}

Part JsonSyntax::any_array() {
  const Part more = grammar_.repeat(grammar_.sequence({comma(), any_value()}), 0, std::nullopt);
  return enclosed('[', grammar_.optional(grammar_.sequence({any_value(), more, space()})), ']');
}

Part JsonSyntax::any_value() {
  if (!value_) {
    value_ = grammar_.new_rule();
    grammar_.define(*value_,
                    grammar_.choice({any_object(), any_array(), string(0, std::nullopt),
                                     json_number(grammar_, {}, "number"), grammar_.literal("true"),
                                     grammar_.literal("false"), grammar_.literal("null")}));
  }
  return grammar_.call(*value_);
}

}  // namespace piton
