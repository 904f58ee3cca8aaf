#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several processes with other launchers, and ranks that are killed or whose system calls fail.

The launchers are two hosts (network namespaces connected by a cable) and torchrun.

  launchers.py --binary build/finetune --row two_hosts [--python PYTHON-WITH-TORCH]

Hosts need root and a kernel that allows network namespaces; elsewhere the row prints that and passes,
because it cannot be tested there.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "tests" / "fixtures" / "text"
STEPS = 12
ADDRESSES = ("10.71.0.1", "10.71.0.2")
PORT = "29555"


class Options:
    shim = None


class Run:
    """A tiny run in a separate folder: 8 samples per step in 4 micro-batches."""

    def __init__(self, binary, folder, name, hidden_size=32, **more):
        self.binary, self.out, self.config = binary, folder / name, folder / f"{name}.yaml"
        tokenizer = folder / "tokenizer"
        if not tokenizer.exists():
            subprocess.run(
                [binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "300",
                 "--output", tokenizer, TEXT / "lighthouse.txt"],
                check=True, stderr=subprocess.DEVNULL)  # fmt: skip
        keys = {
            "output_dir": str(self.out),
            "cache_dir": str(folder / "cache"),
            "model_type": "roberta",
            "tokenizer_name": str(tokenizer),
            "config_overrides": {
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "hidden_size": hidden_size,
                "intermediate_size": 2 * hidden_size,
                "max_position_embeddings": 34,
                "type_vocab_size": 1,
            },
            "train_file": str(TEXT / "lighthouse.txt"),
            "validation_file": str(TEXT / "lighthouse-valid.txt"),
            "max_seq_length": 32,
            "max_steps": STEPS,
            "per_device_train_batch_size": 2,
            "effective_batch_size": 8,
            "full_determinism": True,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "eval_strategy": "steps",
            "eval_steps": 6,
            "save_steps": 4,
            "dataloader_num_workers": 0,
            "report_to": "none",
            **more,
        }
        self.config.write_text(json.dumps(keys))  # JSON is YAML

    def command(self, *more):
        return [str(self.binary), "train", str(self.config), *more]

    def digest(self):
        weights = (self.out / "model.safetensors").read_bytes()
        states = (self.out / f"checkpoint-{STEPS}" / "optimizer.pt").read_bytes()
        return hashlib.sha256(weights + states).hexdigest()

    def wait_for_step(self, step, process):
        until = time.monotonic() + 60
        while not (self.out / f"checkpoint-{step}").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"no checkpoint-{step}: {process.communicate()[1]}")
            time.sleep(0.02)


def start(command, environment=None, prefix=()):
    return subprocess.Popen(
        [*prefix, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process, seconds=60):
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end within {seconds} s: {process.communicate()[1]}") from None
    return process.returncode, said


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Hosts:
    """Two network namespaces, each with its own loopback interface and one end of a cable."""

    def __init__(self):
        self.names = [f"finetune-{os.getpid()}-{side}" for side in "ab"]

    def __enter__(self):
        ends = [f"ft{os.getpid() % 100000}{side}" for side in "ab"]
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for name, cable, address in zip(self.names, ends, ADDRESSES):
                self.ip("link", "set", cable, "netns", name)
                self.ip("-n", name, "link", "set", cable, "name", "cable")
                self.ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
                self.ip("-n", name, "link", "set", "cable", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise Unable(f"no network namespaces here: {error}") from error
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, run, rank, environment=None):
        return start(
            run.command(),
            {
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": "0",
                "SLURM_NTASKS": "2",
                "SLURM_NNODES": "2",
                "SLURM_JOB_ID": "77",
                "SLURM_STEP_ID": "0",
                "MASTER_ADDR": ADDRESSES[0],
                "MASTER_PORT": PORT,
                "GLOO_SOCKET_IFNAME": "cable",
                "FINETUNE_JOB_TOKEN": "of these two",
                **(environment or {}),
            },
            prefix=("ip", "netns", "exec", self.names[rank]),
        )

    def both(self, run, environment=None):
        return [self.start(run, rank, environment) for rank in (0, 1)]

    def listening(self, rank):
        words = ["netns", "exec", self.names[rank], "cat", "/proc/net/tcp", "/proc/net/tcp6"]
        lines = subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
        rows = [line.split() for line in lines.splitlines()]
        return [row[1] for row in rows if len(row) > 3 and row[3] == "0A"]


class Unable(Exception):
    pass


def finish(run, expected):
    """Finishes a run in one process: it must end where an uninterrupted run does."""
    code, said = end(start(run.command()))
    check(code == 0, said)
    check(run.digest() == expected, "other bits than without the fault")


def two_hosts(binary, folder, _):
    alone = Run(binary, folder, "alone")
    code, said = end(start(alone.command()))
    check(code == 0, said)
    expected = alone.digest()
    with Hosts() as hosts:
        run = Run(binary, folder, "together")
        processes = hosts.both(run)
        run.wait_for_step(4, processes[0])
        for rank, address in enumerate(("0100470A", "0200470A")):
            open_ports = hosts.listening(rank)
            others = [port for port in open_ports if not port.startswith(address)]
            check(open_ports and not others, f"rank {rank} listens on {open_ports}")
        for process in processes:
            code, said = end(process)
            check(code == 0 and "error" not in said, said)
        check(run.digest() == expected, "two hosts end in other bits than one process")

        for lost in (0, 1):
            run = Run(binary, folder, f"killed-{lost}")
            processes = hosts.both(run)
            run.wait_for_step(4, processes[0])
            processes[lost].kill()
            begin = time.monotonic()
            code, said = end(processes[1 - lost])
            seconds = time.monotonic() - begin
            check(code == 75, f"exit code {code}: {said}")
            # Within 3 s on an idle machine; heartbeats alone would take 45 s.
            check(seconds < 15, f"rank {1 - lost} left after {seconds:.1f} s: {said}")
            check(f"rank {lost}" in said and said.count("error:") == 1, said)
            check(len(said.splitlines()) < 60 and "frame #" not in said, said)
            processes[lost].communicate()
            finish(run, expected)

        # Pulling a cable closes no connection, nor does stopping a process.
        patience = {"FINETUNE_TEST_HANG_SECONDS": "4"}
        for fault in ("pulled", "stopped"):
            run = Run(binary, folder, fault)
            processes = hosts.both(run, patience)
            run.wait_for_step(4, processes[0])
            if fault == "pulled":
                Hosts.ip("-n", hosts.names[1], "link", "set", "cable", "down")
            else:
                processes[1].send_signal(signal.SIGSTOP)
            code, said = end(processes[0], 30)
            check(code == 75, f"exit code {code}: {said}")
            check("rank 1" in said and "no sign of life" in said, said)
            if fault == "pulled":
                code, said = end(processes[1], 30)
                check(code == 75 and "rank 0" in said, f"exit code {code}: {said}")
                Hosts.ip("-n", hosts.names[1], "link", "set", "cable", "up")
            else:
                processes[1].kill()
                processes[1].communicate()
            finish(run, expected)


def torchrun(binary, folder, python):
    """Two processes find each other through torchrun's server and train one run. If one dies, torchrun
    starts all of them again, and they resume."""
    if subprocess.run([python, "-c", "import torch.distributed.run"], check=False).returncode:
        raise Unable("this Python cannot start torchrun")

    def agent_of(run):
        return start(
            [python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2",
             "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--master-addr",
             "127.0.0.1", "--master-port", "0", "--max-restarts", "2", "--monitor-interval", "0.2",
             *run.command()])  # fmt: skip

    alone = Run(binary, folder, "alone")
    code, said = end(start(alone.command()))
    check(code == 0, said)
    run = Run(binary, folder, "together")
    code, said = end(agent_of(run), 120)
    check(code == 0 and "2 processes" in said, said)
    check(run.digest() == alone.digest(), "torchrun's processes end in other bits than one")

    run = Run(binary, folder, "restarted")
    agent = agent_of(run)
    run.wait_for_step(4, agent)
    members = [child for child in children_of(agent)
               if Path(f"/proc/{child}/exe").resolve() == binary]  # fmt: skip
    check(len(members) == 2, f"torchrun has {len(members)} processes of finetune")
    os.kill(members[1], signal.SIGKILL)
    code, said = end(agent, 120)
    check(code == 0, said)
    check("resuming from" in said, said)
    check(run.digest() == alone.digest(), "torchrun's restart ends in other bits")


def children_of(process):
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except FileNotFoundError:
        return []


def wait_for_members(process, count):
    while len(children_of(process)) < count and process.poll() is None:
        time.sleep(0.005)
    return children_of(process)


def moments(binary, folder, _, **keys):
    """Kills each rank, or asks it to stop, at moments spread over the run: while the processes connect,
    tokenise, train, evaluate, save and exit."""
    for name in ("first", "alone"):  # the first rank also tokenises
        alone = Run(binary, folder, name, **keys)
        process = start(alone.command("--num_processes", "2"))
        wait_for_members(process, 2)
        begin = time.monotonic()
        code, said = end(process)
        check(code == 0, said)
        life = time.monotonic() - begin
    count = int(os.environ.get("FINETUNE_PROCESSES_MOMENTS", "4"))
    codes = {}
    for number in range(4 * count):
        rank, kind = number % 2, (signal.SIGKILL, signal.SIGTERM)[number // 2 % 2]
        run = Run(binary, folder, f"moment-{number}", **keys)
        process = start(run.command("--num_processes", "2"))
        members = wait_for_members(process, 2)
        time.sleep(0.9 * life * (number // 4 + (number * 0.618) % 1) / count)
        if rank < len(members):
            with contextlib.suppress(ProcessLookupError):  # it had already ended
                os.kill(members[rank], kind)
        code, said = end(process)
        wanted = f"{kind.name} to rank {rank} of run {number}: exit code {code}: {said}"
        check(code in (0, 75) and said.count("error:") <= 1, wanted)
        if kind == signal.SIGTERM:
            check("error:" not in said, wanted)
        codes[code] = codes.get(code, 0) + 1
        code, said = end(start(run.command("--num_processes", "2")))
        check(code == 0, said)
        check(run.digest() == alone.digest(), f"other bits after {wanted}")
        shutil.rmtree(run.out)
    check(codes.get(75, 0) >= count, f"nothing was hit: {codes}")
    print(f"{4 * count} moments, exit codes {codes}")


def divided_moments(binary, folder, python):
    """The same of ranks that have a part of the model each: also while weights are gathered, gradients sent,
    and parts written."""
    moments(binary, folder, python, hidden_size=128, zero_stage=3, save_steps=2)


def slurm_task(rank):
    return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2",
            "SLURM_NNODES": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
            "MASTER_PORT": PORT}  # fmt: skip


# Calls of c10d's stores and of Gloo in their destructors, and the files that they use.
IN_FILE_STORE = [("open", "/proc/self/fd/"), *((call, "/memfd:finetune") for call in
                 ("flock", "lseek", "read", "write", "close"))]  # fmt: skip
IN_PORT_STORE = [("send", "socket:"), ("recv", "socket:"), ("write", "anon_inode:[eventfd]")]
IN_CONNECTIONS = [("close", "socket:"), ("shutdown", "socket:")]


def failing_exit(binary, folder, _):
    """Collectives fail at exit: after the last checkpoint, calls of the rendezvous store or of connections
    return errors in one rank. No rank may crash after everything was saved, and the next start must
    find the finished run."""
    whole = Run(binary, folder, "whole")
    check(end(start(whole.command("--num_processes", "2")))[0] == 0, "the run does not work at all")
    cases = [
        (store, rank, call, on, count)
        for store, calls in (("file", IN_FILE_STORE), ("port", IN_PORT_STORE))
        for rank in (0, 1)
        for call, on, count in [(*one, 1) for one in calls] + [(*one, 0) for one in IN_CONNECTIONS]
    ]
    log = folder / "faults"
    faults = 0
    for store, rank, call, on, count in cases:
        what = f"{store} store, rank {rank}: {'one' if count else 'every'} {call} on {on}"
        run = Run(binary, folder, "failing")
        fault = {
            "LD_PRELOAD": str(Options.shim),
            "FINETUNE_FAULT": f"{call}@1+{count}=5",  # EIO
            "FINETUNE_FAULT_FOLDER": on,
            "FINETUNE_FAULT_AFTER": str(run.out / f"checkpoint-{STEPS}"),
            "FINETUNE_FAULT_LOG": str(log),
        }
        if store == "file":
            fault["FINETUNE_FAULT_FORK"] = str(rank + 1)
            ranks = [start(run.command("--num_processes", "2"), fault)]
        else:
            faults_of = [fault if one == rank else {} for one in (0, 1)]
            ranks = [start(run.command(), {**slurm_task(one), **faults_of[one]}) for one in (0, 1)]
        # A collective that fails before the end stops the run, like a dead rank.
        for code, said in [end(process) for process in ranks]:
            crashed = code not in (0, 75) or "terminate called" in said
            check(not crashed, f"{what}: exit code {code}: {said}")
        if log.exists():
            faults += 1
            log.unlink()
        code, said = end(start(run.command("--num_processes", "2")))
        check(code == 0, f"{what}, the next start: {code}: {said}")
        check(run.digest() == whole.digest(), f"{what}: other bits")
        shutil.rmtree(run.out)
    print(f"{len(cases)} cases, in {faults} of them calls failed")


ROWS = {
    "divided_moments": divided_moments,
    "failing_exit": failing_exit,
    "moments": moments,
    "two_hosts": two_hosts,
    "torchrun": torchrun,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--row", choices=ROWS, required=True)
    parser.add_argument("--shim", type=Path, help="the library of tests/faults/shim.c")
    args = parser.parse_args()
    Options.shim = args.shim and args.shim.resolve()
    with tempfile.TemporaryDirectory() as folder:
        try:
            ROWS[args.row](args.binary.resolve(), Path(folder), args.python)
        except Unable as reason:
            print(f"{args.row}: {reason}; nothing was tried")


if __name__ == "__main__":
    main()
