#include "comm/ranks/mail.h"

#include <algorithm>
#include <cstring>

namespace piton {

namespace {

std::string failure_text(const std::string& why, const std::string& mail) {
  return why.find(mail) != std::string::npos ? why : fmt::format("{} (in {})", why, mail);
}

}  // namespace

void Mailbox::add(Mail mail) {
  mail.asked = Clock::now();
  const std::lock_guard lock(mutex_);
  if (failure_) {
    mail.job->fail(*failure_);
    return;
  }
  added_.push_back(std::move(mail));
}

void Mailbox::take_new() {
  const std::lock_guard lock(mutex_);
  for (Mail& mail : added_) asked_[key(mail)].push_back(std::move(mail));
  added_.clear();
}

bool Mailbox::pending() const {
  if (!asked_.empty()) return true;
  const std::lock_guard lock(mutex_);
  return !added_.empty();
}

std::optional<Wait> Mailbox::longest_wait(Clock::time_point now) {
  const Mail* found = nullptr;
  const auto look = [&](const Mail& mail) {
    if (mail.job->ready() && (found == nullptr || mail.asked < found->asked)) found = &mail;
  };
  for (const auto& [key, queue] : asked_) {
    for (const Mail& mail : queue) look(mail);
  }
  for (const Mail* mail : under_way()) look(*mail);
  if (found == nullptr) return std::nullopt;
  return Wait{.seconds = std::chrono::duration<double>(now - found->asked).count(),
              .what = found->text,
              .missing = {{.world_rank = found->world_rank, .progress = ""}}};
}

void Mailbox::fail(const std::string& why) {
  take_new();
  for (auto& [key, queue] : asked_) {
    for (Mail& mail : queue) mail.job->fail(failure_text(why, mail.text));
  }
  asked_.clear();
  for (Mail* mail : under_way()) mail->job->fail(failure_text(why, mail->text));
  drop();
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
  for (Mail& mail : added_) mail.job->fail(why);
  added_.clear();
}

}  // namespace piton
