#include "text/bpe_merger.h"

#include <gtest/gtest.h>

#include <random>

namespace piton {
namespace {

// The definition, word for word: again and again the lowest order, the leftmost of equals.
std::vector<std::int32_t> merge_plainly(const std::vector<MergeRule>& rules,
                                        std::vector<std::int32_t> symbols) {
  while (true) {
    const MergeRule* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (const MergeRule& rule : rules) {
        if (rule.left == symbols[i] && rule.right == symbols[i + 1] &&
            (best == nullptr || rule.order < best->order)) {
          best = &rule;
          best_at = i;
        }
      }
    }
    if (best == nullptr) return symbols;
    symbols[best_at] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeMerger, ShortAndLongWordsEqualTheDefinition) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    // Rules over a small alphabet, orders shuffled and some of them equal: merges that enable an
    // earlier one are frequent.
    std::vector<MergeRule> rules;
    std::int32_t next = 4;
    for (int i = 0; i < 12; ++i) {
      const MergeRule rule{static_cast<std::int32_t>(random() % next),
                           static_cast<std::int32_t>(random() % next), next++,
                           static_cast<std::uint32_t>(random() % 10)};
      rules.push_back(rule);
    }
    std::vector<MergeRule> unique;
    for (const MergeRule& rule : rules) {
      bool known = false;
      for (const MergeRule& u : unique) known |= u.left == rule.left && u.right == rule.right;
      if (!known) unique.push_back(rule);
    }
    const MergeTable table(unique);
    BpeMerger merger(table);
    for (const std::size_t length : {1, 2, 7, 12, 13, 40, 64, 65, 200, 1000}) {
      std::vector<std::int32_t> symbols(length);
      for (auto& symbol : symbols) symbol = static_cast<std::int32_t>(random() % 4);
      const auto wanted = merge_plainly(unique, symbols);
      symbols.resize(merger.merge(symbols.data(), symbols.size()));
      ASSERT_EQ(symbols, wanted) << "trial " << trial << ", length " << length;
    }
  }
}

TEST(MergeTable, TheLaterOfTwoRulesForAPairStands) {
  const MergeTable table(std::vector<MergeRule>{{1, 2, 3, 0}, {1, 2, 4, 1}});
  EXPECT_EQ(table.find(1, 2).result, 4);
  EXPECT_EQ(table.find(2, 1).order, MergeTable::kNone);
}

}  // namespace
}  // namespace piton
