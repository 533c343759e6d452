// Runs ranks as processes that are forked from the test. Use it before the test starts threads.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/rendezvous/rendezvous.h"

namespace piton::test {

// How a rank ended: 0 and what it returned, the code and text of its Error, or -1 if it was killed.
struct RankEnd {
  int code = -1;
  std::string text;
};

// body(rank) in `ranks` processes. Those that run for longer than `limit` are killed.
inline std::vector<RankEnd> run_ranks(int ranks, const std::function<std::string(int)>& body,
                                      std::chrono::seconds limit = std::chrono::seconds(120)) {
  struct Child {
    pid_t id;
    int pipe;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) std::abort();
    const pid_t id = ::fork();
    if (id == 0) {
      ::close(ends[0]);
      int code = 0;
      std::string text;
      try {
        text = body(rank);
      } catch (const Error& error) {
        code = static_cast<int>(error.fault());
        text = error.what();
      } catch (const std::exception& error) {
        code = 1;
        text = error.what();
      }
      if (::write(ends[1], text.data(), text.size()) < 0) code = 1;
      ::_exit(code);
    }
    ::close(ends[1]);
    children.push_back({id, ends[0]});
  }
  std::vector<RankEnd> all;
  const auto end = std::chrono::steady_clock::now() + limit;
  for (const Child& child : children) {
    RankEnd& rank = all.emplace_back();
    int status = 0;
    while (::waitpid(child.id, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) ::kill(child.id, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (WIFEXITED(status)) rank.code = WEXITSTATUS(status);
    std::array<char, 4096> bytes;
    for (ssize_t count; (count = ::read(child.pipe, bytes.data(), bytes.size())) > 0;) {
      rank.text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    ::close(child.pipe);
  }
  return all;
}

// A port that nobody uses now.
inline int free_port() { return RankListener(0).port(); }

}  // namespace piton::test
