#include "base/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace piton {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SharedLibrary, OpensTheFirstFileThatExists) {
  const SharedLibrary library("mathematics", {"libpiton-has-none.so.7", "libm.so.6"}, "");
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  EXPECT_EQ(cosine(0), 1);
}

TEST(SharedLibrary, NamesTheFileThatIsMissingAndWhatToDo) {
  EXPECT_THAT(
      [] { SharedLibrary("--some-flag", {"libpiton-has-none.so.7"}, "leave it out"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("--some-flag: cannot open libpiton-has-none.so.7: "),
                                 HasSubstr("; leave it out"))));
}

TEST(SharedLibrary, NamesTheFunctionThatIsMissing) {
  const SharedLibrary library("mathematics", {"libm.so.6"}, "");
  void (*function)() = nullptr;
  EXPECT_THAT([&] { library.find(function, "no_such_function"); },
              ThrowsMessage<Error>(HasSubstr("libm.so.6 has no no_such_function")));
}

}  // namespace
}  // namespace piton
