# SPDX-License-Identifier: MIT
"""The binary `finetune` and the console entry that starts it with this environment's libtorch."""
