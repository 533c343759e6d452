#include "text/jinja/jinja_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"

namespace piton::jinja {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const std::string kGolden = PITON_SOURCE_DIR "/tests/golden/chat/";

Surroundings surroundings_of(const Json& variables) {
  Surroundings surroundings;
  for (const auto& [name, value] : variables.items()) {
    surroundings.variables.emplace_back(name, value_of(value, name));
  }
  // The oracle's clock: 2026-01-05 07:08:09, in any time zone.
  std::tm parts{};
  parts.tm_year = 126;
  parts.tm_mday = 5;
  parts.tm_hour = 7;
  parts.tm_min = 8;
  parts.tm_sec = 9;
  parts.tm_isdst = -1;
  surroundings.now_seconds = std::mktime(&parts);
  return surroundings;
}

std::string rendered(const std::string& source, const Json& variables = Json::object()) {
  return JinjaTemplate(source, "t").render(surroundings_of(variables)).text;
}

std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  return message_of(Fault::kData, [&] { rendered(source, variables); });
}

// "" if Piton gives the recorded text, or an error where Jinja raises one.
std::string difference(const Json& snippet, const Json& variables) {
  const auto source = snippet["source"].get<std::string>();
  const std::string wanted =
      snippet.contains("text") ? "text " + snippet["text"].get<std::string>() : "error";
  std::string got;
  std::string shown;
  try {
    shown = rendered(source, variables);
    got = "text " + shown;
  } catch (const Error& error) {
    got = "error";
    shown = error.what();
  }
  return got == wanted ? "" : source + "\n  wanted " + wanted + "\n  got    " + shown;
}

TEST(JinjaTemplate, RendersSnippetsAsJinja) {
  std::istringstream file(read_text_file(kGolden + "snippets.jsonl"));
  std::string line;
  std::getline(file, line);
  const Json variables = read_json<Json>(line)["variables"];
  std::set<std::string> refused;
  int count = 0;
  while (std::getline(file, line)) {
    const Json snippet = read_json<Json>(line);
    ++count;
    const std::string fault = difference(snippet, variables);
    if (snippet.contains("refused")) {
      EXPECT_THAT(fault, HasSubstr("not supported")) << snippet["source"];
    } else {
      EXPECT_EQ(fault, "");
    }
  }
  EXPECT_GT(count, 500);
}

TEST(JinjaTemplate, NamesTemplateLineAndCauseOfErrors) {
  EXPECT_EQ(error_of("a\n\n{% if x %}"),
            "t: line 3: the template ends inside a block: wanted {% elif %} or {% else %} or "
            "{% endif %}");
  EXPECT_EQ(error_of("a\n{{ missing.x }}"), "t: line 2: 'missing' is undefined");
  EXPECT_EQ(error_of("{% macro f() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ f() }}"),
            "t: line 2: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(error_of("{% if no %}\n{% elif 1 < 'a' %}\n{% endif %}"),
            "t: line 2: '<' not supported between instances of 'int' and 'str'");
  EXPECT_EQ(error_of("{{ raise_exception('No\\nsystem role') }}"),
            "t: line 1: the template refuses the conversation: No\\nsystem role");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "t: line 1: the tag \"include\" is not supported; write the template in one piece");
  EXPECT_EQ(error_of("{% shout %}"), "t: line 1: unknown tag \"shout\"");
  EXPECT_EQ(
      error_of("{% if x %}{% shout %}"),
      "t: line 1: unknown tag \"shout\", wanted {% elif %} or {% else %} or {% endif %} here");
  EXPECT_EQ(error_of("{% 'a' %}"), "t: line 1: got \"a\", wanted the name of a tag");
  EXPECT_EQ(error_of("x{{ 'a' | shout }}"), "t: line 1: no filter named 'shout'");
  EXPECT_EQ(error_of("{{ {}.get() }}"), "t: line 1: get() needs the argument 'key'");
  EXPECT_EQ(error_of("{{ {}.get(1, key=2) }}"), "t: line 1: get() got two values for 'key'");
  EXPECT_EQ(error_of(std::string("\xff")),
            "t: the template is not UTF-8 from byte 0 on; save it as UTF-8");
}

TEST(JinjaTemplate, StopsWhatDoesNotEnd) {
  EXPECT_THAT(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("macros call each other too deeply"));
  std::string sum = "1";
  for (int i = 0; i < 150; ++i) sum += "+1";
  EXPECT_THAT(error_of("{% for a in range(999) %}{% for b in range(999) %}{% if " + sum +
                       " == 0 %}{% endif %}{% endfor %}{% endfor %}"),
              HasSubstr("too many steps"));
  EXPECT_THAT(error_of("{% set ns = namespace(x='0123456789') %}{% for a in range(99) %}"
                       "{% set ns.x = ns.x + ns.x %}{% endfor %}"),
              HasSubstr("makes too much text"));
  EXPECT_THAT(error_of("{{ 'a' * 99999999999 }}"), HasSubstr("makes too much text"));
  EXPECT_THAT(error_of("{{ [0] * 9223372036854775807 }}"), HasSubstr("makes too much text"));
  EXPECT_THAT(error_of("{{ 'a'.rjust(99999999999) }}"), HasSubstr("makes too much text"));
  EXPECT_THAT(error_of("{% set ns = namespace(x=[]) %}{% for a in range(999) %}"
                       "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("{{ 1" + std::string(5000, '+') + "1 }}"), HasSubstr("nested too deeply"));
}

TEST(JinjaTemplate, FreesNamespacesThatContainEachOther) {
  EXPECT_EQ(rendered("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                     "{{ a.b.a.b.a == a }}"),
            "True");
  // A chain that recursion would free with a level for each.
  EXPECT_EQ(rendered("{% set ns = namespace(x=none) %}{% for i in range(99999) %}"
                     "{% set ns.x = namespace(next=ns.x) %}{% endfor %}ok"),
            "ok");
}

TEST(JinjaTemplate, ReportsWhereGenerationBlocksAre) {
  const auto rendering =
      JinjaTemplate("é{% generation %}ab{% endgeneration %}-{% generation %}c{% endgeneration %}",
                    "t")
          .render({});
  ASSERT_EQ(rendering.generation.size(), 2U);
  EXPECT_EQ(rendering.generation[0].begin, 2U);
  EXPECT_EQ(rendering.generation[0].end, 4U);
  EXPECT_EQ(rendering.generation[1].begin, 5U);
  EXPECT_EQ(rendering.generation[1].end, 6U);
  EXPECT_FALSE(rendering.misplaced_generation);
  EXPECT_TRUE(
      JinjaTemplate("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}", "t")
          .render({})
          .misplaced_generation);
}

TEST(JinjaTemplate, RefusesNumbersThatPythonAloneHas) {
  EXPECT_EQ(message_of(Fault::kData, [] { value_of(18446744073709551615U, "x"); }),
            "x: got the integer 18446744073709551615, wanted at most 64 bits; write a text");
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("more than 64 bits"));
}

// The signs and prefixes of Python are not those of C.
TEST(JinjaTemplate, RefusesHexadecimalFormatsThatPythonAloneHas) {
  for (const char* source : {"{{ '%x' % -1 }}", "{{ '%o' % -8 }}", "{{ '%#X' % 255 }}"}) {
    EXPECT_THAT(error_of(source), HasSubstr("this hexadecimal or octal format is not supported"));
  }
}

}  // namespace
}  // namespace piton::jinja
