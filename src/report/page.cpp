#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/amounts.h"
#include "base/html.h"
#include "report/page_frame.h"
#include "report/svg_plot.h"

namespace piton {
namespace {

std::string color_of(std::size_t run) {
  return fmt::format("style=\"--c:var(--c{})\"", run % kPageColors);
}

std::string bytes_in_words(std::int64_t bytes) {
  const double size = mebibytes(bytes);
  if (size < 1) return fmt::format("{:.0f} KiB", size * 1024);
  return size < 1024 ? fmt::format("{:.1f} MiB", size) : fmt::format("{:.2f} GiB", size / 1024);
}

std::string time_in_words(double seconds) { return hours_text(std::llround(seconds)); }

std::string item(std::string_view name, const std::string& value) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", name, html_escaped(value));
}

std::string number(double value, std::string_view form) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(form), value) : "not finite";
}

std::string state_of(const RunRecord& run) {
  if (run.running) return "running";
  if (!run.failure.empty()) return "failed";
  const std::int64_t done = run.steps.empty() ? 0 : run.steps.back().iteration;
  return run.planned_iterations() > 0 && done >= run.planned_iterations() ? "finished" : "stopped";
}

// The iterations after which the run was resumed.
std::vector<double> resumes_of(const RunRecord& run) {
  std::vector<double> iterations;
  for (const StepMetrics& step : run.steps) {
    if (step.resumed) iterations.push_back(static_cast<double>(step.iteration - 1));
  }
  return iterations;
}

std::string figures_of(const RunRecord& run) {
  const StepMetrics& last = run.steps.back();
  const std::int64_t planned = std::max(run.planned_iterations(), last.iteration);
  std::string out = item("iteration", fmt::format("{} of {}", last.iteration, planned));
  out += item("tokens", short_number(static_cast<double>(last.consumed_tokens)));
  out += item("loss", number(last.lm_loss, "{:.4f}"));
  const auto validated = std::find_if(run.steps.rbegin(), run.steps.rend(), [](const auto& step) {
    return step.validation_loss.has_value();
  });
  if (validated != run.steps.rend()) {
    out += item("validation loss", number(*validated->validation_loss, "{:.4f}") +
                                       fmt::format(" at {}", validated->iteration));
  }
  double seconds = 0;
  for (const StepMetrics& step : run.steps) {
    if (std::isfinite(step.elapsed_ms)) seconds += step.elapsed_ms * 1e-3;
  }
  out += item("time in steps", time_in_words(seconds));
  if (run.running) {
    const double left = static_cast<double>(planned - last.iteration);
    out += item("time left", time_in_words(left * seconds / static_cast<double>(run.steps.size())));
  }
  out += item("tokens a second", number(last.tokens_per_second, "{:.0f}"));
  if (last.share_of_peak > 0) {
    out += item("share of peak", number(100 * last.share_of_peak, "{:.1f} %"));
  }
  out += item("memory, highest", bytes_in_words(last.memory.peak_total_bytes));
  const std::vector<double> resumes = resumes_of(run);
  if (!resumes.empty()) {
    const std::string once = fmt::format("after iteration {:.0f}", resumes.back());
    out +=
        item("resumed",
             resumes.size() == 1 ? once : fmt::format("{} times, last {}", resumes.size(), once));
  }
  if (last.skipped > 0) out += item("updates skipped", std::to_string(last.skipped));
  return out;
}

std::string card(const RunRecord& run, std::size_t index) {
  std::string out = fmt::format(
      "<section class=\"card\" {}><h3><span class=\"key\"></span>{} <span "
      "class=\"soft\">{}</span></h3>",
      color_of(index), html_escaped(run.name), state_of(run));
  if (!run.failure.empty()) {
    out += fmt::format("<p class=\"bad\">{}</p>", html_escaped(run.failure));
  }
  if (run.steps.empty()) return out + "<p class=\"soft\">no step yet</p></section>";
  const std::int64_t done = run.steps.back().iteration;
  const std::int64_t planned = std::max(run.planned_iterations(), done);
  const double share =
      100.0 * static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(planned, 1));
  out += fmt::format("<div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div>", share);
  return out + "<dl>" + figures_of(run) + "</dl></section>";
}

using Figure = std::function<double(const StepMetrics&)>;

Curve curve_of(const RunRecord& run, std::size_t index, const Figure& figure) {
  Curve curve{.label = run.name, .color = static_cast<int>(index % kPageColors)};
  curve.points.reserve(run.steps.size());
  for (const StepMetrics& step : run.steps) {
    curve.points.push_back({static_cast<double>(step.iteration), figure(step)});
  }
  return curve;
}

std::string plot(std::string_view title, const std::vector<RunRecord>& runs, const Figure& figure) {
  std::vector<Curve> curves;
  for (std::size_t i = 0; i < runs.size(); ++i) curves.push_back(curve_of(runs[i], i, figure));
  const std::string picture = svg_plot(title, curves);
  return picture.empty() ? "" : "<div class=\"card\">" + picture + "</div>";
}

std::string loss_plot(const std::vector<RunRecord>& runs) {
  std::vector<Curve> curves;
  bool resumed = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Curve training = curve_of(runs[i], i, [](const StepMetrics& step) { return step.lm_loss; });
    Curve validation{.label = runs[i].name + ", validation", .color = training.color, .dots = true};
    for (const StepMetrics& step : runs[i].steps) {
      if (!step.validation_loss) continue;
      validation.points.push_back({static_cast<double>(step.iteration), *step.validation_loss});
    }
    training.faint = !validation.points.empty();
    training.marks = resumes_of(runs[i]);
    resumed = resumed || !training.marks.empty();
    curves.push_back(std::move(training));
    curves.push_back(std::move(validation));
  }
  const std::string picture = svg_plot(
      resumed ? "loss (dots: validation; upright lines: resumed)" : "loss (dots: validation)",
      curves);
  return picture.empty() ? "" : "<div class=\"card\">" + picture + "</div>";
}

using NamedNumbers = std::vector<std::pair<std::string, double>>;

// A picture of dots for each name that steps have numbers for.
std::string plots_by_name(const std::vector<RunRecord>& runs, std::string_view title,
                          const std::function<NamedNumbers(const StepMetrics&)>& numbers_of) {
  std::map<std::string, std::vector<Curve>> curves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const StepMetrics& step : runs[i].steps) {
      for (const auto& [name, value] : numbers_of(step)) {
        std::vector<Curve>& of_name = curves[name];
        if (of_name.empty() || of_name.back().color != static_cast<int>(i % kPageColors)) {
          of_name.push_back(
              {.label = runs[i].name, .color = static_cast<int>(i % kPageColors), .dots = true});
        }
        of_name.back().points.push_back({static_cast<double>(step.iteration), value});
      }
    }
  }
  std::string out;
  for (const auto& [name, of_name] : curves) {
    const std::string picture = svg_plot(std::string(title) + name, of_name);
    if (!picture.empty()) out += "<div class=\"card\">" + picture + "</div>";
  }
  return out;
}

// The scores of --eval-tasks.
std::string task_plots(const std::vector<RunRecord>& runs) {
  return plots_by_name(runs, "", [](const StepMetrics& step) {
    NamedNumbers numbers;
    for (const TaskFigure& one : step.tasks) numbers.emplace_back(one.name, one.value);
    return numbers;
  });
}

// The losses of several validation sets.
std::string set_plots(const std::vector<RunRecord>& runs) {
  return plots_by_name(runs, "validation loss, ", [](const StepMetrics& step) {
    NamedNumbers numbers;
    for (const SetLoss& one : step.validation_losses) numbers.emplace_back(one.name, one.loss);
    return numbers;
  });
}

Curve curve_of_figure(const RunRecord& run, const std::string& name, bool validation) {
  Curve curve{.label = run.name + (validation ? ", validation" : ""), .dots = validation};
  for (const StepMetrics& step : run.steps) {
    for (const ObjectiveFigure& one : validation ? step.validation_figures : step.figures) {
      if (one.name == name)
        curve.points.push_back({static_cast<double>(step.iteration), one.mean()});
    }
  }
  return curve;
}

// A picture of each figure of preferences and of distillation.
std::string figure_plots(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const StepMetrics& step : run.steps) {
      for (const ObjectiveFigure& one : step.figures) names.insert(one.name);
    }
  }
  std::string out;
  for (const std::string& name : names) {
    std::vector<Curve> curves;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const bool validation : {false, true}) {
        curves.push_back(curve_of_figure(runs[i], name, validation));
        curves.back().color = static_cast<int>(i % kPageColors);
      }
    }
    std::string title = name;
    std::ranges::replace(title, '_', ' ');
    const std::string picture = svg_plot(title, curves);
    if (!picture.empty()) out += "<div class=\"card\">" + picture + "</div>";
  }
  return out;
}

std::string plots(const std::vector<RunRecord>& runs) {
  return loss_plot(runs) + set_plots(runs) + figure_plots(runs) + task_plots(runs) +
         plot("learning rate", runs, [](const StepMetrics& step) { return step.learning_rate; }) +
         plot("norm of the gradient", runs,
              [](const StepMetrics& step) { return step.grad_norm; }) +
         plot("tokens a second", runs,
              [](const StepMetrics& step) { return step.tokens_per_second; }) +
         plot("milliseconds a step", runs,
              [](const StepMetrics& step) { return step.elapsed_ms; }) +
         plot("memory, MiB", runs,
              [](const StepMetrics& step) { return mebibytes(step.memory.peak_total_bytes); });
}

std::string checkpoints(const std::vector<RunRecord>& runs) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const CheckpointRecord& one : runs[i].checkpoints) {
      rows += fmt::format(
          "<tr><td {}><span class=\"key\"></span>{}</td><td class=\"n\">{}</td><td class=\"n\">{}"
          "</td><td>{}</td></tr>",
          color_of(i), html_escaped(runs[i].name), one.iteration, bytes_in_words(one.bytes),
          one.written);
    }
  }
  if (rows.empty()) return "";
  return "<h2>Checkpoints</h2><div class=\"scroll\"><table><tr><th>run</th><th class=\"n\">"
         "iteration</th><th class=\"n\">size</th><th>written</th></tr>" +
         rows + "</table></div>";
}

std::string samples(const std::vector<RunRecord>& runs) {
  constexpr std::size_t kShown = 2000;  // bytes of a sample
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [title, text] : runs[i].samples) {
      out += fmt::format(
          "<details><summary><span class=\"key\" {}></span>{}, {}</summary><pre>{}</pre></details>",
          color_of(i), html_escaped(runs[i].name), html_escaped(title),
          html_escaped(text_beginning(text, kShown)));
    }
  }
  return out.empty() ? "" : "<h2>First samples</h2>" + out;
}

// What the model wrote to each prompt of --sample-prompts: the first time and the last ones.
std::string answers(const std::vector<RunRecord>& runs) {
  constexpr std::size_t kShown = 1000;  // bytes of a text
  constexpr std::size_t kLast = 8;
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<const StepMetrics*> steps;
    for (const StepMetrics& step : runs[i].steps) {
      if (!step.answers.empty()) steps.push_back(&step);
    }
    if (steps.size() > kLast + 1) steps.erase(steps.begin() + 1, steps.end() - kLast);
    if (steps.empty()) continue;
    for (const PromptAnswer& asked : steps.back()->answers) {
      std::string rows;
      for (const StepMetrics* step : steps) {
        for (const PromptAnswer& one : step->answers) {
          if (one.prompt != asked.prompt) continue;
          rows += fmt::format("<tr><td class=\"n\">{}</td><td>{}</td></tr>", step->iteration,
                              html_escaped(text_beginning(one.answer, kShown)));
          break;
        }
      }
      out += fmt::format(
          "<h3><span class=\"key\" {}></span>{}: {}</h3><div class=\"scroll\"><table><tr><th "
          "class=\"n\">iteration</th><th>answer</th></tr>{}</table></div>",
          color_of(i), html_escaped(runs[i].name),
          html_escaped(text_beginning(asked.prompt, kShown)), rows);
    }
  }
  return out.empty() ? "" : "<h2>Answers</h2>" + out;
}

// The times of --timing-log-level that every run wrote last.
std::string timers(const std::vector<RunRecord>& runs) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto last = std::find_if(runs[i].steps.rbegin(), runs[i].steps.rend(),
                                   [](const StepMetrics& step) { return !step.timers.empty(); });
    if (last == runs[i].steps.rend()) continue;
    for (const TimerTimes& one : last->timers) {
      rows += fmt::format(
          "<tr><td {}><span class=\"key\"></span>{}</td><td class=\"n\">{}</td><td>{}</td><td "
          "class=\"n\">{}</td></tr>",
          color_of(i), html_escaped(runs[i].name), last->iteration, html_escaped(one.name),
          number(one.most_ms(), "{:.2f}"));
    }
  }
  if (rows.empty()) return "";
  return "<h2>Times of a step</h2><div class=\"scroll\"><table><tr><th>run</th><th class=\"n\">"
         "iteration</th><th>part</th><th class=\"n\">ms, slowest rank</th></tr>" +
         rows + "</table></div>";
}

// Rows of all runs' options in the order of the first run that has them; those that differ first.
std::string options_table(const std::vector<RunRecord>& runs) {
  std::vector<std::string> keys;
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : run.options) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  const auto differs = [&](const std::string& key) {
    return std::any_of(runs.begin(), runs.end(), [&](const RunRecord& run) {
      return run.option(key) != runs.front().option(key);
    });
  };
  std::stable_partition(keys.begin(), keys.end(), differs);
  std::string rows;
  for (const std::string& key : keys) {
    rows += fmt::format("<tr{}><td>{}</td>", differs(key) ? " class=\"differs\"" : "",
                        html_escaped(key));
    for (const RunRecord& run : runs) rows += "<td>" + html_escaped(run.option(key)) + "</td>";
    rows += "</tr>";
  }
  if (rows.empty()) return "";
  std::string head = "<tr><th>option</th>";
  for (const RunRecord& run : runs) head += "<th>" + html_escaped(run.name) + "</th>";
  return fmt::format(
      "<h2>Options</h2><details{}><summary>{} options{}</summary><div class=\"scroll\"><table>{}"
      "</tr>{}</table></div></details>",
      runs.size() > 1 ? " open" : "", keys.size(),
      runs.size() > 1 ? "; those that differ come first" : "", head, rows);
}

}  // namespace

std::string report_page(const std::vector<RunRecord>& runs, const PageOptions& options) {
  std::string names;
  std::string cards;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    names += (names.empty() ? "" : ", ") + runs[i].name;
    cards += card(runs[i], i);
  }
  std::string refresh;
  if (options.refresh_every) {
    refresh = fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", *options.refresh_every);
  }
  std::string page = page_begin(names, refresh);
  page += "<div class=\"runs\">" + cards + "</div>\n<h2>Curves</h2><div class=\"plots\">" +
          plots(runs) + "</div>\n" + timers(runs) + "\n" + checkpoints(runs) + "\n" +
          answers(runs) + "\n" + samples(runs) + "\n" + options_table(runs);
  return page + page_end(options.made +
                         (options.refresh_every ? "; refreshed while the run continues" : ""));
}

}  // namespace piton
