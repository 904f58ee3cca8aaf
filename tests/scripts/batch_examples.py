#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands in the files of docs/batch without their systems: stop, then resume."""

import argparse
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = ROOT / "docs/batch"
SMOKE = ROOT / "configs/smoke.yaml"
STOPPED = 75


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Example:
    """A folder, and a PATH on which `finetune` is the binary under test."""

    def __init__(self, binary, folder):
        self.folder = folder
        folder.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        (self.bin / "finetune").symlink_to(binary)
        self.environment = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}",
                                OMP_NUM_THREADS="1")  # fmt: skip
        self.output = folder / "run"
        self.keys = ["--output_dir", str(self.output), "--cache_dir", str(folder / "cache")]

    def run(self, command, **environment):
        done = subprocess.run(command, env=self.environment | environment, cwd=self.folder,
                              capture_output=True, text=True, timeout=300)  # fmt: skip
        self.log = done.stdout + done.stderr
        return done.returncode

    def expect(self, found, wanted):
        if found != wanted:
            sys.exit(f"{self.folder.name}: {found} where {wanted} was expected\n{self.log}")

    def expect_finished(self):
        self.expect((self.output / "model.safetensors").exists(), True)


FAKE_SRUN = """#!/bin/bash
# Starts the tasks of the step and, as the limit comes near, sends them the script's signal.
[ "$1" = --kill-on-bad-exit=0 ] && shift
export SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_STEP_ID=0
for rank in 0 1; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" 2>"$LOGS/$rank" & tasks="$tasks $!"
done
if [ -n "$NEAR_LIMIT" ]; then
  until grep -qs ' loss ' "$LOGS/0"; do
    sleep 0.05; kill -0 $tasks 2>/dev/null || break
  done
  kill -s "$NEAR_LIMIT" $tasks
fi
status=0
for task in $tasks; do wait "$task" || status=$?; done
exit "$status"
"""


def slurm(example):
    text = (BATCH / "slurm.sh").read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.M))
    name, seconds = options["signal"].split("@")
    example.expect(int(seconds) >= 60 and "requeue" in options, True)
    script(example.bin / "srun", FAKE_SRUN)
    script(example.bin / "scontrol", '#!/bin/sh\necho "$@" >> "$LOGS/scontrol"\n')
    job = {"SLURM_JOB_ID": "77", "LOGS": str(example.folder), "MASTER_PORT": free_port()}
    command = ["bash", BATCH / "slurm.sh", SMOKE, "--max_steps", "400", "--logging_steps", "1",
               *example.keys]  # fmt: skip
    example.expect(example.run(command, NEAR_LIMIT=name, **job), STOPPED)
    example.expect((example.folder / "scontrol").read_text(), "requeue 77\n")
    example.expect(example.run(command, NEAR_LIMIT="", **job), 0)
    example.expect((example.folder / "scontrol").read_text(), "requeue 77\n")
    example.expect_finished()


def documents(name):
    import yaml

    return list(yaml.safe_load_all((BATCH / name).read_text()))


def pod_of(job):
    policy = job["spec"]["podFailurePolicy"]["rules"]
    ignored = [rule["onExitCodes"]["values"] for rule in policy
               if rule["action"] == "Ignore" and "onExitCodes" in rule]  # fmt: skip
    template = job["spec"]["template"]["spec"]
    assert ignored == [[STOPPED]] and template["restartPolicy"] == "Never"
    container = template["containers"][0]
    assert all(rule.get("onExitCodes", container)["containerName"] == container["name"]
               for rule in policy if "onExitCodes" in rule)  # fmt: skip
    return container


def command_of(container, example):
    words = [str(SMOKE) if word == "/work/run.yaml" else word for word in container["args"]]
    return [example.bin / "finetune", *words, *example.keys]


def kubernetes_job(example):
    (job,) = documents("kubernetes_job.yaml")
    command = command_of(pod_of(job), example)
    example.expect(example.run([*command, "--stop_at_step", "10"]), STOPPED)
    example.expect(example.run(command), 0)
    example.expect_finished()


def kubernetes_indexed_job(example):
    service, job = documents("kubernetes_indexed_job.yaml")
    container = pod_of(job)
    size = job["spec"]["completions"]
    named = {entry["name"]: entry.get("value", "secret") for entry in container["env"]}
    host, subdomain = named["MASTER_ADDR"].split(".")
    assert host == job["metadata"]["name"] + "-0" and int(named["WORLD_SIZE"]) == size
    assert subdomain == service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    here = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_PORT": free_port()}
    for step, code in (("10", STOPPED), (None, 0)):
        command = command_of(container, example) + (["--stop_at_step", step] if step else [])
        pods = []
        for index in range(size):
            environment = example.environment | named | here | {"JOB_COMPLETION_INDEX": str(index)}
            pods.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        example.log = "\n".join(pod.communicate(timeout=300)[1] for pod in pods)
        example.expect([pod.returncode for pod in pods], [code] * size)
    example.expect_finished()


def htcondor(example):
    text = (BATCH / "htcondor.sub").read_text()
    try:
        import htcondor2

        htcondor2.Submit(text)
    except ImportError:
        pass
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[-1] == "queue"
    entries = dict(re.fullmatch(r"([a-z_]+) *= (.+)", line).groups() for line in lines[:-1])
    assert int(entries["checkpoint_exit_code"]) == STOPPED
    words = shlex.split(entries["arguments"].strip('"').replace("$(config)", str(SMOKE)))
    command = [example.bin / pathlib.Path(entries["executable"]).name, *words,
               "--max_steps", "2000", "--logging_steps", "1", *example.keys]  # fmt: skip
    # Vacated while it trains.
    log = example.folder / "log"
    with open(log, "w") as errors:
        job = subprocess.Popen(command, env=example.environment, stderr=errors)
        while " loss " not in log.read_text() and job.poll() is None:
            time.sleep(0.05)
        job.send_signal(getattr(signal, entries["kill_sig"]))
        example.log = log.read_text()
        example.expect(job.wait(300), STOPPED)
    example.expect(example.run([*command, "--max_steps", "200"]), 0)
    example.expect_finished()


def github_actions(example):
    (workflow,) = documents("github_actions.yml")
    environment = {"CONFIG": str(SMOKE), "RUNNER_TEMP": str(example.folder)}
    steps = [step for step in workflow["jobs"]["smoke"]["steps"] if step.get("name") != "install"]
    for step in steps:
        if "run" in step:
            example.expect(example.run(["bash", "-e", "-c", step["run"]], **environment), 0)
    example.expect_finished()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for example in (slurm, kubernetes_job, kubernetes_indexed_job, htcondor, github_actions):
            example(Example(arguments.binary, pathlib.Path(folder, example.__name__)))
            print(f"{example.__name__}: stopped and resumed")


if __name__ == "__main__":
    main()
