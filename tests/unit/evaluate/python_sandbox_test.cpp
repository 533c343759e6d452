// Needs python3 and a kernel with user namespaces; where these are missing, the tests are skipped.
#include "evaluate/python_sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "base/error.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

class PythonSandboxTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      sandbox_.emplace();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  SandboxOutcome run(const std::string& program, const SandboxLimits& limits = {.seconds = 20}) {
    return sandbox_->run(program, limits);
  }
  std::optional<PythonSandbox> sandbox_;
};

TEST_F(PythonSandboxTest, RunsAProgram) {
  const SandboxOutcome outcome = run("import math, sys\nprint(math.sqrt(16))\nsys.exit(3)\n");
  EXPECT_EQ(outcome.output, "4.0\n");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_FALSE(outcome.timed_out);
}

TEST_F(PythonSandboxTest, LetsAProgramWriteFilesThatEndWithIt) {
  const char* program =
      "import os\nprint(os.listdir('.'), os.listdir('/tmp'))\n"
      "open('a', 'w').write('text'); print(open('a').read())\nopen('/tmp/b', 'w').write('text')\n";
  EXPECT_EQ(run(program).output, "['main.py'] []\ntext\n");
  EXPECT_EQ(run(program).output, "['main.py'] []\ntext\n");
}

TEST_F(PythonSandboxTest, ShowsNoFileButTheSystems) {
  const TempFolder folder;
  std::ofstream(folder / "secret") << "secret";
  const SandboxOutcome outcome =
      run("import os\nprint(sorted(os.listdir('/')))\n"
          "for path in ['" +
          (folder / "secret").string() +
          "', '/etc/passwd', '/proc/1/environ']:\n"
          "  try: open(path); print('opened', path)\n"
          "  except OSError as error: print(type(error).__name__)\n");
  EXPECT_THAT(outcome.output,
              HasSubstr("FileNotFoundError\nFileNotFoundError\nFileNotFoundError\n"));
  EXPECT_THAT(outcome.output, testing::Not(HasSubstr("'home'")));
}

TEST_F(PythonSandboxTest, WritesNowhereElse) {
  const SandboxOutcome outcome =
      run("import os\nfor path in ['/usr/x', '/usr/bin/x', os.__file__, '/dev/x']:\n"
          "  try: open(path, 'a'); print('opened', path)\n"
          "  except OSError as error: print(error.strerror)\n");
  EXPECT_EQ(outcome.output.substr(0, 66),
            "Read-only file system\nRead-only file system\nRead-only file system\n");
  EXPECT_FALSE(std::filesystem::exists("/usr/x"));
  EXPECT_FALSE(std::filesystem::exists("/dev/x"));  // that of the sandbox is a folder in memory
}

TEST_F(PythonSandboxTest, LimitsTheFilesThatAreWritten) {
  const SandboxOutcome outcome =
      run("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nwritten = 0\ntry:\n"
          "  for i in range(100):\n    with open(str(i), 'wb') as f: written += f.write(bytes(1 << "
          "20))\n"
          "except OSError as error: print(error.strerror, written >> 20 <= 16)\n");
  EXPECT_THAT(outcome.output, HasSubstr("No space left on device True"));
}

TEST_F(PythonSandboxTest, HasNoNetwork) {
  const SandboxOutcome outcome =
      run("import socket\ntry: socket.create_connection(('127.0.0.1', 1), 2)\n"
          "except OSError as error: print(error.strerror)\n"
          "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))\n"
          "except OSError as error: print(error.strerror)\n");
  EXPECT_EQ(outcome.output, "Operation not permitted\nOperation not permitted\n");
}

TEST_F(PythonSandboxTest, MakesNoProcess) {
  const SandboxOutcome outcome =
      run("import os, subprocess, threading\n"
          "def t(f):\n  try: f(); print('made')\n  except Exception as e: print(type(e).__name__)\n"
          "t(os.fork)\nt(lambda: subprocess.run(['/usr/bin/env']))\n"
          "t(lambda: threading.Thread(target=print).start())\n");
  EXPECT_EQ(outcome.output, "PermissionError\nPermissionError\nRuntimeError\n");
  // A fork bomb ends as any other program.
  EXPECT_EQ(run("import os\nwhile True: os.fork()\n").exit_code, 1);
}

TEST_F(PythonSandboxTest, GetsNoRightsBack) {
  const SandboxOutcome outcome = run(
      "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
      "print(os.getuid(), os.getpid())\n"
      "print(c.unshare(0x10000000), c.mount(b'x', b'/tmp', b'tmpfs', 0, None), c.chroot(b'/tmp'))\n"
      "print(c.ptrace(16, 1, 0, 0), c.syscall(319, b'x', 0), c.shmget(0, 4096, 0o1600))\n");
  EXPECT_EQ(outcome.output, "1000 1\n-1 -1 -1\n-1 -1 -1\n");
}

TEST_F(PythonSandboxTest, EndsAnEndlessLoop) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(run("while True: pass\n", {.seconds = 0.5}).timed_out);
  EXPECT_TRUE(run("import time\ntime.sleep(100)\n", {.seconds = 0.5}).timed_out);
  // Signals that it ignores do not keep it.
  EXPECT_TRUE(run("import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"
                  "while True: pass\n",
                  {.seconds = 0.5})
                  .timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(PythonSandboxTest, LimitsMemory) {
  EXPECT_THAT(run("a = bytearray(4 << 30)\n").output, HasSubstr("MemoryError"));
  EXPECT_THAT(run("a = []\nwhile True: a.append(bytearray(1 << 24))\n").output,
              HasSubstr("MemoryError"));
}

TEST_F(PythonSandboxTest, KeepsTheEndOfALongOutput) {
  const SandboxOutcome outcome = run("for i in range(100000): print(i)\n");
  EXPECT_LE(outcome.output.size(), 4096U);
  EXPECT_THAT(outcome.output, testing::EndsWith("99998\n99999\n"));
  EXPECT_TRUE(run("while True: print('x' * 1000)\n", {.seconds = 0.5}).timed_out);
}

TEST_F(PythonSandboxTest, NamesTheSignalOfACrash) {
  EXPECT_EQ(run("import ctypes\nctypes.string_at(1)\n").signal, SIGSEGV);
}

// Whether a process of this test's user runs with `word` among its arguments.
bool runs(const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

// The program dies with the process that waits for it, even if that is killed.
TEST_F(PythonSandboxTest, DoesNotOutliveItsParent) {
  const std::string name = "piton_" + std::to_string(getpid());
  const pid_t parent = fork();
  if (parent == 0) {
    // Its name is visible outside.
    sandbox_->run(
        "import os, sys\nif len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, "
        "'main.py', '" +
            name + "'])\nimport time\ntime.sleep(60)\n",
        {.seconds = 60});
    _exit(0);
  }
  for (int i = 0; i < 500 && !runs(name); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(runs(name));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  for (int i = 0; i < 500 && runs(name); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(runs(name));
}

}  // namespace
}  // namespace piton
