#include "serve/http/request_fields.h"

#include <gtest/gtest.h>

#include "serve/http/request_error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

template <typename F>
std::string refusal(F&& read) {
  try {
    read();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "";
}

TEST(RequestFields, AreReadWithTheirTypes) {
  const auto body =
      request_object(R"({"a":1.5,"b":7,"c":true,"d":"x","e":["y","z"],"f":null,"g":"one"})");
  RequestFields fields(body, "");
  EXPECT_EQ(fields.number("a", 0, 2), 1.5);
  EXPECT_EQ(fields.integer("b", 0, 9), 7);
  EXPECT_EQ(fields.flag("c"), true);
  EXPECT_EQ(fields.text("d"), "x");
  EXPECT_EQ(fields.texts("e", 2).size(), 2U);
  EXPECT_EQ(fields.number("f", 0, 1), std::nullopt);
  EXPECT_EQ(fields.texts("g", 1), std::vector<std::string>{"one"});
  EXPECT_EQ(fields.text("absent"), std::nullopt);
  EXPECT_NO_THROW(fields.refuse_others());
}

TEST(RequestFields, OfWrongTypeOrRangeAreRefused) {
  const auto body = request_object(
      R"({"a":1.5,"b":-1,"c":1,"d":[],"e":["",1],"u":18446744073709551615,"n":"1"})");
  RequestFields fields(body, "");
  EXPECT_EQ(refusal([&] { fields.number("a", 0, 1); }), "a: got 1.5, wanted a number from 0 to 1");
  EXPECT_EQ(refusal([&] { fields.integer("a", 0, 2); }),
            "a: got 1.5, wanted a whole number from 0 to 2");
  EXPECT_NE(refusal([&] { fields.integer("b", 0, 2); }), "");
  EXPECT_NE(refusal([&] { fields.integer("u", INT64_MIN, INT64_MAX); }), "");
  EXPECT_NE(refusal([&] { fields.flag("c"); }), "");
  EXPECT_NE(refusal([&] { fields.text("d"); }), "");
  EXPECT_NE(refusal([&] { fields.texts("e", 4); }), "");
  EXPECT_NE(refusal([&] { fields.number("n", 0, 4); }), "");
}

TEST(RequestFields, ThatNobodyKnowsAreRefused) {
  const auto body = request_object(R"({"temperatur":1})");
  RequestFields fields(body, "");
  fields.number("temperature", 0, 1);
  EXPECT_EQ(refusal([&] { fields.refuse_others(); }),
            "unknown field \"temperatur\"; did you mean \"temperature\"?");
}

TEST(RequestObject, IsOneJsonObject) {
  for (const std::string& body :
       {std::string(""), std::string("{"), std::string("[]"), std::string("1"),
        std::string("{\"a\":\"\xFF\"}"), std::string(100'000, '['), std::string("{\"a\":NaN}"),
        std::string("{\"a\":1e400}"), std::string("{} {}"), std::string("{\"a\":1,}")}) {
    EXPECT_NE(refusal([&] { request_object(body); }), "") << body.substr(0, 20);
  }
  // Nothing about a file: a client sends none.
  EXPECT_EQ(refusal([] { request_object(std::string(100'000, '[')); }),
            "the body of the request is nested too deeply: got more than 64 levels");
}

}  // namespace
}  // namespace piton
