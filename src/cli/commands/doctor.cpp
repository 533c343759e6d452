// piton doctor: whether this machine has what Piton needs, and the command that fixes it.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "api/installation.h"
#include "base/json.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "doctor/findings.h"

namespace piton::cli {
namespace {

struct DoctorOptions {
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"json", "print one JSON object: each check, its result and how to fix it"}, json);
  }
};

std::string on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const std::string file = folders.substr(0, end) + "/" + program;
    folders.erase(0, end + 1);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

LauncherFacts launcher_facts() {
  LauncherFacts facts{.path = on_path("mpirun")};
  if (facts.path.empty()) return facts;
  const auto close = [](std::FILE* file) { ::pclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> said(
      ::popen("mpirun --version 2>/dev/null </dev/null", "r"), close);
  char line[256];
  if (said != nullptr && std::fgets(line, sizeof line, said.get()) != nullptr) {
    facts.version = line;
    facts.version.erase(facts.version.find_last_not_of("\r\n") + 1);
  }
  return facts;
}

std::string text_of(const std::vector<Finding>& found) {
  std::string text;
  for (const Finding& one : found) {
    text += fmt::format("{:<8} {:<17} {}\n", name(one.health), one.about, one.text);
    if (!one.fix.empty()) text += fmt::format("{:<8} {:<17} -> {}\n", "", "", one.fix);
  }
  return text;
}

std::string json_of(const std::vector<Finding>& found) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& one : found) {
    all.push_back(
        {{"about", one.about}, {"health", name(one.health)}, {"text", one.text}, {"fix", one.fix}});
  }
  const nlohmann::ordered_json object = {{"findings", all}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

int run_doctor(Invocation& invocation) {
  GeneralOptions general;
  DoctorOptions options;
  OptionSet set;
  set.add("Report", options);
  refuse_more_arguments(invocation.parse(set, general));
  const BuildInfo info = build_info();
  const std::vector<Finding> found =
      findings(read_host_facts("/", std::filesystem::current_path()),
               installation_facts(engine_options(general).isa), launcher_facts(),
               {.version = fmt::format("{}, commit {}", info.version, info.commit),
                .build = std::string(info.build)});
  const std::string text = options.json ? json_of(found) : text_of(found);
  std::fputs(text.c_str(), stdout);
  std::string missing;
  for (const Finding& one : found) {
    if (one.health != Health::kMissing) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", one.about);
  }
  if (!missing.empty()) {
    throw Error(Fault::kUsage, "doctor: this machine lacks what Piton needs: {}; see above",
                missing);
  }
  return 0;
}

}  // namespace piton::cli
