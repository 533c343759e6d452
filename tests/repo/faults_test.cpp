// The faults that tools/mutate.sh inserts into sources.
#include "../../tools/mutate/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton::mutate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "from -> to" of each.
std::vector<std::string> faults(std::string_view text, bool is_header = false) {
  std::vector<std::string> all;
  for (const Fault& fault : faults_in(text, is_header))
    all.push_back(fault.from + " -> " + fault.to);
  return all;
}

TEST(Faults, ChangeRelationsOperatorsAndConditions) {
  EXPECT_THAT(faults("x = a < b && c != d;"), ElementsAre("< -> <=", "&& -> ||", "!= -> =="));
  EXPECT_THAT(faults("x += a * b - c / d % e;"),
              ElementsAre("+= -> -=", "* -> /", "- -> +", "/ -> *", "% -> *"));
  EXPECT_THAT(faults("if (a) f = g;"), ElementsAre("a -> !(a)"));
  EXPECT_THAT(faults("if (auto x = f(); x.y) z = x;"), ElementsAre(" x.y ->  !( x.y)"));
  EXPECT_THAT(faults("if (const auto x = f()) z = x;"), IsEmpty());
}

TEST(Faults, ChangeConstants) {
  EXPECT_THAT(faults("f = 7 + 1'000;"), ElementsAre("7 -> 8", "+ -> -", "1'000 -> 1001"));
  EXPECT_THAT(faults("x = 0.5F;"), ElementsAre("0.5F -> 2 * 0.5F"));
  EXPECT_THAT(faults("x = 0.0;"), ElementsAre("0.0 -> 1.0"));
  EXPECT_THAT(faults("x = 1e-5;"), ElementsAre("1e-5 -> 2 * 1e-5"));
  EXPECT_THAT(faults("x = true;"), ElementsAre("true -> false"));
  EXPECT_THAT(faults("x = 0xFF;"), IsEmpty());
}

TEST(Faults, LeaveOutCallsThatAreStatements) {
  EXPECT_THAT(faults("f();\n  a.b->c(d,\n  e);"),
              ElementsAre("f(); -> {}", "a.b->c(d,\n  e); -> {\n}"));
  EXPECT_THAT(faults("if (x) clear();"), ElementsAre("x -> !(x)", "clear(); -> {}"));
  EXPECT_THAT(faults("Type name(x);\nreturn f(x);\ny = f(x);"), IsEmpty());
}

TEST(Faults, AreNotMadeInWhatIsNoWorkOfTheProgram) {
  EXPECT_THAT(faults("// a < b\n/* 1 + 2 */ x = \"1 < 2\" R\"(3 + 4)\" '1';"), IsEmpty());
  EXPECT_THAT(faults("#if A < 1 && \\\n  B > 2\n#endif\n"), IsEmpty());
  EXPECT_THAT(faults("PITON_ASSERT(a < b, \"{}\", 1 + 2);"), IsEmpty());
  EXPECT_THAT(faults("throw Error(Fault::kData, \"{}\", 1 + 2);"), IsEmpty());
  EXPECT_THAT(faults("log.info(fmt::format(\"{}\", 1 + 2));"), IsEmpty());
  EXPECT_THAT(faults("std::array<int, 4> x; std::vector<T*>& y; int f(T&& z); A<3> w;"), IsEmpty());
}

TEST(Faults, OfAHeaderLeaveTheZerosThatMembersStartWith) {
  const char* text = "struct A {\n  int a = 0;\n  bool b = false;\n  double c = 0.9;\n};";
  EXPECT_THAT(faults(text, /*is_header=*/true), ElementsAre("0.9 -> 2 * 0.9"));
  EXPECT_THAT(faults("virtual int f() const = 0;", true), IsEmpty());
}

TEST(Faults, KeepTheLines) {
  const std::string text = "int a;\nf(1,\n  2);\nint b = 3;\n";
  for (const Fault& fault : faults_in(text, false)) {
    const std::string changed = with_fault(text, fault);
    EXPECT_EQ(line_of(changed, changed.size()), line_of(text, text.size())) << fault.to;
    EXPECT_NE(changed, text);
  }
  EXPECT_EQ(line_of(text, text.find('2')), 3U);
}

}  // namespace
}  // namespace piton::mutate
