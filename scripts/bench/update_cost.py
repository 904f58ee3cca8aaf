# SPDX-License-Identifier: MIT
"""CPU seconds of an update and peak memory of trainers, in turns, as a Markdown table."""

import statistics

from decision import cpu_seconds


class UpdateCosts:
    """`commands`: {program: command of a number of updates}; the first is the one that others are compared with."""

    def __init__(self, commands, few, more, threads):
        self.commands, self.few, self.more, self.threads = commands, few, more, threads
        self.seconds = {program: [] for program in commands}
        self.peak = {program: [] for program in commands}

    def measure(self):
        """One round. The difference of two runs takes the start off; the peak is that of the longer one."""
        for program, command in self.commands.items():
            few, _ = cpu_seconds(command(self.few), self.threads)
            many, memory = cpu_seconds(command(self.more), self.threads)
            self.seconds[program].append((many - few) / (self.more - self.few))
            self.peak[program].append(memory)

    def print_table(self, peer):
        """`peer`: the short name of the first program."""
        base = next(iter(self.commands))
        print(f"| program | CPU s an update | of {peer}'s | peak MiB | of {peer}'s |\n|---|---|---|---|---|")
        for program in self.commands:
            time, memory = statistics.median(self.seconds[program]), statistics.median(self.peak[program])
            print(f"| {program} | {time:.2f} | {time / statistics.median(self.seconds[base]):.2f}x | {memory:.0f} "
                  f"| {memory / statistics.median(self.peak[base]):.2f}x |")  # fmt: skip
