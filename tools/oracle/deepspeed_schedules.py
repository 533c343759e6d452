"""Learning rates of DeepSpeed's schedulers.

    pip download deepspeed==0.9.2 --no-deps --no-binary :all: && tar xzf deepspeed-0.9.2.tar.gz
    python tools/oracle/deepspeed_schedules.py deepspeed-0.9.2 > tests/golden/deepspeed_schedules.txt

Only runtime/lr_schedules.py is loaded: what it imports of torch and DeepSpeed is replaced, because a schedule needs
nothing of it but the groups of an optimizer. A line: the scheduler as JSON, then its rates at iterations 0 to 29.
"""
import datetime
import importlib.util
import json
import pathlib
import platform
import sys
import types

CASES = [
    {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 10, "warmup_type": "linear"}},
    {"type": "WarmupLR", "params": {"warmup_num_steps": 1, "warmup_type": "linear"}},
    {"type": "WarmupDecayLR", "params": {"total_num_steps": 25, "warmup_min_lr": 0, "warmup_max_lr": 1e-3,
                                         "warmup_num_steps": 5, "warmup_type": "linear"}},
    {"type": "WarmupDecayLR", "params": {"total_num_steps": 30, "warmup_num_steps": 7, "warmup_type": "linear"}},
]


class Optimizer:
    def __init__(self):
        self.param_groups = [{"lr": 1.0}]


def module(name, **content):
    found = sys.modules[name] = types.ModuleType(name)
    vars(found).update(content)


def schedulers(folder):
    class Logger:
        warning = info = staticmethod(lambda *words: None)

    module("torch")
    module("torch.optim", Optimizer=Optimizer)
    module("deepspeed")
    module("deepspeed.utils", logger=Logger)
    file = pathlib.Path(folder) / "deepspeed/runtime/lr_schedules.py"
    spec = importlib.util.spec_from_file_location("lr_schedules", file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    loaded.get_torch_optimizer = lambda optimizer: optimizer
    return loaded


def main():
    folder = sys.argv[1]
    loaded = schedulers(folder)
    print(f"# tools/oracle/deepspeed_schedules.py, {datetime.date.today()}: {pathlib.Path(folder).resolve().name}, "
          f"Python {platform.python_version()}")
    for case in CASES:
        optimizer = Optimizer()
        scheduler = getattr(loaded, case["type"])(optimizer, **case["params"])
        rates = []
        for _ in range(30):
            scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        print(json.dumps(case, separators=(",", ":")), *(repr(rate) for rate in rates))


main()
