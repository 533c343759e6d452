// The lowest validation loss, and how long a run waits for a lower one.
#include "train/run/best_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/errors.h"

namespace piton {
namespace {

std::vector<std::int64_t> waits(double threshold) {
  std::vector<std::int64_t> all;
  std::map<std::string, std::string> facts;
  for (const double loss : {3.0, 2.5, 2.45, 2.4, 2.6, std::nan(""), 2.3, 2.3, 2.0}) {
    BestValidation best = BestValidation::of(facts);  // as a run that is resumed after each
    best.count(std::ssize(all) + 1, loss, threshold);
    best.keep_in(facts);
    all.push_back(best.waited);
  }
  EXPECT_EQ(BestValidation::of(facts).loss, 2.0);
  EXPECT_EQ(BestValidation::of(facts).iteration, 9);
  return all;
}

// Values of EarlyStoppingCallback of Transformers 5.24.0 for the same losses.
TEST(BestValidation, WaitsAsTransformersDoes) {
  EXPECT_EQ(waits(0), (std::vector<std::int64_t>{0, 0, 0, 0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(waits(0.1), (std::vector<std::int64_t>{0, 0, 1, 2, 3, 4, 0, 1, 0}));
}

TEST(BestValidation, NamesAFactThatIsDamaged) {
  std::map<std::string, std::string> facts;
  BestValidation().keep_in(facts);
  EXPECT_FALSE(BestValidation::of(facts).loss.has_value());
  facts.begin()->second = "low 3";
  EXPECT_EQ(message_of(Fault::kData, [&] { BestValidation::of(facts); }),
            "state.json: train.best_validation: got low 3, wanted three numbers");
}

}  // namespace
}  // namespace piton
