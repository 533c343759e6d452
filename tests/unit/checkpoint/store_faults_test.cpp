// Saves that are interrupted at every call that changes the disk, and files that were changed after
// a save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <set>

#include "base/files/files.h"
#include "checkpoint/background_save.h"
#include "checkpoint/store.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

using test::run_ranks;
using test::SmallRun;
using test::state_of;
using testing::AnyOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

// As few tensors as there are kinds: each is a call at which a save can be cut off.
const test::ModelVariant kVariant{.biases = false, .blocks = 1};

// A folder in memory where there is one: hundreds of saves that wait for a disk take minutes.
class FastDir {
 public:
  FastDir() {
    std::error_code ignored;
    if (!fs::is_directory("/dev/shm", ignored)) return;
    path_ = fs::path("/dev/shm") / fs::path(disk_.path()).filename();
    if (!fs::create_directory(path_, ignored)) path_.clear();
  }
  ~FastDir() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  FastDir(const FastDir&) = delete;
  FastDir& operator=(const FastDir&) = delete;
  const fs::path& path() const { return path_.empty() ? disk_.path() : path_; }

 private:
  TempFolder disk_;
  fs::path path_;
};

void save(const fs::path& dir, int iteration, int salt, const SaveOptions& options = {}) {
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {}, kVariant);
    run.fill(salt);
    save_checkpoint(run.stored(), run.context(), {dir, state_of(iteration), "", options});
  });
}

// Which salt the loadable checkpoint was filled with: one of `candidates`, whole, or -1.
int loaded_salt(const fs::path& dir, const std::vector<int>& candidates) {
  int result = -1;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {}, kVariant);
    load_checkpoint(find_checkpoint(dir), run.stored(), run.context());
    for (const int salt : candidates) {
      if (run.differences(salt) == 0) result = salt;
    }
  });
  return result;
}

std::vector<std::string> leftovers(const fs::path& dir) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp") != name.npos || name.find(".replaced") != name.npos)
      found.push_back(name);
  }
  return found;
}

// Saves in a separate process that dies, as by SIGKILL, before its call number `fatal`. True if it
// died, false if the save ended first. This process has one thread only.
// `background`: the state changes while it is saved.
bool killed_at(int fatal, const fs::path& dir, int iteration, int salt, int keep, bool background) {
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    try {
      HostDevice device;
      const auto world = make_single_world(device);
      SmallRun run(*world, {}, kVariant);
      run.fill(salt);
      const SaveOptions options{.keep = keep, .hook = [&](std::string_view, const fs::path&) {
                                  if (calls++ == fatal) ::kill(::getpid(), SIGKILL);
                                }};
      if (background) {
        ThreadPool pool(2);
        SaveCopy copy(run.device);
        const auto save = BackgroundSave::start(
            run.stored(), run.context(), {dir, state_of(iteration), "", options}, copy, pool);
        run.fill(salt + 5);
        save->wait();
      } else {
        save_checkpoint(run.stored(), run.context(), {dir, state_of(iteration), "", options});
      }
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  return false;
}

TEST(Save, KilledBeforeAnyOfItsCallsLeavesTheOldCheckpointOrTheNewOneWhole) {
  // {iteration of the second save, checkpoints kept}: next to the first, in its place, and instead
  // of it.
  struct Case {
    int iteration, keep;
    bool background;
  };
  int first = 0;
  for (const auto& [iteration, keep, background] :
       {Case{2, 0, false}, {1, 0, false}, {2, 1, false}, {2, 1, true}}) {
    std::set<int> seen;
    int fatal = first++ % test::one_of(8);  // each case before other calls
    for (bool died = true; died; fatal += test::one_of(8)) {
      ASSERT_LT(fatal, 200);
      const FastDir dir;
      save(dir.path(), 1, 10);
      died = killed_at(fatal, dir.path(), iteration, 20, keep, background);
      const int salt = loaded_salt(dir.path(), {10, 20});
      EXPECT_THAT(salt, AnyOf(10, 20)) << "killed before call " << fatal;
      seen.insert(salt);
      if (!died) {
        EXPECT_EQ(salt, 20);
      }
      // What was left behind is in nobody's way, and goes.
      save(dir.path(), 3, 30);
      EXPECT_EQ(loaded_salt(dir.path(), {30}), 30) << "after a kill before call " << fatal;
      EXPECT_THAT(leftovers(dir.path()), testing::IsEmpty()) << "killed before call " << fatal;
    }
    EXPECT_EQ(seen.size(), 2U) << "both outcomes must occur";
    EXPECT_GT(fatal, 15) << "a save makes more calls than that";
  }
}

TEST(Save, FailingAtAnyOfItsCallsSaysSoAndLeavesACheckpointThatLoads) {
  bool failed = true;
  for (int fatal = 0; failed; ++fatal) {
    ASSERT_LT(fatal, 200);
    const FastDir dir;
    save(dir.path(), 1, 10);
    int calls = 0;
    failed = false;
    try {
      save(dir.path(), 2, 20, {.hook = [&](std::string_view call, const fs::path& path) {
             if (calls++ == fatal) {
               throw Error(Fault::kData, "checkpoint: {}: cannot {}: Input/output error",
                           path.string(), call);
             }
           }});
    } catch (const Error& error) {
      failed = true;
      EXPECT_THAT(error.what(), HasSubstr("Input/output error"));
    }
    const int salt = loaded_salt(dir.path(), {10, 20});
    EXPECT_THAT(salt, AnyOf(10, 20)) << "failed at call " << fatal;
    if (!failed) {
      EXPECT_EQ(salt, 20);
    }
  }
}

TEST(Save, FailingOnOneRankFailsOnAllAndNamesTheRank) {
  const TempFolder dir;
  const test::TestLayout layout{.tensor = 2, .data = 2};
  std::vector<std::string> messages(4);
  run_ranks(4, [&](World& world) {
    SmallRun run(world, layout);
    run.fill(1);
    SaveOptions options;
    if (world.rank() == 2) {
      options.hook = [](std::string_view call, const fs::path& path) {
        if (call == "write") {
          throw Error(Fault::kData, "checkpoint: {}: cannot write: the disk is full",
                      path.string());
        }
      };
    }
    messages[static_cast<std::size_t>(world.rank())] = message_of(Fault::kData, [&] {
      save_checkpoint(run.stored(), run.context(), {dir.path(), state_of(1), "", options});
    });
  });
  for (int rank = 0; rank < 4; ++rank) {
    const std::string& message = messages[static_cast<std::size_t>(rank)];
    EXPECT_THAT(message, HasSubstr("cannot write: the disk is full"));
    EXPECT_EQ(message.starts_with("[rank 2] "), rank != 2) << message;
  }
  EXPECT_EQ(latest_iteration(dir.path()), std::nullopt);
  EXPECT_THAT(leftovers(dir.path()), testing::IsEmpty()) << "the space must come back at once";
}

TEST(Save, RefusesBeforeTheFirstByteWhereTheDiskIsTooSmall) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {}, kVariant);
    Parameter huge;  // 4 PB, without memory: the check comes first
    huge.name = "huge";
    huge.shape = {1 << 20, std::int64_t{1} << 30};
    huge.pieces = {{.name = "huge",
                    .global = huge.shape,
                    .start = {0, 0},
                    .extent = huge.shape,
                    .local_row = 0,
                    .initialization = {},
                    .decays = true}};
    const std::string message = message_of(Fault::kData, [&] {
      save_checkpoint({{&huge}, nullptr, nullptr}, run.context(), {dir.path(), state_of(1), ""});
    });
    EXPECT_THAT(message, HasSubstr("not enough disk space: got "));
    EXPECT_THAT(message, HasSubstr("wanted 4503599"));
  });
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Save, ThatTheSystemStopsInTheMiddleLeavesTheCheckpointBefore) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  // Files above 20 000 bytes are refused: those of the weights.
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 20000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of(Fault::kData, [&] { save(dir.path(), 2, 20); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("model-00001.safetensors: cannot "));
  EXPECT_EQ(loaded_salt(dir.path(), {10, 20}), 10);
  EXPECT_THAT(leftovers(dir.path()), testing::IsEmpty());
}

// The message on rank 0. Only values that are wrong are found after some were set.
std::string load_fault(const fs::path& folder, int ranks, bool sets_some = false) {
  std::string message;
  run_ranks(ranks, [&](World& world) {
    SmallRun run(world, {.tensor = ranks}, kVariant);
    run.fill(40);
    const std::string mine =
        message_of(Fault::kData, [&] { load_checkpoint(folder, run.stored(), run.context()); });
    if (!sets_some) {
      EXPECT_EQ(run.differences(40), 0) << "nothing may be loaded";
    }
    if (world.rank() == 0) message = mine;
  });
  return message;
}

void flip(const fs::path& file, std::int64_t position) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(position);
  const int byte = stream.get();
  stream.seekp(position);
  stream.put(static_cast<char>(byte ^ (1 << (position % 8))));
}

TEST(Save, IsHeldToWhatWasInMemory) {
  // The disk changes a byte behind the program's back, between the write and the end of the save.
  const auto spoil = [](std::string_view wanted) {
    return [wanted = std::string(wanted)](std::string_view call, const fs::path& path) {
      if (call == wanted && path.filename() == "model-00001.safetensors") {
        const std::int64_t last = static_cast<std::int64_t>(fs::file_size(path)) - 100;
        flip(path, last);
      }
    };
  };
  const TempFolder dir;
  // Read back on request.
  EXPECT_THAT(
      message_of(Fault::kData,
                 [&] { save(dir.path(), 1, 10, {.verify = true, .hook = spoil("forget")}); }),
      HasSubstr("the disk returned other bytes than were written"));
  EXPECT_EQ(latest_iteration(dir.path()), std::nullopt) << "nothing is published";
  save(dir.path(), 2, 20, {.verify = true, .hook = {}});
  EXPECT_EQ(loaded_salt(dir.path(), {20}), 20);
  // Without it the hash is that of memory all the same, and the load finds the byte.
  bool spoilt = false;
  save(dir.path(), 3, 30, {.hook = [&](std::string_view call, const fs::path& path) {
         if (call != "rename" || spoilt) return;
         spoilt = true;
         const fs::path file = fs::path(path) += ".tmp/model-00001.safetensors";
         flip(file, static_cast<std::int64_t>(fs::file_size(file)) - 100);
       }});
  EXPECT_THAT(message_of(Fault::kData, [&] { loaded_salt(dir.path(), {30}); }),
              HasSubstr("its bytes were changed since they were saved"));
  // Of several writers each is held to its own part.
  run_ranks(2, [&](World& world) {
    SmallRun run(world, {.tensor = 2});
    run.fill(1);
    const std::string message = message_of(Fault::kData, [&] {
      int syncs = 0;
      SaveOptions options;
      if (world.rank() == 1) {
        options.hook = [&](std::string_view call, const fs::path& path) {
          if (call != "sync" || path.filename() != "model-00001.safetensors" || syncs++ > 0) return;
          // Row 200 of the first tensor, which this rank alone holds.
          std::uint64_t header = 0;
          std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&header), 8);
          flip(path, static_cast<std::int64_t>(header) + 8 + 200 * test::kHidden * 4);
        };
      }
      save_checkpoint(run.stored(), run.context(), {dir / "two", state_of(1), "", options});
    });
    EXPECT_THAT(message, HasSubstr("other bytes than were written"));
  });
}

TEST(Save, ReplacesALinkInItsWayAndDoesNotFollowIt) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  std::ofstream(dir / "precious") << "text";
  fs::create_symlink(dir / "precious", dir / (std::string(kTrackerName) + ".tmp"));
  save(dir.path(), 2, 20);
  EXPECT_EQ(read_text_file(dir / "precious"), "text");
  EXPECT_EQ(loaded_salt(dir.path(), {20}), 20);
}

TEST(Save, KeepsOtherProgramsFoldersOfSuchNames) {
  const TempFolder dir;
  fs::create_directories(dir / "iter_0000001/mp_rank_00");
  for (int iteration = 2; iteration < 6; ++iteration) {
    save(dir.path(), iteration, 10, {.keep = 2, .hook = {}});
  }
  EXPECT_TRUE(fs::exists(dir / "iter_0000001/mp_rank_00"));
  EXPECT_FALSE(fs::exists(dir / "iter_0000003"));
  EXPECT_TRUE(fs::exists(dir / "iter_0000004"));
  EXPECT_TRUE(fs::exists(dir / "iter_0000005"));
}

TEST(Room, IsAskedForBeforeThereIsAnything) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {}, kVariant);
    check_room(dir / "not/yet/there", run.stored(), run.context());
    Parameter huge;
    huge.name = "huge";
    huge.shape = {1 << 20, std::int64_t{1} << 30};
    huge.pieces = {{.name = "huge",
                    .global = huge.shape,
                    .start = {0, 0},
                    .extent = huge.shape,
                    .local_row = 0,
                    .initialization = {},
                    .decays = true}};
    EXPECT_THAT(
        message_of(Fault::kData,
                   [&] {
                     check_room(dir / "not/yet", {{&huge}, nullptr, nullptr}, run.context());
                   }),
        HasSubstr("not enough disk space: got "));
  });
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(Load, NamesTheFileAndTheTensorOfAFlippedByte) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  const fs::path folder = dir / "iter_0000001";
  const Manifest manifest = read_manifest(folder);
  std::mt19937 random(5);
  for (const StoredTensor& one : manifest.tensors) {
    const std::int64_t position = one.offset + static_cast<std::int64_t>(random()) % one.bytes;
    flip(folder / one.file, position);
    const std::string message = load_fault(folder, 2, /*sets_some=*/true);
    EXPECT_THAT(message, HasSubstr(one.file + ": " + one.tensor.name + ": its bytes were changed"));
    flip(folder / one.file, position);
  }
  EXPECT_EQ(loaded_salt(dir.path(), {10}), 10);
}

TEST(Load, FindsAnyFlippedByteOfAnyFile) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  const fs::path folder = dir / "iter_0000001";
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {}, kVariant);
    std::mt19937 random(6);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const auto bytes = static_cast<std::int64_t>(entry.file_size());
      for (int round = 0; round < 250 / test::one_of(2) && bytes > 0; ++round) {
        // The first bytes, where headers are, as often as all others.
        const std::int64_t limit = round % 2 == 0 ? std::min<std::int64_t>(bytes, 4096) : bytes;
        const std::int64_t position = static_cast<std::int64_t>(random()) % limit;
        flip(entry.path(), position);
        EXPECT_THAT(message_of(Fault::kData,
                               [&] {
                                 const StoredModel model = run.stored();
                                 load_checkpoint(folder, model, run.context());
                                 read_config(folder, read_manifest(folder));
                               }),
                    HasSubstr(name))
            << name << " byte " << position;
        flip(entry.path(), position);
      }
    }
    load_checkpoint(folder, run.stored(), run.context());
    EXPECT_EQ(run.differences(10), 0);
  });
}

TEST(Load, RefusesFilesThatWereCutOrAreGone) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  const fs::path folder = dir / "iter_0000001";
  for (const char* name :
       {"model-00001.safetensors", "optimizer-00001.safetensors", "manifest.json", "state.json"}) {
    const std::string whole = read_text_file(folder / name);
    for (const double share : {0.0, 0.01, 0.5, 0.999}) {
      fs::resize_file(folder / name,
                      static_cast<std::uintmax_t>(static_cast<double>(whole.size()) * share));
      EXPECT_THAT(load_fault(folder, 1), HasSubstr(name));
    }
    fs::remove(folder / name);
    EXPECT_THAT(load_fault(folder, 2), HasSubstr(name));
    std::ofstream(folder / name, std::ios::binary) << whole;
  }
  EXPECT_EQ(loaded_salt(dir.path(), {10}), 10);
}

TEST(Load, WaitsForNoPipeInThePlaceOfAFile) {
  const TempFolder dir;
  save(dir.path(), 1, 10);
  const fs::path folder = dir / "iter_0000001";
  for (const char* name : {"model-00001.safetensors", "optimizer-00001.safetensors",
                           "manifest.json", "state.json", "config.toml"}) {
    const std::string whole = read_text_file(folder / name);
    fs::remove(folder / name);
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_THAT(load_fault(folder, 1), HasSubstr(name));
    fs::remove(folder / name);
    std::ofstream(folder / name, std::ios::binary) << whole;
  }
  fs::remove(dir / kTrackerName);
  ASSERT_EQ(::mkfifo((dir / kTrackerName).c_str(), 0600), 0);
  EXPECT_THAT(message_of(Fault::kData, [&] { find_checkpoint(dir.path()); }),
              HasSubstr("got a pipe, wanted a file"));
}

TEST(Load, DoesNotFollowAManifestOutOfItsFolder) {
  Manifest manifest;
  manifest.files.push_back({"../x", 1, 1, "0"});
  EXPECT_THAT(message_of(Fault::kData, [&] { parse_manifest(to_json(manifest), "m"); }),
              HasSubstr("\"name\" is no plain file name"));
}

}  // namespace
}  // namespace piton
