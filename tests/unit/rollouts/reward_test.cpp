#include "rollouts/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/files/files.h"
#include "rollouts/reward_program.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> rewards_of(const RolloutOptions& options, const std::vector<Json>& records,
                               const std::vector<std::string>& texts) {
  std::vector<JudgedAnswer> answers;
  for (std::size_t i = 0; i < texts.size(); ++i) answers.push_back({&records[i], texts[i]});
  return make_rewards(options).at(0)->rewards(answers);
}

TEST(Rewards, OfAnswersCompareWithTheRecord) {
  const std::vector<Json> records = {{{"prompt", "a"}, {"answer", "12"}},
                                     {{"prompt", "b"}, {"answer", 0.5}}};
  EXPECT_THAT(rewards_of({.rewards = {"answer"}}, records, {"so 12.", "0.50"}), ElementsAre(1, 1));
  EXPECT_THAT(rewards_of({.rewards = {"answer"}}, records, {"so 13.", ""}), ElementsAre(0, 0));
  EXPECT_THAT(message_of(Fault::kData,
                         [] {
                           answer_of_record({{"prompt", "a"}});
                         }),
              HasSubstr("it has no \"answer\""));
}

TEST(Rewards, OfPatternsAreOfWholeTexts) {
  const std::vector<Json> records(3, Json{{"prompt", "a"}});
  const RolloutOptions options{.rewards = {"pattern"}, .reward_pattern = "a+|b"};
  EXPECT_THAT(rewards_of(options, records, {"aa", "aab", "b"}), ElementsAre(1, 0, 1));
  EXPECT_THAT(rewards_of({.rewards = {"pattern"}, .reward_pattern = "(?s)<think>.*</think>.+"},
                         records, {"<think>\n1</think>2", "<think>", "1"}),
              ElementsAre(1, 0, 0));
  for (const char* bad : {"(", "a)(b"})
    EXPECT_THAT(message_of(Fault::kUsage,
                           [&] { make_rewards({.rewards = {"pattern"}, .reward_pattern = bad}); }),
                HasSubstr("--reward-pattern"));
}

// get_soft_overlong_punishment(100, 20) of TRL.
TEST(Rewards, OfOverlongAnswersFallFrom0ToMinus1InTheBuffer) {
  const Json record = {{"prompt", "a"}};
  std::vector<JudgedAnswer> answers;
  for (const std::int64_t tokens : {1, 80, 81, 90, 100}) answers.push_back({&record, "b", tokens});
  const RolloutOptions options{
      .max_completion_length = 100, .rewards = {"overlong"}, .overlong_buffer = 20};
  EXPECT_THAT(make_rewards(options).at(0)->rewards(answers), ElementsAre(0, 0, -0.05, -0.5, -1));
}

TEST(Rewards, OfAProgramAreTheNumbersThatItWrites) {
  const std::vector<Json> records = {{{"prompt", "a"}, {"level", 3}},
                                     {{"messages", Json::array({{{"role", "user"}}})}}};
  const RolloutOptions options{.rewards = {"command"},
                               .reward_command = "while read -r line; do echo ${#line}; done"};
  const std::string first = R"({"prompt":"a","completion":"b\nc","level":3})";
  const std::string second = R"({"prompt":[{"role":"user"}],"completion":""})";
  EXPECT_EQ(line_about({&records[0], "b\nc"}), first);
  EXPECT_EQ(line_about({&records[1], ""}), second);
  EXPECT_THAT(rewards_of(options, records, {"b\nc", ""}), ElementsAre(first.size(), second.size()));
}

TEST(RewardProgram, ReadsManyLinesAndAnswersAgain) {
  RewardProgram program("while read -r line; do echo ${#line}; done", 60);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> lines;
    std::vector<double> wanted;
    for (std::size_t i = 0; i < 300; ++i) {
      lines.emplace_back(i * 20, 'x');
      wanted.push_back(static_cast<double>(i * 20));
    }
    EXPECT_EQ(program.numbers(lines), wanted);
  }
  EXPECT_TRUE(program.numbers({}).empty());
}

TEST(RewardProgram, ThatFailsIsNamed) {
  struct Case {
    const char* command;
    const char* says;
  };
  const std::vector<std::string> lines = {"one", "two"};
  for (const Case& one :
       {Case{"exit 3", "exit 3 ended with exit code 3 before it had written the reward"},
        Case{"no-such-program-at-all", "ended with exit code 127"},
        Case{"read -r x; echo 1", "ended with exit code 0"},
        Case{"read -r x; echo good; cat", "wrote \"good\", wanted one finite number on each line"},
        Case{"read -r x; echo nan; cat", "wrote \"nan\""},
        Case{"read -r x; echo; cat", "wrote \"\""}, Case{"kill -9 $$", "was ended by signal 9"},
        Case{"read -r x; echo 1; cat > /dev/null",
             "was silent for 1 seconds, after 1 of 2 rewards"}}) {
    RewardProgram program(one.command, 1);
    EXPECT_THAT(message_of(Fault::kData, [&] { program.numbers(lines); }), HasSubstr(one.says));
  }
}

TEST(RewardProgram, IsRefusedIfAShellWouldNotFindIt) {
  const TempFolder folder;
  const std::string script = (folder / "judge").string();
  write_text_file(script, "#!/bin/sh\n");
  const auto says = [](const std::string& command) {
    return message_of(Fault::kUsage, [&] { check_reward_command(command); });
  };
  EXPECT_EQ(says("no-such-program-at-all --x"),
            "--reward-command: there is no program no-such-program-at-all on the PATH; check its "
            "name, or give its path");
  EXPECT_EQ(says(" /no/such/program"),
            "--reward-command: there is no /no/such/program; check the path");
  EXPECT_EQ(says(script + " 3"), "--reward-command: " + script +
                                     " is not executable; chmod +x it, or give its interpreter, as "
                                     "in \"python3 " +
                                     script + "\"");
  EXPECT_EQ(says("echo 'x"),
            "--reward-command: /bin/sh cannot read echo 'x; check its quotes and brackets");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  for (const std::string& good :
       {script, "sh " + script, std::string("while read -r x; do echo 1; done"),
        std::string("exec cat"), std::string("(exit 1)"), std::string("A=1 cat"),
        std::string("{ cat; }"), std::string("\"$HOME/judge\""), std::string("cat|cat")})
    check_reward_command(good);
}

TEST(RewardProgram, ThatWritesMoreIsRefusedBeforeItsNumbersAreMistaken) {
  RewardProgram program("read -r x; echo 1; echo 2; cat > /dev/null", 60);
  const std::vector<std::string> lines = {"one"};
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           program.numbers(lines);
                           ::usleep(200'000);
                           program.numbers(lines);
                         }),
              HasSubstr("wrote more lines than it was given answers"));
}

TEST(RolloutOptions, AreRefusedWhereTheyContradict) {
  const RolloutOptions good{.rewards = {"answer"}};
  good.check();
  RolloutOptions().check_absent("sft");
  const auto says = [](RolloutOptions options) {
    return message_of(Fault::kUsage, [&] { options.check(); });
  };
  EXPECT_THAT(says({}), HasSubstr("--stage grpo: no reward"));
  EXPECT_THAT(says({.rewards = {"good"}}), HasSubstr("--reward: got good, wanted answer"));
  EXPECT_THAT(says({.rewards = {"answer", "answer"}}), HasSubstr("got answer twice"));
  EXPECT_THAT(says({.rewards = {"pattern"}, .reward_pattern = "(a"}),
              HasSubstr("--reward-pattern"));
  EXPECT_THAT(says({.rewards = {"pattern"}}), HasSubstr("needs --reward-pattern REGEX"));
  EXPECT_THAT(says({.rewards = {"answer"}, .reward_command = "cat"}),
              HasSubstr("--reward-command: is for --reward command"));
  EXPECT_THAT(says({.rewards = {"answer"}, .reward_weights = {1, 2}}),
              HasSubstr("--reward-weights: got 2 weights, wanted one for each of 1"));
  EXPECT_THAT(says({.num_generations = 1, .rewards = {"answer"}}),
              HasSubstr("--num-generations: got 1, wanted 2"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { good.check_absent("dpo"); }),
              HasSubstr("--reward: is for --stage grpo and ppo, got --stage dpo"));
}

}  // namespace
}  // namespace piton
