#include "train/run/failure_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <new>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

std::string fault_in(const std::filesystem::path& file) {
  const auto report = read_json_or_discarded<nlohmann::json>(read_text_file(file));
  return report.is_object() ? report.value("fault", "") : "";
}

}  // namespace

bool Failure::is_consequence() const { return fault == name(Fault::kPeer); }

Failure failure_of(const std::exception& error) {
  const auto of = [](Fault fault, std::string message) {
    return Failure{.exit_code = static_cast<int>(fault),
                   .fault = std::string(name(fault)),
                   .message = std::move(message)};
  };
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return of(known->fault(), known->what());
  }
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return of(Fault::kData, fmt::format("{}: {}", file->path1().string(), file->code().message()));
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return of(Fault::kMemory, "out of memory; a smaller batch or more memory would do");
  }
  return {.fault = std::string(kInternalFault), .message = error.what()};
}

FailureReport::FailureReport(const std::filesystem::path& folder)
    : folder_(folder), file_(folder / "failure.json"), earlier_(identity_of(file_)) {}

FailureReport::Identity FailureReport::identity_of(const std::filesystem::path& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return {};
  return {about.st_ino,
          static_cast<std::int64_t>(about.st_mtim.tv_sec) * 1'000'000'000 + about.st_mtim.tv_nsec};
}

bool FailureReport::is_of_this_run() const {
  const Identity now = identity_of(file_);
  return now != Identity{} && now != earlier_;
}

void FailureReport::forget_earlier() const {
  if (folder_.empty() || is_of_this_run()) return;
  ::unlink(file_.c_str());
}

void FailureReport::write(int rank, const Failure& failure) const noexcept {
  try {
    if (folder_.empty() || !std::filesystem::is_directory(folder_)) return;
    const auto taken = [&] {
      return is_of_this_run() &&
             (failure.is_consequence() || fault_in(file_) != name(Fault::kPeer));
    };
    if (taken()) return;
    const nlohmann::ordered_json report{{"rank", rank},
                                        {"fault", failure.fault},
                                        {"exit_code", failure.exit_code},
                                        {"message", failure.message}};
    const std::filesystem::path draft = folder_ / fmt::format("failure.json.rank{}", rank);
    write_text_file(draft,
                    report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (!failure.is_consequence()) {
      std::filesystem::rename(draft, file_);
      return;
    }
    if (!is_of_this_run()) ::unlink(file_.c_str());
    // Fails if a cause has been written meanwhile, as intended.
    static_cast<void>(::link(draft.c_str(), file_.c_str()));
    ::unlink(draft.c_str());
  } catch (...) {
    // Ignored: the failure itself must be reported.
  }
}

}  // namespace piton
