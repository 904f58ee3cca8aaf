#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mirrors in a bucket (R27): the release binary, rclone, and a local S3 server with a proxy that misbehaves.

Runs one row: --row bad_days. Exit code 77, in CI 1: moto or rclone is missing (tests/requirements.txt).
"""

import argparse
import contextlib
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "faults"))
import on_binary
from on_binary import Options, Row, scaled
from server import KEYS, Proxy, Store

PREFIX = "runs/a b/ü"  # names with spaces and other letters


class BucketRun(on_binary.Run):
    """A run whose mirror is below PREFIX in the bucket."""

    store = proxy = None

    def __init__(self, **keys):
        super().__init__(mirror_dir=f"s3://{Store.bucket}/{PREFIX}", **keys)

    def environment(self):
        return {**KEYS, "AWS_ENDPOINT_URL": BucketRun.proxy.url, "TMPDIR": str(self.root)}

    def empty_bucket(self):
        while names := BucketRun.store.names():
            for name in names:
                BucketRun.store.request("DELETE", f"/{Store.bucket}/{quote(name)}")

    def begin_anew(self):
        super().begin_anew()
        self.empty_bucket()

    def lose_machine(self):
        on_binary.remove(self.out)
        self.out.mkdir()

    def end_by_signal(self, process):
        process.send_signal(signal.SIGTERM)
        return self.end(process)

    def tool(self, *words):
        return subprocess.run(
            [str(Options.binary), *words], capture_output=True, text=True, env={**os.environ, **self.environment()}
        )

    def in_bucket(self):
        return [name.removeprefix(PREFIX + "/") for name in BucketRun.store.names(PREFIX + "/")]


def finish_elsewhere(run, at_least=0):
    """Loses the machine, runs the same command there and returns the problem, or an empty string."""
    run.lose_machine()
    problem = run.finish(at_least)
    if problem:
        return problem
    listed = run.tool("checkpoints", run.keys["mirror_dir"], "--verify")
    if listed.returncode != 0 or f"step {run.steps}" not in listed.stdout:
        return f"the bucket's list: {listed.stdout}{listed.stderr}"
    return ""


def complete_in_bucket(run):
    """The newest checkpoint whose manifest has arrived."""
    names = (re.fullmatch(r"checkpoint-(\d+)/manifest\.json", name) for name in run.in_bucket())
    return max((int(name[1]) for name in names if name), default=0)


def end_to_end(row):
    """Killed, the disk lost, resumed from the bucket to the same bits; then the model comes from there, too."""
    run = BucketRun()
    run.begin_anew()
    process = run.begin()
    while complete_in_bucket(run) < 4 and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    at = complete_in_bucket(run)
    row.add("killed, disk lost", finish_elsewhere(run, at))
    missing = {"model.safetensors", "manifest.json", "trainer_state.json"} - set(run.in_bucket())
    row.add("the finished model is in the bucket", f"missing: {missing}" if missing else "")
    run.lose_machine()
    code = run.start()
    said = run.said()
    row.add("finished, disk lost", "" if code == 0 and "already finished" in said else f"{code}: {said}")
    row.add("the model is back", "" if (run.out / "model.safetensors").exists() else said)
    status = run.tool("status", str(run.out))
    row.add("status", "" if "up to date" in status.stdout else status.stdout + status.stderr)
    status = run.tool("status", run.keys["mirror_dir"])
    is_shown = status.returncode == 0 and "finished" in status.stdout and "writing and" in status.stdout
    row.add("the bucket's status", "" if is_shown else f"{status.returncode}: {status.stdout}{status.stderr}")
    text = run.root / "report.md"
    report = run.tool("report", run.keys["mirror_dir"], "-o", str(text))
    is_shown = report.returncode == 0 and "the bucket so far" in text.read_text()
    row.add("the bucket's report", "" if is_shown else f"{report.returncode}: {report.stderr}")
    plan = run.tool("plan", str(run.config))
    row.add("plan", "" if "the bucket: " in plan.stdout else plan.stdout + plan.stderr)
    run.lose_machine()
    stopped = run.start("--restart", "--stop_at_step", "3")
    row.add("--restart, disk lost", "" if stopped == 75 and complete_in_bucket(run) == 3 else run.said())
    kept = {"run.old-1/model.safetensors", f"checkpoint-{run.steps}.old-1/manifest.json"} - set(run.in_bucket())
    row.add("the former run is kept", f"missing: {kept}" if kept else "")
    row.add("the new one resumes", finish_elsewhere(run, 3))
    doctor = run.tool("doctor", run.keys["mirror_dir"])
    row.add("doctor", "" if "MB/s" in doctor.stdout else doctor.stdout + doctor.stderr)
    run.close()


def kills(row):
    """SIGKILL with the local disk lost, at random moments."""
    run = BucketRun()
    chance = random.Random(Options.seed)
    on_binary.unbroken(BucketRun)
    for i in range(scaled(20)):
        run.begin_anew()
        killed = 0
        while killed < 3:
            process = run.begin()
            time.sleep(chance.random() * 1.2 * max(on_binary.kept["seconds"], 0.5))
            process.kill()
            if process.wait() == 0:
                break
            killed += 1
            run.lose_machine()
        row.add(f"run {i}, {killed} kills", finish_elsewhere(run, complete_in_bucket(run)))
    run.close()


def contenders(row):
    """Two machines that train to one bucket: the second names the first, and stops."""
    endless = {"max_steps": 10**6, "save_steps": 50}  # the first must not finish while the second waits
    first, second = BucketRun(**endless), BucketRun(**endless)
    first.begin_anew()
    elsewhere = ["unshare", "--uts", "--mount", "sh", "-c", 'hostname elsewhere; exec "$@"', "-"]
    may_rename = subprocess.run([*elsewhere, "true"], capture_output=True).returncode == 0
    process = first.begin()
    while not first.in_bucket() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(2)
    code = second.start(under=elsewhere if may_rename else ())
    said = second.said()
    row.add("the second", "" if code == 5 and "is in use by" in said else f"ended with {code}: {said}")
    first.end_by_signal(process)
    row.add("the first continues", "" if "taken over" not in first.said() else first.said())
    # Both at once, in an empty bucket far away: the store's condition decides.
    proxy = BucketRun.proxy
    for i in range(scaled(4)):
        first.begin_anew()
        on_binary.remove(second.out)
        second.out.mkdir()
        proxy.latency, before = 0.3, proxy.conditions
        processes = [first.begin(), second.begin(under=elsewhere if may_rename else ())]
        end = time.monotonic() + 90
        while all(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
        proxy.heal()
        for run, process in ((first, processes[0]), (second, processes[1])):
            if process.poll() is None:
                run.end_by_signal(process)
        problem = "" if sorted(codes, key=str) == [5, None] else f"ended with {codes}: {first.said()}{second.said()}"
        if proxy.conditions == before:
            problem = problem or "no request had a condition"
        row.add(f"both at once {i}", problem)
    first.close()
    second.close()


class PairRun(BucketRun):
    """The same with two processes that train together."""

    def __init__(self, **keys):
        super().__init__(num_processes=2, per_device_train_batch_size=2, **keys)


def processes(row):
    """Two processes; the one that writes is killed, and the machine is lost."""
    run = PairRun()
    on_binary.unbroken(PairRun)
    for i in range(scaled(3)):
        run.begin_anew()
        launcher = run.begin()
        while complete_in_bucket(run) < 4 and launcher.poll() is None:
            time.sleep(0.02)
        ranks = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
        with contextlib.suppress(OSError, ValueError):  # the run has just ended
            os.kill(min(map(int, ranks.read_text().split())), signal.SIGKILL)  # rank 0 is started first
        code = run.end(launcher)
        problem = "" if code in (0, 75) else f"ended with {code}: {run.said()}"
        row.add(f"rank 0 killed {i}", problem or finish_elsewhere(run, complete_in_bucket(run)))
    run.close()


def times(limit, action, methods="PUT", begins=""):
    """The fault for the first `limit` requests of a kind."""
    left = [limit]

    def fault(method, path):
        if method not in methods.split() or begins not in path or left[0] == 0:
            return None
        left[0] -= 1
        return action

    return fault


def bad_days(row):
    """Faults that pass: training continues, each is retried, and nothing wrong is resumed."""
    run = BucketRun()
    on_binary.unbroken(BucketRun)
    proxy = BucketRun.proxy
    passing = {
        "500 twice": times(2, 500),
        "503 for 8 requests": times(8, 503, "PUT GET HEAD"),
        "403 in the middle": times(3, 403),
        "cut uploads": times(4, "cut"),
        "uploads that store half": times(3, "half", begins="checkpoint-"),
        "a manifest of which half is stored": times(2, "half", begins="manifest.json"),
        "the quota is full for a while": times(6, 507),
        "lists that are late": times(10, "old list", "GET"),
    }
    for what, fault in passing.items():
        run.begin_anew()
        proxy.fault, before = fault, proxy.faults
        code = run.start()
        said = run.said()
        problem = "" if code == 0 else f"ended with {code}: {said}"
        if proxy.faults == before:
            problem = problem or "the fault did not happen"
        proxy.heal()
        row.add(what, problem or finish_elsewhere(run, run.steps))
    run.begin_anew()
    proxy.fault, proxy.retry_after = times(2, 503), 2
    row.add("503 with Retry-After", "" if run.start() == 0 else run.said())
    proxy.heal()
    proxy.fault = times(3, "cut reply", "GET", "/checkpoint-")
    row.add("cut downloads", finish_elsewhere(run, run.steps))
    proxy.heal()
    for days in (-3650, 1):
        run.begin_anew()
        proxy.skew = days * 86400
        code = run.start()
        row.add(f"the store's clock is {days} days ahead", finish_elsewhere(run) if code == 0 else run.said())
        proxy.heal()
    run.begin_anew()
    proxy.bytes_per_second = 10_000
    code = run.start()
    proxy.heal()
    row.add("10 kB/s", finish_elsewhere(run) if code == 0 else f"ended with {code}: {run.said()}")
    run.begin_anew()
    for i in range(5000):
        run.store.put(f"{PREFIX}/other/{i:04}", b"x")
    code = run.start()
    row.add("5,000 other objects", finish_elsewhere(run) if code == 0 else f"ended with {code}: {run.said()}")
    row.add("which stay", "" if run.store.get(f"{PREFIX}/other/0000") == b"x" else "one is gone")
    run.store.request("PUT", f"/{Store.bucket}?versioning",
                      b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")  # fmt: skip
    run.begin_anew()
    code = run.start()
    row.add("a versioned bucket", finish_elsewhere(run) if code == 0 else f"ended with {code}: {run.said()}")
    run.close()


def gone(row):
    """Stores that do not come back: the local copy is good, and the exit code says that it is the only one."""
    run = BucketRun()
    on_binary.unbroken(BucketRun)
    proxy = BucketRun.proxy
    # At the start, without a local checkpoint: nothing is begun.
    run.begin_anew()
    code = run.start(AWS_ENDPOINT_URL="http://127.0.0.1:1")
    row.add("refused at the start", "" if code == 1 and "nothing is begun" in run.said() else f"{code}: {run.said()}")
    code = run.start(AWS_ENDPOINT_URL="http://no-such-host.invalid")
    row.add("no DNS at the start", "" if code == 1 and "nothing is begun" in run.said() else f"{code}: {run.said()}")
    code = run.start("--mirror_dir", "s3://absent/run")
    said = run.said()
    row.add("no such bucket", "" if code == 1 and "there is no bucket" in said else f"{code}: {said}")
    code = run.start(PATH="/usr/bin:/bin") if not shutil.which("rclone", path="/usr/bin:/bin") else 2
    row.add("no rclone", "" if code == 2 else f"{code}: {run.said()}")
    # Connections are accepted, and not answered: a signal ends the wait, and so does time.
    run.begin_anew()
    proxy.latency = 1000
    process = run.begin()
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    code = run.end(process, 15)
    row.add("silent, then a signal", "" if code == 75 else f"{code}: {run.said()}")
    process = run.begin()
    code = run.end(process, 150)
    said = run.said()
    row.add("silent", "" if code == 1 and "no answer for" in said else f"{code}: {said}")
    proxy.heal()
    # After some checkpoints: the local run ends, with exit code 1.
    run.begin_anew()
    process = run.begin()
    while not any(name.startswith("checkpoint-") for name in run.in_bucket()) and process.poll() is None:
        time.sleep(0.02)
    proxy.close()
    for _ in range(600):
        if "waiting up to" in run.said() or process.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    code = run.end(process)
    said = run.said()
    proxy.open()
    row.add("refused from the middle on", "" if code == 1 and "lacks what" in said else f"{code}: {said}")
    row.add("the local model", "" if (run.out / "model.safetensors").exists() else "is not there")
    row.add("the same command later", "" if run.start() == 0 else run.said())
    row.add("and elsewhere", finish_elsewhere(run, run.steps))
    # Another writer replaced an object of the newest checkpoint: the one before it is resumed.
    run.begin_anew()
    for step in ("8", "12"):  # of checkpoints that follow each other quickly the newest is copied
        run.start("--stop_at_step", step)
    name = f"{PREFIX}/checkpoint-12/model.safetensors"
    run.store.put(name, bytes(len(run.store.get(name))))
    row.add("an object was replaced", finish_elsewhere(run, 8))
    run.close()


def batch(row):
    """The examples for machines that lose their disk: their commands, with the disk wiped between two starts."""
    import yaml

    examples = on_binary.ROOT / "docs" / "batch"
    (job,) = yaml.safe_load_all((examples / "kubernetes_bucket.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    words = pod["containers"][0]["args"]
    task = yaml.safe_load((examples / "skypilot.yaml").read_text())
    _, *others = task["run"].split()
    scripts = [examples / name for name in ("gce_preemptible.sh", "gce_shutdown.sh")]
    for script in scripts:
        checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
        row.add(script.name, checked.stderr)
    is_safe = pod["terminationGracePeriodSeconds"] > 25 and {"name": "work", "emptyDir": {}} in pod["volumes"]
    row.add("the pod's grace and disk", "" if is_safe else str(pod))
    run = BucketRun()
    for what, command in (("kubernetes_bucket.yaml", words), ("skypilot.yaml", others)):
        run.begin_anew()
        # The same words, with the places of this machine.
        places = {"/config/run.yaml": str(run.config), "run.yaml": str(run.config), "/work/run": str(run.out),
                  "~/run": str(run.out), "s3://my-bucket/runs/a": run.keys["mirror_dir"]}  # fmt: skip
        here = [places.get(word, word) for word in command]
        stopped = run.tool(*here, "--stop_at_step", "9")
        run.lose_machine()
        resumed = run.tool(*here)
        problem = "" if (stopped.returncode, resumed.returncode) == (75, 0) else stopped.stderr + resumed.stderr
        if "at step 9" not in resumed.stderr:
            problem = problem or resumed.stderr
        row.add(what, problem or run.finish())
    run.close()


ROWS = {"end_to_end": end_to_end, "kills": kills, "contenders": contenders, "bad_days": bad_days, "gone": gone,
        "batch": batch, "processes": processes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--row", required=True, choices=ROWS)
    parser.add_argument("--verbose", action="store_true", help="print each case")
    options = parser.parse_args()
    Options.verbose = options.verbose
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not importlib.util.find_spec("moto") or not shutil.which("rclone"):
        print("moto or rclone is missing")
        return 1 if os.environ.get("CI") == "true" else 77
    Options.binary = options.binary.resolve()
    Options.scale = float(os.environ.get("FINETUNE_FAULTS_SCALE", 1))
    Options.seed = int(os.environ.get("FINETUNE_FAULTS_SEED", 1))
    if "FINETUNE_FAULTS_RESULTS" in os.environ:
        Options.results = Path(os.environ["FINETUNE_FAULTS_RESULTS"])
    BucketRun.store = Store()
    try:
        BucketRun.proxy = Proxy(BucketRun.store)
        row = Row(f"R27 {options.row}")
        ROWS[options.row](row)
        return 0 if row.close() else 1
    finally:
        BucketRun.store.close()


if __name__ == "__main__":
    sys.exit(main())
