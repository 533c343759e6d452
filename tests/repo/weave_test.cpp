// Insertion of switches for faults into a source.
#include "../../tools/mutate/weave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton::mutate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Every fault of the text whose change is named ("< -> <="), numbered from 1 on; all for "".
std::vector<NumberedFault> numbered(std::string_view text, const std::string& change = "") {
  std::vector<NumberedFault> all;
  for (const Fault& fault : faults_in(text, false)) {
    if (!change.empty() && fault.from + " -> " + fault.to != change) continue;
    all.push_back({static_cast<int>(all.size()) + 1, fault});
  }
  return all;
}

std::string woven(std::string_view text, const std::string& change = "") {
  const std::string whole = weave(text, numbered(text, change), "switch.h").text;
  const std::string head = "#include \"switch.h\"\n#line 1\n";
  EXPECT_TRUE(whole.starts_with(head));
  return whole.substr(head.size());
}

TEST(Weave, SwitchesTheExpressionAroundAnOperator) {
  EXPECT_EQ(woven("x = a < b;"), "x = (piton_fault(1) ? (a <= b) : (a < b));");
  EXPECT_EQ(woven("f(a[i], b + c * d, e);", "* -> /"),
            "f(a[i], (piton_fault(1) ? (b + c / d) : (b + c * d)), e);");
  EXPECT_EQ(woven("return g(x) - std::y;", "- -> +"),
            "return (piton_fault(1) ? (g(x) + std::y) : (g(x) - std::y));");
  EXPECT_EQ(woven("x = a ? b + c : d;", "+ -> -"),
            "x = a ? (piton_fault(1) ? (b - c) : (b + c)) : d;");
  EXPECT_EQ(woven("a.b[c] += d ? e : f;", "+= -> -="),
            "(piton_fault(1) ? (a.b[c] -= d ? e : f) : (a.b[c] += d ? e : f));");
  EXPECT_EQ(woven("if (x) y += z;", "+= -> -="), "if (x) (piton_fault(1) ? (y -= z) : (y += z));");
  EXPECT_EQ(woven("for (int i = k; i < n; ++i) f(i);", "< -> <="),
            "for (int i = k; (piton_fault(1) ? (i <= n) : (i < n)); ++i) f(i);");
  EXPECT_EQ(woven("x = z; } y = T{a} * b;", "* -> /"),
            "x = z; } y = (piton_fault(1) ? (T{a} / b) : (T{a} * b));");
  EXPECT_EQ(woven("if (x) { y(); }\nz -= a;", "-= -> +="),
            "if (x) { y(); }\n(piton_fault(1) ? (z += a) : (z -= a));");
}

TEST(Weave, SwitchesConstantsConditionsAndCalls) {
  EXPECT_EQ(woven("x = y(7);"), "x = y((piton_fault(1) ? (8) : (7)));");
  EXPECT_EQ(woven("if (x) y = z;"), "if ((piton_fault(1) ? (!(x)) : static_cast<bool>(x))) y = z;");
  EXPECT_EQ(woven("if (x) f(); else g();", "f(); -> {}"),
            "if (x) { if (!piton_fault(1)) { f(); } } else g();");
}

TEST(Weave, PutsFaultsIntoOthers) {
  EXPECT_EQ(woven("if (a && b) c = d;"),
            "if ((piton_fault(1) ? (!(a && b)) : piton_fault(2) ? (a || b) : "
            "static_cast<bool>(a && b))) c = d;");
  EXPECT_EQ(woven("f(a < b);"),
            "{ if (!piton_fault(1)) { f((piton_fault(2) ? (a <= b) : (a < b))); } }");
  EXPECT_EQ(woven("x = f(y + z) - 1;", ""),
            "x = (piton_fault(2) ? (f(y + z) + 1) : (f((piton_fault(1) ? (y - z) : (y + z))) - "
            "(piton_fault(3) ? (2) : (1))));");
}

TEST(Weave, KeepsLinesAndLeavesOutComments) {
  const std::string text = "x = a <  // less\n    b;\ny = c;\n";
  const Woven one = weave(text, numbered(text), "switch.h");
  EXPECT_EQ(woven(text),
            "x = (piton_fault(1) ? (a <=        b) : (a <  // less\n    b));\ny = c;\n");
  ASSERT_EQ(one.places.size(), 1U);
  EXPECT_EQ(one.places[0].first_line, 1U);
  EXPECT_EQ(one.places[0].last_line, 2U);
  EXPECT_EQ(one.places[0].variable, "");
}

TEST(Weave, MakesVariablesOfConstants) {
  EXPECT_EQ(woven("constexpr int kA = 3;\nvoid f() {}"),
            "const int kA = (piton_fault(1) ? (4) : (3));\nvoid f() {}");
  EXPECT_EQ(woven("struct A {\n  static constexpr int kB = 3;\n};"),
            "struct A {\n  static inline const int kB = (piton_fault(1) ? (4) : (3));\n};");
  const std::string table = "constexpr T kC[] = {{1, x}, {y, z}};";
  const Woven one = weave(table, numbered(table), "switch.h");
  ASSERT_EQ(one.places.size(), 1U);
  EXPECT_EQ(one.places[0].variable, "kC");
  // What a function that may be constexpr does is no constant.
  EXPECT_EQ(woven("constexpr int f(int x) {\n  return x < y;\n}"),
            "constexpr int f(int x) {\n  return (piton_fault(1) ? (x <= y) : (x < y));\n}");
  EXPECT_EQ(woven("if constexpr (kA) { x = y < z; }", "< -> <="),
            "if constexpr (kA) { x = (piton_fault(1) ? (y <= z) : (y < z)); }");
}

TEST(Weave, LeavesOutRawStrings) {
  const std::string text = "x = f(R\"(\n)\") + y;";
  const Woven one = weave(text, numbered(text), "switch.h");
  EXPECT_THAT(one.left_out, ElementsAre(1));
  EXPECT_THAT(one.places, IsEmpty());
}

}  // namespace
}  // namespace piton::mutate
