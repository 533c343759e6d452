#!/usr/bin/env python3
"""The time of each kernel in a log of Nsight Compute, as tools/gpu_session.py writes it.

    tools/cuda_profile.py profile.csv [--steps 2] [--rows 40]

--steps: the number of training steps in the log; times and calls are those of one of them. Kernels that ran outside of
steps are counted too.
"""
import argparse
import collections
import csv

MICROSECONDS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6, "nsecond": 1e-3, "usecond": 1, "msecond": 1e3, "second": 1e6}
MEGABYTES = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1, "Gbyte": 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", type=int, default=40)
    arguments = parser.parse_args()
    kernels = collections.defaultdict(lambda: [set(), 0.0, 0.0])  # calls, microseconds, megabytes
    with open(arguments.log) as log:
        for row in csv.DictReader(line for line in log if line.startswith('"')):
            if not row["ID"].isdigit():  # the line of units
                continue
            kernel = kernels[row["Kernel Name"].replace("piton::", "").replace("<unnamed>::", "")]
            value, unit = float(row["Metric Value"].replace(",", "")), row["Metric Unit"]
            kernel[0].add(row["ID"])
            if unit in MICROSECONDS:
                kernel[1] += value * MICROSECONDS[unit]
            else:
                kernel[2] += value * MEGABYTES[unit]
    total = sum(time for _, time, _ in kernels.values())
    calls = sum(len(ids) for ids, _, _ in kernels.values())
    print(f"{total / 1e3 / arguments.steps:.2f} ms in {calls / arguments.steps:.0f} calls a step")
    print("ms a step  calls  us a call  TB/s  kernel")
    for name, (ids, time, megabytes) in sorted(kernels.items(), key=lambda item: -item[1][1])[:arguments.rows]:
        print(f"{time / 1e3 / arguments.steps:9.2f} {len(ids) / arguments.steps:6.1f} {time / len(ids):10.1f} "
              f"{megabytes / time:5.2f}  {name[:100]}")


if __name__ == "__main__":
    main()
