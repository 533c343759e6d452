#include "tasks/subjects.h"

#include <algorithm>
#include <array>
#include <span>

namespace piton {
namespace {

// From the task files of lm-evaluation-harness 0.4.13 (MIT).
struct Pair {
  std::string_view subject;
  std::string_view value;
};

constexpr auto kCeval = std::to_array<Pair>({
    {"accountant", "注册会计师"},
    {"advanced_mathematics", "高等数学"},
    {"art_studies", "艺术学"},
    {"basic_medicine", "基础医学"},
    {"business_administration", "工商管理"},
    {"chinese_language_and_literature", "中国语言文学"},
    {"civil_servant", "公务员"},
    {"clinical_medicine", "临床医学"},
    {"college_chemistry", "大学化学"},
    {"college_economics", "大学经济学"},
    {"college_physics", "大学物理"},
    {"college_programming", "大学编程"},
    {"computer_architecture", "计算机组成"},
    {"computer_network", "计算机网络"},
    {"discrete_mathematics", "离散数学"},
    {"education_science", "教育学"},
    {"electrical_engineer", "注册电气工程师"},
    {"environmental_impact_assessment_engineer", "环境影响评价工程师"},
    {"fire_engineer", "注册消防工程师"},
    {"high_school_biology", "高中生物"},
    {"high_school_chemistry", "高中化学"},
    {"high_school_chinese", "高中语文"},
    {"high_school_geography", "高中地理"},
    {"high_school_history", "高中历史"},
    {"high_school_mathematics", "高中数学"},
    {"high_school_physics", "高中物理"},
    {"high_school_politics", "高中政治"},
    {"ideological_and_moral_cultivation", "思想道德修养与法律基础"},
    {"law", "法学"},
    {"legal_professional", "法律职业资格"},
    {"logic", "逻辑学"},
    {"mao_zedong_thought", "毛泽东思想和中国特色社会主义理论体系概论"},
    {"marxism", "马克思主义基本原理"},
    {"metrology_engineer", "注册计量师"},
    {"middle_school_biology", "初中生物"},
    {"middle_school_chemistry", "初中化学"},
    {"middle_school_geography", "初中地理"},
    {"middle_school_history", "初中历史"},
    {"middle_school_mathematics", "初中数学"},
    {"middle_school_physics", "初中物理"},
    {"middle_school_politics", "初中政治"},
    {"modern_chinese_history", "近代史纲要"},
    {"operating_system", "操作系统"},
    {"physician", "医师资格"},
    {"plant_protection", "植物保护"},
    {"probability_and_statistics", "概率统计"},
    {"professional_tour_guide", "导游资格"},
    {"sports_science", "体育学"},
    {"tax_accountant", "税务师"},
    {"teacher_qualification", "教师资格"},
    {"urban_and_rural_planner", "注册城乡规划师"},
    {"veterinary_medicine", "兽医学"},
});

constexpr auto kCmmlu = std::to_array<Pair>({
    {"agronomy", "农学"},
    {"anatomy", "解剖学"},
    {"ancient_chinese", "古汉语"},
    {"arts", "艺术学"},
    {"astronomy", "天文学"},
    {"business_ethics", "商业伦理"},
    {"chinese_civil_service_exam", "中国公务员考试"},
    {"chinese_driving_rule", "中国驾驶规则"},
    {"chinese_food_culture", "中国饮食文化"},
    {"chinese_foreign_policy", "中国外交政策"},
    {"chinese_history", "中国历史"},
    {"chinese_literature", "中国文学"},
    {"chinese_teacher_qualification", "中国教师资格"},
    {"clinical_knowledge", "临床知识"},
    {"college_actuarial_science", "大学精算学"},
    {"college_education", "大学教育学"},
    {"college_engineering_hydrology", "大学工程水文学"},
    {"college_law", "大学法律"},
    {"college_mathematics", "大学数学"},
    {"college_medical_statistics", "大学医学统计"},
    {"college_medicine", "大学医学"},
    {"computer_science", "计算机科学"},
    {"computer_security", "计算机安全"},
    {"conceptual_physics", "概念物理学"},
    {"construction_project_management", "建设工程管理"},
    {"economics", "经济学"},
    {"education", "教育学"},
    {"electrical_engineering", "电气工程"},
    {"elementary_chinese", "小学语文"},
    {"elementary_commonsense", "小学常识"},
    {"elementary_information_and_technology", "小学信息技术"},
    {"elementary_mathematics", "初等数学"},
    {"ethnology", "民族学"},
    {"food_science", "食品科学"},
    {"genetics", "遗传学"},
    {"global_facts", "全球事实"},
    {"high_school_biology", "高中生物"},
    {"high_school_chemistry", "高中化学"},
    {"high_school_geography", "高中地理"},
    {"high_school_mathematics", "高中数学"},
    {"high_school_physics", "高中物理学"},
    {"high_school_politics", "高中政治"},
    {"human_sexuality", "人类性行为"},
    {"international_law", "国际法学"},
    {"journalism", "新闻学"},
    {"jurisprudence", "法理学"},
    {"legal_and_moral_basis", "法律与道德基础"},
    {"logical", "逻辑学"},
    {"machine_learning", "机器学习"},
    {"management", "管理学"},
    {"marketing", "市场营销"},
    {"marxist_theory", "马克思主义理论"},
    {"modern_chinese", "现代汉语"},
    {"nutrition", "营养学"},
    {"philosophy", "哲学"},
    {"professional_accounting", "专业会计"},
    {"professional_law", "专业法学"},
    {"professional_medicine", "专业医学"},
    {"professional_psychology", "专业心理学"},
    {"public_relations", "公共关系"},
    {"security_study", "安全研究"},
    {"sociology", "社会学"},
    {"sports_science", "体育学"},
    {"traditional_chinese_medicine", "中医中药"},
    {"virology", "病毒学"},
    {"world_history", "世界历史"},
    {"world_religions", "世界宗教"},
});

constexpr auto kMmluGroups = std::to_array<Pair>({
    {"abstract_algebra", "stem"},
    {"anatomy", "stem"},
    {"astronomy", "stem"},
    {"business_ethics", "other"},
    {"clinical_knowledge", "other"},
    {"college_biology", "stem"},
    {"college_chemistry", "stem"},
    {"college_computer_science", "stem"},
    {"college_mathematics", "stem"},
    {"college_medicine", "other"},
    {"college_physics", "stem"},
    {"computer_security", "stem"},
    {"conceptual_physics", "stem"},
    {"econometrics", "social_sciences"},
    {"electrical_engineering", "stem"},
    {"elementary_mathematics", "stem"},
    {"formal_logic", "humanities"},
    {"global_facts", "other"},
    {"high_school_biology", "stem"},
    {"high_school_chemistry", "stem"},
    {"high_school_computer_science", "stem"},
    {"high_school_european_history", "humanities"},
    {"high_school_geography", "social_sciences"},
    {"high_school_government_and_politics", "social_sciences"},
    {"high_school_macroeconomics", "social_sciences"},
    {"high_school_mathematics", "stem"},
    {"high_school_microeconomics", "social_sciences"},
    {"high_school_physics", "stem"},
    {"high_school_psychology", "social_sciences"},
    {"high_school_statistics", "stem"},
    {"high_school_us_history", "humanities"},
    {"high_school_world_history", "humanities"},
    {"human_aging", "other"},
    {"human_sexuality", "social_sciences"},
    {"international_law", "humanities"},
    {"jurisprudence", "humanities"},
    {"logical_fallacies", "humanities"},
    {"machine_learning", "stem"},
    {"management", "other"},
    {"marketing", "other"},
    {"medical_genetics", "other"},
    {"miscellaneous", "other"},
    {"moral_disputes", "humanities"},
    {"moral_scenarios", "humanities"},
    {"nutrition", "other"},
    {"philosophy", "humanities"},
    {"prehistory", "humanities"},
    {"professional_accounting", "other"},
    {"professional_law", "humanities"},
    {"professional_medicine", "other"},
    {"professional_psychology", "social_sciences"},
    {"public_relations", "social_sciences"},
    {"security_studies", "social_sciences"},
    {"sociology", "social_sciences"},
    {"us_foreign_policy", "social_sciences"},
    {"virology", "other"},
    {"world_religions", "humanities"},
});

// SUBSET_MAPPING and EXAMPLE_COUNTS of rewardbench/constants.py of RewardBench 0.1.4 (Apache 2.0).
// math-prm has 447 pairs, and there the weight of the six of hep together.
struct Subset {
  std::string_view name;
  std::string_view section;
  std::int64_t weight;
};
constexpr auto kRewardBenchSubsets = std::to_array<Subset>({
    {"alpacaeval-easy", "chat", 100},
    {"alpacaeval-length", "chat", 95},
    {"alpacaeval-hard", "chat", 95},
    {"mt-bench-easy", "chat", 28},
    {"mt-bench-med", "chat", 40},
    {"mt-bench-hard", "chat_hard", 37},
    {"llmbar-natural", "chat_hard", 100},
    {"llmbar-adver-neighbor", "chat_hard", 134},
    {"llmbar-adver-GPTInst", "chat_hard", 92},
    {"llmbar-adver-GPTOut", "chat_hard", 47},
    {"llmbar-adver-manual", "chat_hard", 46},
    {"refusals-dangerous", "safety", 100},
    {"refusals-offensive", "safety", 100},
    {"xstest-should-refuse", "safety", 154},
    {"xstest-should-respond", "safety", 250},
    {"donotanswer", "safety", 136},
    {"math-prm", "reasoning", 984},
    {"hep-cpp", "reasoning", 164},
    {"hep-go", "reasoning", 164},
    {"hep-java", "reasoning", 164},
    {"hep-js", "reasoning", 164},
    {"hep-python", "reasoning", 164},
    {"hep-rust", "reasoning", 164},
});

const Subset* subset_of(std::string_view name) {
  const auto found = std::find_if(kRewardBenchSubsets.begin(), kRewardBenchSubsets.end(),
                                  [&](const Subset& subset) { return subset.name == name; });
  return found == kRewardBenchSubsets.end() ? nullptr : &*found;
}

std::string_view value_of(std::span<const Pair> table, std::string_view subject) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Pair& pair) { return pair.subject == subject; });
  return found == table.end() ? "" : found->value;
}

}  // namespace

std::string subject_words(std::string_view task, std::string_view subject) {
  if (task == "ceval") return std::string(value_of(kCeval, subject));
  if (task == "cmmlu") return std::string(value_of(kCmmlu, subject));
  std::string words(subject);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string_view subject_group(std::string_view task, std::string_view subject) {
  const Subset* subset = task == "rewardbench" ? subset_of(subject) : nullptr;
  if (subset != nullptr) return subset->section;
  return task == "mmlu" ? value_of(kMmluGroups, subject) : "";
}

std::int64_t subject_weight(std::string_view task, std::string_view subject) {
  const Subset* subset = task == "rewardbench" ? subset_of(subject) : nullptr;
  return subset == nullptr ? 0 : subset->weight;
}

}  // namespace piton
