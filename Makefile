# make build   build/piton                      make demo     from text to a model that talks, minutes
# make test    what must hold before a merge    make nightly  the same, longer and under more eyes
# make format  the sources as .clang-format has them          make tidy     clang-tidy
# make check-format   fails where `make format` would change something
# make docs    docs/cli.md and the table of Megatron-LM's flags
# make diagrams   pictures and the table of docs/architecture.md, from the sources; needs Python
#
# The work is CMake's (CMakePresets.json: cpu, debug, tsan, cuda); this file only names the steps.
.NOTPARALLEL:
.PHONY: build all-tests test test-cpu test-debug demo nightly test-tsan fuzz mutants docs diagrams format check-format tidy dependencies clean

JOBS ?= $(shell nproc)
SANITIZE_WHOLE ?= OFF
FUZZ_SECONDS ?= 300
FUZZ_RUNS ?= 10000000
CTEST = ctest --output-on-failure -j $(JOBS)
# Tests of commands mostly wait, for mpirun and for processes that start: two for each processor. Tests of ranks take
# three of these places (cmake/tests.cmake).
CTEST_WHOLE = ctest --output-on-failure -j $$((2 * $(JOBS)))
# The flag that names the Arrow in build/arrow, if one is needed; fetches it the first time.
ARROW = $$(tools/fetch-arrow.sh)
# Open MPI's and dlopen'ed libraries' own leaks are not ours; sanitizers say where an error is.
SANITIZER_OPTIONS = UBSAN_OPTIONS=print_stacktrace=1 \
  LSAN_OPTIONS=suppressions=$(CURDIR)/tools/leaks.supp:print_suppressions=0 \
  TSAN_OPTIONS=suppressions=$(CURDIR)/tools/races.supp:history_size=4

# With CUDA where nvcc is found: the kernels of GPUs take six minutes of a processor, once. PITON_CUDA=OFF leaves them
# out; CUDA_ARCHITECTURES=90-real compiles them for one kind of GPU, in a quarter of the time.
# PITON_MPI=OFF builds without MPI, whose packages are then not installed; `piton launch` starts ranks.
PITON_CUDA ?= AUTO
PITON_MPI ?= AUTO
export PITON_MPI
CUDA_ARCHITECTURES ?=
build: dependencies
	cmake --preset cpu $(ARROW) -DPITON_CUDA=$(PITON_CUDA) -DPITON_MPI=$(PITON_MPI) \
	  $(if $(CUDA_ARCHITECTURES),-DCMAKE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES))
	cmake --build --preset cpu -j $(JOBS) --target piton

test: test-debug test-cpu

all-tests: build
	cmake --build --preset cpu -j $(JOBS)

# LEFT_OUT: options of ctest that leave tests of test-cpu out; a command in $$(...) is run when they start.
LEFT_OUT ?=
# All but the unit tests, in the build that users run. The unit tests of a day are the sanitized ones.
test-cpu: build
	cmake --build --preset cpu -j $(JOBS) --target whole_tests $(KERNEL_BITS)
	status=0; $(if $(KERNEL_BITS),$(CTEST) --preset cpu -R 'unit/$(KERNEL_BITS)$$' || status=1;) \
	  $(CTEST_WHOLE) --preset cpu -LE 'nightly|unit' $(LEFT_OUT) || status=1; tools/list-skipped.sh build; exit $$status

# Unit tests with every access and every undefined operation checked. By day reports have the last six callers of an
# allocation, not thirty: a fifth of the time.
# SANITIZED_CXX=clang++-16 SANITIZED_BUILD=build-clang: Clang takes two thirds of GCC's time, and chooses other orders
# where the language leaves them open. Kernels then have no fused products and sums; on AVX-512 unit_kernels_cpu, which
# compares their bits, has not passed under it yet, so test-cpu runs that one. A build folder stays with its compiler.
# UNIT_SHARE="GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0": half of the tests of the longest unit suites. DRAWN_SUITES=ON:
# one of two suites (tools/drawn-suites.sh).
UNIT_SHARE ?=
DRAWN_SUITES ?= OFF
SANITIZED_CXX ?=
SANITIZED_BUILD ?= build-debug
KERNEL_BITS = $(if $(SANITIZED_CXX),unit_kernels_cpu)
FEWER_CALLERS = $(if $(filter ON,$(SANITIZE_WHOLE)),,ASAN_OPTIONS=malloc_context_size=6)
test-debug: dependencies
	cmake --preset debug -B $(SANITIZED_BUILD) $(ARROW) -DPITON_SANITIZE_WHOLE=$(SANITIZE_WHOLE) \
	  $(if $(wildcard $(SANITIZED_BUILD)/CMakeCache.txt),,$(SANITIZED_CXX:%=-DCMAKE_CXX_COMPILER=%))
	suites=$$(test $(DRAWN_SUITES) = OFF || tools/drawn-suites.sh $(SANITIZED_BUILD) | grep -vx '$(KERNEL_BITS)'); \
	  cmake --build $(SANITIZED_BUILD) -j $(JOBS) --target $${suites:-unit_tests} && \
	  $(SANITIZER_OPTIONS) $(FEWER_CALLERS) $(UNIT_SHARE) $(CTEST) --test-dir $(SANITIZED_BUILD) -L unit \
	  $(KERNEL_BITS:%=-E '%$$') -R "^unit/($$(echo -n "$${suites:-.*}" | tr '\n' '|'))\$$"

demo: build
	tools/demo.sh

# In parts, each of which is run once for the sources as they are, and which resume where they were ended. Some are
# shared among nights of NIGHT_HOURS=4. FUZZ_SECONDS=7200 fuzzes longer. Tests that have a larger matrix run it where
# PITON_NIGHTLY is set.
nightly: dependencies
	tools/nightly.sh

test-tsan: dependencies
	cmake --preset tsan $(ARROW)
	cmake --build --preset tsan -j $(JOBS) --target unit_tests
	$(SANITIZER_OPTIONS) $(CTEST) --preset tsan -L unit

# A hundred small faults in a copy of the sources, others each day: nine of ten are to be seen.
mutants: dependencies
	tools/mutate.sh --anew yes --seed $$(date +%Y%m%d) --count 100

# Needs clang. Findings stay as crash-* next to the fuzzers.
fuzz: dependencies
	cmake --preset fuzz $(ARROW)
	cmake --build --preset fuzz -j $(JOBS) --target fuzzers
	tools/fuzz.sh build-fuzz $(FUZZ_SECONDS) $(FUZZ_RUNS)

# docs/cli.md and docs/megatron_flags.md, from the options themselves; tests compare.
docs: build
	build/piton help --markdown > docs/cli.md
	build/piton help --megatron > docs/megatron_flags.md

# docs/diagrams and the table of layers in docs/architecture.md; tests compare the table. The times of the schedules are
# compared with those of the program.
diagrams: build
	python3 tools/diagrams/layers.py docs/diagrams/layers.svg
	python3 tools/diagrams/mesh.py docs/diagrams/mesh.svg
	python3 tools/diagrams/token_path.py docs/diagrams/token.svg
	python3 tools/diagrams/step.py docs/diagrams/step.svg build/piton
	python3 tools/diagrams/schedules.py docs/diagrams/schedules.svg build/piton
	python3 tools/diagrams/context.py docs/diagrams/context.svg
	python3 tools/diagrams/regions.py docs/diagrams/regions.svg

format:
	git ls-files 'src/*.h' 'src/*.cpp' 'src/*.cu' 'src/*.cuh' 'tests/*.h' 'tests/*.cpp' 'bench/*.cpp' \
	  'include/*.h' 'examples/*.c' 'examples/*.cpp' \
	  | xargs clang-format -i

check-format:
	tools/check-format.sh

# Findings are errors.
tidy: dependencies
	cmake --preset cpu $(ARROW) -B build-tidy -DPITON_UNITY=OFF
	git ls-files 'src/*.cpp' | xargs -P $(JOBS) -n 4 clang-tidy -p build-tidy --quiet --warnings-as-errors='*'

dependencies:
	tools/install-dependencies.sh

clean:
	rm -rf build build-debug build-clang build-tsan build-fuzz build-tidy build-mutants
