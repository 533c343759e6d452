#include "train/run/failure_report.h"

#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

const Failure kCause{.exit_code = 3, .fault = "data", .message = "corpus: cut short"};
const Failure kOtherCause{.exit_code = 4, .fault = "memory", .message = "no room"};
const Failure kConsequence{.exit_code = 6, .fault = "peer", .message = "rank 1 is gone"};

std::string message_in(const std::filesystem::path& folder) {
  return read_json<nlohmann::json>(read_text_file(folder / "failure.json")).at("message");
}

TEST(FailureReport, KeepsTheFirstCauseAndLetsItTakeThePlaceOfAConsequence) {
  const TempFolder folder;
  const FailureReport report(folder.path());
  report.write(0, kConsequence);
  EXPECT_EQ(message_in(folder.path()), kConsequence.message);
  report.write(1, kCause);
  EXPECT_EQ(message_in(folder.path()), kCause.message);
  report.write(2, kOtherCause);
  report.write(0, kConsequence);
  EXPECT_EQ(message_in(folder.path()), kCause.message);
  const auto files = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "drafts are left";
}

TEST(FailureReport, OfAnEarlierRunCountsForNothing) {
  const TempFolder folder;
  FailureReport(folder.path()).write(0, kCause);
  const FailureReport next(folder.path());
  next.write(1, kConsequence);
  EXPECT_EQ(message_in(folder.path()), kConsequence.message);
  next.forget_earlier();  // which is gone already
  EXPECT_EQ(message_in(folder.path()), kConsequence.message);
  FailureReport(folder.path()).forget_earlier();
  EXPECT_FALSE(std::filesystem::exists(folder / "failure.json"));
}

TEST(FailureReport, TakesAnyBytesAndAFolderThatIsNotThere) {
  const TempFolder folder;
  Failure failure = kCause;
  failure.message = "corpus \xff\xfe: not found";
  FailureReport(folder.path()).write(0, failure);
  EXPECT_NE(message_in(folder.path()).find("not found"), std::string::npos);
  FailureReport(folder / "nowhere").write(0, kCause);
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
  FailureReport("").write(0, kCause);
}

TEST(FailureOf, GivesEveryExceptionACode) {
  EXPECT_EQ(failure_of(Error(Fault::kDiverged, std::string("x"))).exit_code, 5);
  EXPECT_EQ(failure_of(std::bad_alloc()).exit_code, 4);
  EXPECT_EQ(failure_of(std::filesystem::filesystem_error("x", "file", {})).exit_code, 3);
  const Failure other = failure_of(std::runtime_error("odd"));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(other.fault, kInternalFault);
  EXPECT_EQ(other.message, "odd");
}

}  // namespace
}  // namespace piton
