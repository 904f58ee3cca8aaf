# SPDX-License-Identifier: MIT
"""Makes bitsandbytes compute the same on every CPU. Its library's dequantize_4bit() returns wrong values for
matrices of less than 64 columns on CPUs with AVX512, and with AVX512-BF16 it evaluates in bfloat16 whatever the
type (0.50.2): torch's operators take their place. Import it before anything that imports bitsandbytes."""

import importlib.abc
import importlib.machinery
import sys

LEFT_OUT = ("bitsandbytes::dequantize_4bit", "bitsandbytes::gemv_4bit", "bitsandbytes::gemm_4bit")


def register_others(register):
    return lambda name, device: (lambda function: function) if name in LEFT_OUT else register(name, device)


class WithoutKernels(importlib.abc.MetaPathFinder):
    """Changes two modules of bitsandbytes while they are imported."""

    def find_spec(self, name, path, target=None):
        if name not in ("bitsandbytes.functional", "bitsandbytes.backends.cpu.ops"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            if name == "bitsandbytes.functional":
                execute(module)
                module.has_avx512bf16 = lambda: False
                return
            utils = sys.modules["bitsandbytes._ops"]
            register = utils.register_kernel
            utils.register_kernel = register_others(register)
            try:
                execute(module)
            finally:
                utils.register_kernel = register

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, WithoutKernels())
