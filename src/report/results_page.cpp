#include "report/results_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/html.h"
#include "report/page_frame.h"
#include "report/svg_plot.h"

namespace piton {
namespace {

constexpr double kInterval = 1.96;          // standard errors of an interval of 95 %
constexpr std::size_t kWorst = 5;           // questions of a task
constexpr std::size_t kLongestText = 1500;  // bytes of a prompt: its end is shown

std::string key_of(std::size_t folder) {
  return fmt::format("<span class=\"key\" style=\"--c:var(--c{})\"></span>", folder % kPageColors);
}

std::string titled(const ResultsRecord& record, std::size_t index) {
  return key_of(index) + html_escaped(record.name);
}

const ResultFigure* find_figure(const ResultsRecord& record, const std::string& group,
                                const std::string& metric) {
  for (const auto& [name, figures] : record.groups) {
    if (name != group) continue;
    const auto found = figures.find(metric);
    return found == figures.end() ? nullptr : &found->second;
  }
  return nullptr;
}

// Groups and metrics of all folders, in the order of the first that has them.
std::vector<std::pair<std::string, std::string>> rows_of(const std::vector<ResultsRecord>& all) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::set<std::pair<std::string, std::string>> known;
  for (const ResultsRecord& record : all) {
    for (const auto& [group, figures] : record.groups) {
      for (const auto& [metric, _] : figures) {
        if (known.emplace(group, metric).second) rows.emplace_back(group, metric);
      }
    }
  }
  return rows;
}

std::string scores(const std::vector<ResultsRecord>& all) {
  std::string head = "<tr><th>task</th><th>metric</th>";
  for (std::size_t i = 0; i < all.size(); ++i)
    head += "<th class=\"n\">" + titled(all[i], i) + "</th><th class=\"n\">samples</th>";
  std::string body;
  for (const auto& [group, metric] : rows_of(all)) {
    body += fmt::format("<tr><td>{}</td><td>{}</td>", html_escaped(group), html_escaped(metric));
    for (const ResultsRecord& record : all) {
      const ResultFigure* figure = find_figure(record, group, metric);
      if (figure == nullptr) {
        body += "<td></td><td></td>";
        continue;
      }
      const auto samples = record.samples.find(group);
      body += fmt::format("<td class=\"n\">{:.4f}{} {}</td><td class=\"n\">{}</td>", figure->value,
                          figure->standard_error
                              ? fmt::format(" ± {:.4f}", kInterval * *figure->standard_error)
                              : "",
                          figure->higher_is_better ? "↑" : "↓",
                          samples == record.samples.end() ? "" : std::to_string(samples->second));
    }
    body += "</tr>";
  }
  return "<h2>Scores</h2><p class=\"soft\">with intervals of 95 %</p><div "
         "class=\"scroll\"><table>" +
         head + "</tr>" + body + "</table></div>\n";
}

bool is_mean(const std::string& metric) {
  return metric.starts_with("acc") || metric.starts_with("exact_match") ||
         metric.starts_with("pass@1");
}

// The rows of one folder compared with the first.
std::string difference_rows(const ResultsRecord& first, const ResultsRecord& other,
                            std::size_t index) {
  std::string body;
  for (const auto& [task, results] : other.tasks) {
    const auto found = first.tasks.find(task);
    if (found == first.tasks.end()) continue;
    std::set<std::string> metrics;
    for (const AnsweredQuestion& one : results.questions) {
      for (const auto& [metric, _] : one.metrics) {
        if (is_mean(metric)) metrics.insert(metric);
      }
    }
    for (const std::string& metric : metrics) {
      const PairedDifference paired = paired_difference(found->second, results, metric);
      if (paired.questions == 0) continue;
      const double margin = kInterval * paired.standard_error.value_or(0);
      const bool is_clear = paired.standard_error && std::abs(paired.mean) > margin;
      body += fmt::format(
          "<tr{}><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{:+.4f}{}</td><td "
          "class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
          is_clear ? " class=\"differs\"" : "", titled(other, index), html_escaped(task),
          html_escaped(metric), paired.mean,
          paired.standard_error ? fmt::format(" ± {:.4f}", margin) : "", paired.better,
          paired.worse, paired.questions,
          found->second.prompt_hash == results.prompt_hash ? "" : "the prompts differ");
    }
  }
  return body;
}

std::string differences(const std::vector<ResultsRecord>& all) {
  std::string body;
  for (std::size_t i = 1; i < all.size(); ++i) body += difference_rows(all[0], all[i], i);
  if (body.empty()) return "";
  return fmt::format(
      "<h2>Differences to {}</h2><p class=\"soft\">means over the questions that both answered, "
      "paired, with intervals of 95 %; those that exclude 0 are bold</p><div "
      "class=\"scroll\"><table><tr><th>results</th><th>task</th><th>metric</th><th "
      "class=\"n\">difference</th><th class=\"n\">better</th><th class=\"n\">worse</th><th "
      "class=\"n\">questions</th><th></th></tr>{}</table></div>\n",
      titled(all[0], 0), body);
}

// The end of a text, which has the question.
std::string end_of(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  std::size_t begin = text.size() - kLongestText;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) ++begin;
  return "... " + text.substr(begin);
}

std::string worst_of(const TaskResults& results) {
  std::vector<const AnsweredQuestion*> wrong;
  for (const AnsweredQuestion& one : results.questions) {
    if (!one.correct) wrong.push_back(&one);
  }
  std::ranges::stable_sort(wrong, std::greater(), &AnsweredQuestion::margin);
  std::string out;
  for (std::size_t i = 0; i < std::min(kWorst, wrong.size()); ++i) {
    const AnsweredQuestion& one = *wrong[i];
    out += fmt::format(
        "<details><summary>{}{}</summary><pre>{}</pre><dl><dt>answer</dt><dd>{}</dd><dt>right</dt>"
        "<dd>{}</dd></dl></details>",
        html_escaped(one.id),
        one.margin > 0 ? fmt::format(", wrong by {:.2f} nats", one.margin) : "",
        html_escaped(end_of(one.prompt)), html_escaped(text_beginning(one.answer, kLongestText)),
        html_escaped(text_beginning(one.gold, kLongestText)));
  }
  return out;
}

std::string worst(const std::vector<ResultsRecord>& all) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const auto& [task, results] : all[i].tasks) {
      const bool is_scored = std::any_of(
          results.questions.begin(), results.questions.end(), [](const AnsweredQuestion& one) {
            return std::any_of(one.metrics.begin(), one.metrics.end(),
                               [](const auto& metric) { return is_mean(metric.first); });
          });
      const std::string questions = is_scored ? worst_of(results) : "";
      if (questions.empty()) continue;
      out += "<h3>" + titled(all[i], i) + ", " + html_escaped(task) + "</h3>" + questions;
    }
  }
  return out.empty() ? "" : "<h2>Worst answers</h2>" + out + "\n";
}

}  // namespace

std::string results_page(const std::vector<ResultsRecord>& all, const std::string& made) {
  std::string names;
  std::string cards;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names += (names.empty() ? "" : ", ") + all[i].name;
    cards += fmt::format(
        "<section class=\"card\"><h3>{}</h3><dl><dt>model</dt><dd>{}</dd></dl></section>",
        titled(all[i], i), html_escaped(all[i].model));
  }
  return page_begin(names, "") + "<div class=\"runs\">" + cards + "</div>\n" + scores(all) +
         differences(all) + worst(all) + page_end(made);
}

}  // namespace piton
