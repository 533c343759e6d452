// In place of the C library's fsync and fdatasync: nothing for files and folders, unless
// PITON_NIGHTLY is set. Files of a test need not outlive the machine, and a save waits twenty times
// for a disk. Test programs have it linked in; for the programs that they start it is preloaded.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace {

// Whatever else a descriptor is of, the kernel answers.
bool needs_no_sync(int descriptor) {
  static const bool nightly = std::getenv("PITON_NIGHTLY") != nullptr;
  struct stat about = {};
  return !nightly && fstat(descriptor, &about) == 0 &&
         (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int fsync(int descriptor) {
  return needs_no_sync(descriptor) ? 0 : static_cast<int>(syscall(SYS_fsync, descriptor));
}

__attribute__((visibility("default"))) int fdatasync(int descriptor) {
  return needs_no_sync(descriptor) ? 0 : static_cast<int>(syscall(SYS_fdatasync, descriptor));
}

}  // extern "C"
