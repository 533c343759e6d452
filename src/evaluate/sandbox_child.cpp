#include "evaluate/sandbox_child.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "evaluate/system_calls.h"

namespace piton {
namespace {

constexpr int kReport = 3;  // its number in the child

[[noreturn]] void give_up(SandboxReport::Kind kind) {
  const SandboxReport report{.kind = kind, .value = errno};
  const auto written = write(kReport, &report, sizeof(report));
  _exit(written == sizeof(report) ? 1 : 2);
}

void want(bool success, SandboxReport::Kind kind) {
  if (!success) give_up(kind);
}

void write_file(const char* path, const char* text, std::size_t size, int flags,
                SandboxReport::Kind kind) {
  const int file = open(path, flags | O_CLOEXEC, 0600);
  want(file >= 0, kind);
  while (size > 0) {
    const ssize_t written = write(file, text, size);
    want(written > 0, kind);
    text += written;
    size -= static_cast<std::size_t>(written);
  }
  close(file);
}

void take_over_descriptors(int output, int report) {
  // Out of the way of 0 to 3 first.
  const int far_output = fcntl(output, F_DUPFD, 10);
  const int far_report = fcntl(report, F_DUPFD, 10);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(far_output, 1);
  dup2(far_output, 2);
  dup2(far_report, kReport);
  syscall(SYS_close_range, 4U, ~0U, 0U);
  fcntl(kReport, F_SETFD, FD_CLOEXEC);
}

void become_alone() {
  std::array<char, 32> users{};
  std::array<char, 32> groups{};
  // The same user and group outside; inside neither is 0, so that exec() drops all rights.
  std::snprintf(users.data(), users.size(), "1000 %u 1\n", geteuid());
  std::snprintf(groups.data(), groups.size(), "1000 %u 1\n", getegid());
  constexpr int kAll =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  constexpr auto kKind = SandboxReport::kNamespaces;
  want(unshare(kAll) == 0, kKind);
  write_file("/proc/self/setgroups", "deny", 4, O_WRONLY, kKind);
  write_file("/proc/self/uid_map", users.data(), std::strlen(users.data()), O_WRONLY, kKind);
  write_file("/proc/self/gid_map", groups.data(), std::strlen(groups.data()), O_WRONLY, kKind);
}

// mount_setattr(2), which C libraries have later than kernels (5.12).
struct MountAttributes {
  std::uint64_t set = 0;
  std::uint64_t clear = 0;
  std::uint64_t propagation = 0;
  std::uint64_t user_namespace = 0;
};
constexpr std::uint64_t kReadOnly = 0x1;
constexpr std::uint64_t kNoSetuid = 0x2;
constexpr unsigned kRecursive = 0x8000;

struct Path {
  std::array<char, 4096> text{};
  Path(const char* before, const std::string& path) {
    std::snprintf(text.data(), text.size(), "%s%s", before, path.c_str());
  }
  const char* get() const { return text.data(); }
};

// Leaves "/" with the folders of the plan. The old root is at /old while they are made.
void change_root(const SandboxPlan& plan, const SandboxLimits& limits) {
  constexpr auto kKind = SandboxReport::kMounts;
  std::array<char, 64> size{};
  std::snprintf(size.data(), size.size(), "size=%lld,nr_inodes=1024,mode=755",
                static_cast<long long>(limits.file_bytes));
  want(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, kKind);
  want(mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") == 0, kKind);
  want(chdir("/tmp") == 0 && mkdir("new", 0755) == 0 && mkdir("old", 0755) == 0, kKind);
  want(mount("tmpfs", "new", "tmpfs", MS_NOSUID | MS_NODEV, size.data()) == 0, kKind);
  want(syscall(SYS_pivot_root, ".", "old") == 0 && chdir("/") == 0, kKind);
  for (const std::string& folder : plan.folders)
    want(mkdir(Path("/new", folder).get(), 0755) == 0 || errno == EEXIST, kKind);
  for (const std::string& file : plan.files)
    write_file(Path("/new", file).get(), "", 0, O_WRONLY | O_CREAT, kKind);
  for (const std::string& shown : plan.shown) {
    const Path from("/old", shown);
    const Path to("/new", shown);
    want(mount(from.get(), to.get(), nullptr, MS_BIND | MS_REC, nullptr) == 0, kKind);
    MountAttributes attributes{.set = kReadOnly | kNoSetuid};
    want(syscall(SYS_mount_setattr, -1, to.get(), kRecursive, &attributes, sizeof(attributes)) == 0,
         kKind);
  }
  for (const SandboxPlan::Link& link : plan.links)
    want(symlink(link.target.c_str(), Path("/new", link.path).get()) == 0, kKind);
  want(chdir("/new") == 0 && syscall(SYS_pivot_root, ".", ".") == 0, kKind);
  want(umount2(".", MNT_DETACH) == 0 && chdir("/work") == 0, kKind);
}

void set_limit(int which, std::int64_t value) {
  const auto most = static_cast<rlim_t>(value);
  const rlimit limit{.rlim_cur = most, .rlim_max = most};
  want(setrlimit(static_cast<__rlimit_resource_t>(which), &limit) == 0, SandboxReport::kLimits);
}

// Refuses calls that make processes, threads or sockets (some kinds of them are not of a
// namespace), undo the namespaces, or hold memory that counts for no process.
void refuse_calls() {
  constexpr std::array kRefused = {SYS_clone,       SYS_unshare,          SYS_setns,
                                   SYS_mount,       SYS_umount2,          SYS_pivot_root,
                                   SYS_chroot,      SYS_open_tree,        SYS_move_mount,
                                   SYS_fsopen,      SYS_fsmount,          SYS_mount_setattr,
                                   SYS_ptrace,      SYS_process_vm_readv, SYS_process_vm_writev,
                                   SYS_bpf,         SYS_perf_event_open,  SYS_io_uring_setup,
                                   SYS_userfaultfd, SYS_keyctl,           SYS_add_key,
                                   SYS_request_key, SYS_memfd_create,     SYS_socket,
                                   SYS_shmget,      SYS_msgget,           SYS_semget,
                                   SYS_kexec_load,  SYS_init_module,      SYS_finit_module};
  constexpr std::uint32_t kNo = SECCOMP_RET_ERRNO | EPERM;
  std::array<sock_filter, 2 * (kRefused.size() + kMostOldCalls) + 9> filter{};
  std::size_t count = 0;
  const auto add = [&](sock_filter one) { filter[count++] = one; };
  const auto refuse = [&](long call) {
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    add(BPF_STMT(BPF_RET | BPF_K, kNo));
  };
  const SystemCalls calls = system_calls();
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls.architecture, 1, 0));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  add(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, calls.end, 0, 1));
  add(BPF_STMT(BPF_RET | BPF_K, kNo));
  for (const long call : kRefused) refuse(call);
  for (const long call : calls.old) refuse(call);
  // C libraries use clone() where there is no clone3().
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(SYS_clone3), 0, 1));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{.len = static_cast<unsigned short>(count), .filter = filter.data()};
  want(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, SandboxReport::kFilter);
  want(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, SandboxReport::kFilter);
}

// Process 1 of its namespace: where it ends, the kernel ends all that is left of it.
[[noreturn]] void run_program(const SandboxPlan& plan, const SandboxLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  write_file("main.py", plan.program.data(), plan.program.size(), O_WRONLY | O_CREAT,
             SandboxReport::kProgram);
  set_limit(RLIMIT_CPU, static_cast<std::int64_t>(std::ceil(limits.seconds)) + 1);
  set_limit(RLIMIT_AS, limits.memory_bytes);
  set_limit(RLIMIT_FSIZE, limits.file_bytes);
  set_limit(RLIMIT_NOFILE, 64);
  set_limit(RLIMIT_CORE, 0);
  constexpr std::size_t kMostWords = 15;
  std::array<char*, kMostWords + 1> words{};
  for (std::size_t i = 0; i < plan.words.size() && i < kMostWords; ++i)
    words[i] = const_cast<char*>(plan.words[i].c_str());
  constexpr std::array kVariables = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8",
                                     "HOME=/work",         "OPENBLAS_NUM_THREADS=1",
                                     "OMP_NUM_THREADS=1",  static_cast<const char*>(nullptr)};
  refuse_calls();
  execve(words[0], words.data(), const_cast<char* const*>(kVariables.data()));
  give_up(SandboxReport::kProgram);
}

}  // namespace

void run_sandbox_child(const SandboxPlan& plan, const SandboxLimits& limits, int parent, int output,
                       int report) {
  take_over_descriptors(output, report);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();  // keys of the terminal are for the parent
  umask(022);
  become_alone();
  change_root(plan, limits);
  const pid_t child = fork();
  want(child >= 0, SandboxReport::kNamespaces);
  if (child == 0) run_program(plan, limits);
  close(1);
  close(2);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) want(errno == EINTR, SandboxReport::kProgram);
  const SandboxReport ended{.kind = SandboxReport::kEnded, .value = status};
  const auto written = write(kReport, &ended, sizeof(ended));
  _exit(written == sizeof(ended) ? 0 : 1);
}

}  // namespace piton
