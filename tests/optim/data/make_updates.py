#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes updates.safetensors: weights and states after updates by torch's AdamW and SGD,
transformers' Adafactor and bitsandbytes' AdamW at 8 bits, for optimizer_golden_test.cpp.

KIND.UPDATES.PARAMETER is a weight, KIND.UPDATES.PARAMETER.STATE a state. "exact" is what
bitsandbytes' CUDA kernel computes, in numpy with its code tables and a search of all codes:
its CPU path looks codes up in 65,536 equal bins, so it is compared ("bitsandbytes") with gradients
between 0.25 and 1 alone, whose second moments all lie above the first bin.
"""
import pathlib

import bitsandbytes
import numpy
import torch
from bitsandbytes.functional import create_dynamic_map
from safetensors.torch import save_file
from transformers.optimization import Adafactor

FOLDER = pathlib.Path(__file__).parent
SMALL = {"layer.weight": (18, 30), "layer.bias": (70,)}
LARGE = {"word_embeddings.weight": (65, 64), "layer.weight": (64, 70), "layer.bias": (70,)}
DECAY = 0.1
RATES = [1e-2, 7e-3, 5e-3, 2e-3]


def numbers(name, count, update):
    """From -4095 to 4095, the same here and in the test."""
    seed = len(name) * 1299709 + update * 104729
    return (torch.arange(count, dtype=torch.int64) * 7919 + seed) % 8191 - 4095


def weight(name, shape):
    return (numbers(name, torch.Size(shape).numel(), 0) / 2**15).float().reshape(shape)


def gradient(name, shape, update, is_even):
    k = numbers(name, torch.Size(shape).numel(), update).double()
    if is_even:  # magnitudes from 0.25 to 1
        values = torch.where(k < 0, -1.0, 1.0) * (k.abs() * 3 + 4096) / 2**14
    else:  # from 2^-36 to almost 1, and 0
        values = k**3 / 2**36
    return values.float().reshape(shape)


def run(kind, make, shapes, states, keep, is_even=False):
    parameters = {n: torch.nn.Parameter(weight(n, s)) for n, s in shapes.items()}
    groups = [
        {"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = make(groups)
    if kind == "bitsandbytes":  # as transformers' Trainer
        manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
        module = torch.nn.Module()
        module.weight = parameters["word_embeddings.weight"]
        manager.register_module_override(module, "weight", {"optim_bits": 32})
    for update, rate in enumerate(RATES, 1):
        for name, parameter in parameters.items():
            parameter.grad = gradient(name, parameter.shape, update, is_even)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if update in keep:
            for name, parameter in parameters.items():
                yield f"{kind}.{update}.{name}", parameter.detach().clone()
                for state in states:
                    if torch.is_tensor(kept := optimizer.state[parameter].get(state)):
                        yield f"{kind}.{update}.{name}.{state}", kept.clone()


class Exact:
    """One parameter under bitsandbytes' kOptimizerStatic8bit2StateBlockwise."""

    F = numpy.float32

    def __init__(self, values, decay):
        self.weight = values.numpy().reshape(-1).copy()
        self.decay = decay
        self.maps = [create_dynamic_map(signed).numpy() for signed in (True, False)]
        self.moments = [numpy.zeros_like(self.weight) for _ in self.maps]
        self.codes = [None, None]

    def step(self, g, rate, t):
        f = self.F
        beta1, beta2, eps, rate = f(0.9), f(0.999), f(1e-8), f(rate)
        m = self.moments[0] * beta1 + (f(1) - beta1) * g
        v = self.moments[1] * beta2 + (f(1) - beta2) * g * g
        correction1 = f(1) - f(float(beta1) ** t)
        correction2 = numpy.sqrt(f(1) - f(float(beta2) ** t))
        step_size = -rate * correction2 / correction1
        self.weight = self.weight + step_size * (m / (numpy.sqrt(v) + correction2 * eps))
        if self.decay > 0:
            self.weight = self.weight * (f(1) - rate * f(self.decay))
        for i, moment in enumerate((m, v)):
            self.codes[i], self.moments[i] = self.quantize(moment, self.maps[i])

    @staticmethod
    def quantize(moment, codes):
        blocks = numpy.pad(moment, (0, -len(moment) % 256)).reshape(-1, 256)
        absmax = numpy.abs(blocks).max(axis=1, keepdims=True)
        scaled = blocks / absmax
        distance = numpy.abs(scaled[..., None].astype(numpy.float64) - codes)
        found = distance.argmin(axis=-1)
        wrong = numpy.signbit(codes[found]) != numpy.signbit(scaled)
        found = numpy.where(wrong, found + numpy.where(scaled > 0, 1, -1), found)
        back = (codes[found] * absmax).reshape(-1)[: len(moment)]
        return found.astype(numpy.uint8).reshape(-1)[: len(moment)], back


def run_exact():
    name = "layer.weight"
    parameter = Exact(weight(name, LARGE[name]), DECAY)
    for update, rate in enumerate(RATES, 1):
        parameter.step(
            gradient(name, LARGE[name], update, False).numpy().reshape(-1), rate, update
        )
    last = f"exact.{len(RATES)}.{name}"
    shape = LARGE[name]
    yield last, torch.from_numpy(parameter.weight).reshape(shape)
    for i, codes in enumerate(parameter.codes, 1):
        yield f"{last}.state{i}", torch.from_numpy(codes).reshape(shape)


def main():
    last = len(RATES)
    tensors = {
        "qmap1": create_dynamic_map(True),
        "qmap2": create_dynamic_map(False),
        **dict(run("adamw", lambda g: torch.optim.AdamW(g), SMALL, ["exp_avg", "exp_avg_sq"], {last})),
        **dict(
            run(
                "adafactor",
                lambda g: Adafactor(g, lr=1e-3, scale_parameter=False, relative_step=False),
                SMALL,
                ["exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"],
                {last},
            )
        ),
        **dict(run("sgd", lambda g: torch.optim.SGD(g, lr=1e-3), SMALL, [], {last})),
        **dict(
            run(
                "nesterov",
                lambda g: torch.optim.SGD(g, lr=1e-3, momentum=0.9, nesterov=True),
                SMALL,
                ["momentum_buffer"],
                {last},
            )
        ),
        **dict(
            run(
                "bitsandbytes",
                lambda g: bitsandbytes.optim.AdamW(g, optim_bits=8),
                LARGE,
                ["state1", "state2", "absmax1", "absmax2"],
                {1, last},
                is_even=True,
            )
        ),
        **dict(run_exact()),
    }
    save_file({n: t.contiguous() for n, t in tensors.items()}, FOLDER / "updates.safetensors")


if __name__ == "__main__":
    main()
