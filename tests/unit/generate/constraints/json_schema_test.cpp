#include "generate/constraints/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/generate/constraints/grammar_texts.h"

namespace piton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

test::GrammarTexts schema_texts(std::string_view schema) {
  return test::GrammarTexts(json_schema_grammar(read_json<Json>(schema), "schema"));
}

std::string schema_refusal(std::string_view schema) {
  try {
    schema_texts(schema);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    return error.what();
  }
  return "nothing";
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  auto texts = schema_texts(R"({"type":"object","properties":{"a":{"type":"integer"},
    "b":{"type":"string"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false})");
  EXPECT_TRUE(texts.has(R"({"a":1,"b":"x","c":null})"));
  EXPECT_TRUE(texts.has("{\n  \"a\": 1,\n  \"b\": \"x\"\n}"));
  EXPECT_TRUE(texts.has(R"({"b":""})"));
  EXPECT_TRUE(texts.has(R"({"b":"\u00e9","c":null})"));
  EXPECT_FALSE(texts.has(R"({"a":1})"));
  EXPECT_FALSE(texts.has(R"({"b":"x","a":1})"));
  EXPECT_FALSE(texts.has(R"({"b":"x",})"));
  EXPECT_FALSE(texts.has(R"({,"b":"x"})"));
  EXPECT_FALSE(texts.has(R"({"b":"x","d":1})"));
  EXPECT_FALSE(texts.has(R"({"b":"x"} )"));
  EXPECT_TRUE(schema_texts(R"({"type":"object","additionalProperties":false})").has("{}"));
  EXPECT_FALSE(schema_texts(R"({"type":"object","additionalProperties":false})").has(R"({"a":1})"));
  auto map = schema_texts(R"({"additionalProperties":{"type":"boolean"}})");
  EXPECT_TRUE(map.has(R"({"x": true, "y":false})"));
  EXPECT_FALSE(map.has(R"({"x":1})"));
  EXPECT_TRUE(schema_texts(R"({"required":["a"]})").has(R"({"a":[{"b":[]}]})"));
}

TEST(JsonSchema, LinesAreIndentedBySixteenSpacesAtMost) {
  auto texts = schema_texts(R"({"type":"array","items":{"type":"integer"}})");
  EXPECT_TRUE(texts.has("[\n" + std::string(16, ' ') + "1]"));
  EXPECT_FALSE(texts.has("[\n" + std::string(17, ' ') + "1]"));
}

TEST(JsonSchema, ArraysHaveTheirLengths) {
  auto texts =
      schema_texts(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})");
  EXPECT_FALSE(texts.has("[]"));
  EXPECT_TRUE(texts.has("[1]"));
  EXPECT_TRUE(texts.has("[1, 2,3]"));
  EXPECT_FALSE(texts.has("[1,2,3,4]"));
  EXPECT_FALSE(texts.has("[1 2]"));
  EXPECT_TRUE(schema_texts(R"({"type":"array"})").has(R"([[],{"a":null},-1.5e3,"x"])"));
  auto given =
      schema_texts(R"({"prefixItems":[{"const":1},{"const":2}],"items":{"const":3},"minItems":1})");
  EXPECT_FALSE(given.has("[]"));
  EXPECT_TRUE(given.has("[1]"));
  EXPECT_TRUE(given.has("[1,2]"));
  EXPECT_TRUE(given.has("[1,2,3,3]"));
  EXPECT_FALSE(given.has("[1,3]"));
  auto short_one = schema_texts(R"({"prefixItems":[{"const":1},{"const":2}],"maxItems":1})");
  EXPECT_TRUE(short_one.has("[]"));
  EXPECT_TRUE(short_one.has("[1]"));
  EXPECT_FALSE(short_one.has("[1,2]"));
  EXPECT_TRUE(schema_texts(R"({"type":"array","maxItems":0})").has("[]"));
}

TEST(JsonSchema, StringsHaveLengthsPatternsAndFormats) {
  auto texts = schema_texts(R"({"type":"string","minLength":2,"maxLength":3})");
  EXPECT_FALSE(texts.has(R"("a")"));
  EXPECT_TRUE(texts.has(R"("é\n")"));
  EXPECT_TRUE(texts.has(R"("a\ud7ffb")"));
  EXPECT_FALSE(texts.has(R"("\ud800b")"));
  EXPECT_FALSE(texts.has(R"("abcd")"));
  EXPECT_TRUE(schema_texts(R"({"pattern":"^a\"b$"})").has(R"("a\"b")"));
  EXPECT_TRUE(schema_texts(R"({"format":"date-time"})").has(R"("2024-02-28T23:59:59.5+01:00")"));
  EXPECT_TRUE(schema_texts(R"({"format":"ipv4"})").has(R"("255.0.10.199")"));
  EXPECT_FALSE(schema_texts(R"({"format":"ipv4"})").has(R"("256.0.0.1")"));
}

TEST(JsonSchema, ReferencesMayBeRecursive) {
  auto texts = schema_texts(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":
    {"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["next"]}}})");
  std::string nested = "null";
  for (int i = 0; i < 200; ++i) nested = R"({"next":)" + nested + "}";
  EXPECT_TRUE(texts.has(nested));
  EXPECT_FALSE(texts.has(nested + "}"));
  EXPECT_TRUE(
      schema_texts(R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"$ref":"#"}}]})")
          .has("[[1],[],[[2]]]"));
}

// As Pydantic 2 writes a field Union[Cat, Dog] with Field(discriminator="kind").
TEST(JsonSchema, OneOfHasEachAlternative) {
  auto texts = schema_texts(R"({"$defs":{
    "Cat":{"type":"object","title":"Cat","properties":{"kind":{"const":"cat","type":"string"},
      "lives":{"type":"integer"}},"required":["kind","lives"]},
    "Dog":{"type":"object","properties":{"kind":{"const":"dog"}},"required":["kind"]}},
    "type":"object","properties":{"pet":{"title":"Pet","oneOf":[{"$ref":"#/$defs/Cat"},
      {"$ref":"#/$defs/Dog"}],"discriminator":{"mapping":{"cat":"#/$defs/Cat"},
      "propertyName":"kind"}}},"required":["pet"]})");
  EXPECT_TRUE(texts.has(R"({"pet":{"kind":"cat","lives":9}})"));
  EXPECT_TRUE(texts.has(R"({"pet":{"kind":"dog"}})"));
  EXPECT_FALSE(texts.has(R"({"pet":{"kind":"dog","lives":9}})"));
}

TEST(JsonSchema, AllOfIsWhatEachMemberAccepts) {
  auto texts = schema_texts(R"({"$defs":{"Named":{"properties":{"name":{"type":"string"},
      "size":{"properties":{"w":{"type":"integer"}},"required":["w"]}},"required":["name"]}},
    "allOf":[{"$ref":"#/$defs/Named"},{"description":"nothing"},{"type":"object","properties":{
      "age":{"type":"integer"},"size":{"properties":{"h":{"type":"null"}}}},"required":["age"]}],
    "properties":{"next":{"allOf":[{"$ref":"#"}]}}})");
  EXPECT_TRUE(texts.has(R"({"name":"x","age":1})"));
  EXPECT_TRUE(texts.has(R"({"name":"x","size":{"w":1,"h":null},"age":1})"));
  EXPECT_FALSE(texts.has(R"({"name":"x","size":{"h":null},"age":1})"));
  EXPECT_FALSE(texts.has(R"({"name":"x"})"));
  EXPECT_FALSE(texts.has(R"({"age":1})"));
  EXPECT_TRUE(schema_texts(R"({"allOf":[{"type":"null"}],"default":null})").has("null"));
  auto nested = schema_texts(R"({"properties":{"a":{"allOf":[{"$ref":"#"}],"title":"A"}}})");
  EXPECT_TRUE(nested.has(R"({"a":{"a":{}}})"));
}

TEST(JsonSchema, ValuesAreThoseOfTheList) {
  auto texts =
      schema_texts(R"({"enum":["a b",1,null,[1,{"x":2}]],"type":["string","null","array"]})");
  EXPECT_TRUE(texts.has(R"("a b")"));
  EXPECT_TRUE(texts.has(R"([1,{"x":2}])"));
  EXPECT_TRUE(texts.has("null"));
  EXPECT_FALSE(texts.has("1"));
}

TEST(JsonSchema, ThatNothingSatisfiesIsRefused) {
  EXPECT_THAT(schema_refusal(R"({"type":"object","properties":{"a":false},"required":["a"]})"),
              HasSubstr("no text satisfies it"));
  EXPECT_THAT(
      schema_refusal(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
      HasSubstr("no text satisfies it"));
  EXPECT_THAT(schema_refusal(R"({"$ref":"#"})"), HasSubstr("refers to itself"));
  EXPECT_THAT(schema_refusal(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"),
              HasSubstr("refers to itself"));
  EXPECT_THAT(schema_refusal(R"({"type":"array","minItems":2,"maxItems":1})"),
              HasSubstr("nothing satisfies"));
  EXPECT_THAT(schema_refusal(R"({"minimum":2,"maximum":1})"), HasSubstr("nothing satisfies"));
  EXPECT_THAT(schema_refusal(R"({"type":"integer","minimum":1.2,"maximum":1.8})"),
              HasSubstr("no text satisfies it"));
  EXPECT_THAT(schema_refusal(R"({"enum":[]})"), HasSubstr("nothing satisfies"));
  EXPECT_THAT(schema_refusal("false"), HasSubstr("no text satisfies it"));
  EXPECT_EQ(schema_refusal(R"({"anyOf":[false,{"type":"null"}]})"), "nothing");
}

TEST(JsonSchema, ThatIsNotSupportedNamesThePlace) {
  EXPECT_EQ(schema_refusal(R"({"properties":{"a":{"not":{}}}})"),
            "schema: /properties/a: keyword \"not\" is not supported");
  EXPECT_EQ(schema_refusal(R"({"allOf":[{"properties":{}},{"type":"object"}]})"),
            "schema: /allOf: several members are supported where each has \"properties\"");
  EXPECT_THAT(
      schema_refusal(
          R"({"allOf":[{"properties":{}},{"properties":{},"additionalProperties":false}]})"),
      HasSubstr("members are supported without \"additionalProperties\": false"));
  EXPECT_THAT(schema_refusal(R"({"allOf":[{"$ref":"#/$defs/x"},{}]})"),
              HasSubstr("/allOf: has a reference to nothing"));
  EXPECT_THAT(schema_refusal(R"({"allOf":[{"$ref":"#"},{"properties":{}}]})"),
              HasSubstr("refer to each other without end"));
  EXPECT_THAT(schema_refusal(R"({"type":"strin"})"),
              HasSubstr("/type: got \"strin\", wanted one of object"));
  for (const char* schema : {"1",
                             R"({"type":[]})",
                             R"({"properties":[]})",
                             R"({"required":"a"})",
                             R"({"minItems":-1})",
                             R"({"minLength":1.5})",
                             R"({"maxItems":1000000000})",
                             R"({"minimum":"a"})",
                             R"({"pattern":"("})",
                             R"({"format":"color"})",
                             R"({"pattern":"a","minLength":1})",
                             R"({"$ref":"#/$defs/x"})",
                             R"({"$ref":"http://x"})",
                             R"({"$ref":"#","type":"null"})",
                             R"({"anyOf":[]})",
                             R"({"multipleOf":2})",
                             R"({"not":{}})",
                             R"({"uniqueItems":true})",
                             R"({"oneOf":[]})",
                             R"({"oneOf":[{"type":"null"}],"minLength":1})",
                             R"({"allOf":[]})",
                             R"({"allOf":1})",
                             R"({"enum":1})",
                             R"({"prefixItems":1})",
                             R"({"type":"number","minimum":1e300})"}) {
    EXPECT_NE(schema_refusal(schema), "nothing") << schema;
  }
}

TEST(JsonSchema, DrawnTextsAreJson) {
  auto texts = schema_texts("true");
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text = texts.draw(random, 60);
    EXPECT_FALSE(read_json_or_discarded<Json>(text).is_discarded()) << text;
  }
  test::GrammarTexts objects(json_object_grammar());
  EXPECT_TRUE(objects.has(R"({"a": {"b": [1, 2.5, "x", true]}})"));
  EXPECT_FALSE(objects.has("[]"));
}

}  // namespace
}  // namespace piton
