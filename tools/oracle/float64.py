"""Modules of Transformers that compute in float64 what they compute in float32, whatever the type of the weights."""
import contextlib
import importlib
import unittest.mock

import torch


class Float64Torch:
    """The module torch, whose float32 is float64."""
    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def in_float64(*families):
    """Norms, routers and states of the models of `families` (names of folders of transformers.models) are in float64."""
    with contextlib.ExitStack() as stack:
        for family in families:
            module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
            stack.enter_context(unittest.mock.patch.object(module, "torch", Float64Torch()))
            stack.enter_context(unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield
