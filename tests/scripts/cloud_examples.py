#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the cloud examples of docs/batch against stubs of the clouds' commands, which record their calls.

However training ends, the machine that is paid for must end, and a group of machines must be resized to 0 if and
only if the run is finished. Needs no binary.
"""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = ROOT / "docs/batch"
STOPPED = 75
NAME, ZONE, GROUP = "finetune-x7k2", "europe-west4-b", "finetune"

# Every stub appends its name and arguments to $CALLS. A file $STUBS/NAME.sh is what it does then.
STUB = """#!/bin/bash
name=${0##*/}
printf '%s\\n' "$name $*" >>"$CALLS"
[ ! -e "$STUBS/$name.sh" ] || . "$STUBS/$name.sh"
"""
BEHAVIOR = {
    "curl": """
case ${!#} in
  */instance/name) echo "$INSTANCE" ;;
  */instance/zone) echo "projects/77/zones/$ZONE" ;;
  */instance/attributes/created-by) [ -n "$CREATED_BY" ] || exit 22; echo "$CREATED_BY" ;;
  */instance/preempted) if [ -e "$STUBS/preempted" ]; then echo TRUE; else echo FALSE; fi ;;
  *) exit 22 ;;
esac
""",
    "gcloud": """
[ "$1 $2" != "$DENIED" ] || exit 1
if [ "$1 $2" = "storage cp" ] && [ "$3" = --recursive ]; then
  [ "$BROKEN" != bucket ] || exit 1
  mkdir -p input && touch input/run.yaml input/finetune_cpp-0.1.0+torch2.13-py3-none-any.whl
elif [ "$1 $2" = "storage cp" ]; then
  cp "$3" "$STUBS/sent-log"
fi
""",
    # `python3 -m venv FOLDER` makes a folder with pip.
    "python3": """
[ "$1 $2" = "-m venv" ] || exit 1
mkdir -p "$3/bin" && cp "$0" "$3/bin/pip"
""",
    "pip": """
case $BROKEN in
  pip) exit 1 ;;
  slow-pip) touch "$STUBS/ready"; exec sleep 100 ;;
esac
cp "$0" "${0%/*}/finetune"
""",
    # The trainer: saves for a moment after one SIGTERM, and exits at once after a second one.
    "finetune": """
trap 'echo "finetune TERM" >>"$CALLS"; trap "echo finetune TWICE >>\\"$CALLS\\"; exit 143" TERM
      sleep 0.5; echo "finetune saved" >>"$CALLS"; exit 75' TERM
echo $BASHPID >"$STUBS/trainer"
touch "$STUBS/ready"
[ -z "$CODE" ] || exit "$CODE"
while :; do sleep 0.05; done
""",
}
NAMES = (*BEHAVIOR, "shutdown", "poweroff", "sky", "kubectl", "aws", "sudo")


groups = []  # of processes, one a machine


def end_groups():
    """Ends what the scripts left: their watchers poll, and so write, until the machine is gone."""
    for first in groups:
        try:
            os.killpg(first, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Machine:
    """A folder with stubs, in which a script runs as an instance's start-up script."""

    def __init__(self, folder, **variables):
        self.folder = folder
        folder.mkdir()
        self.stubs, self.work, self.calls_file = folder / "stubs", folder / "work", folder / "calls"
        for made in (self.stubs, self.work, folder / "bin"):
            made.mkdir()
        self.calls_file.touch()
        for name, text in BEHAVIOR.items():
            (self.stubs / f"{name}.sh").write_text(text)
        for name in NAMES:
            if name not in ("pip", "finetune"):  # those are installed
                self.put(name)
        self.environment = dict(
            os.environ, PATH=f"{folder / 'bin'}:/usr/bin:/bin", CALLS=str(self.calls_file), STUBS=str(self.stubs),
            FINETUNE_WORK=str(self.work), FINETUNE_BUCKET="gs://mine", FINETUNE_RETRY_SECONDS="0",
            FINETUNE_POLL_SECONDS="0.1", INSTANCE=NAME, ZONE=ZONE, CODE="", DENIED="", BROKEN="",
            CREATED_BY=f"projects/77/zones/{ZONE}/instanceGroupManagers/{GROUP}")  # fmt: skip
        self.environment |= variables

    def put(self, name):
        path = self.folder / "bin" / name
        path.write_text(STUB)
        path.chmod(0o755)

    def start(self, name="gce_preemptible.sh"):
        self.output = open(self.folder / "output", "w")
        self.process = subprocess.Popen(["bash", BATCH / name], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        groups.append(self.process.pid)

    def wait_ready(self):
        deadline = time.monotonic() + 60
        while not (self.stubs / "ready").exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.fail("training did not begin")
            time.sleep(0.02)

    def end(self):
        try:
            self.code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.fail("the script does not end")
        self.output.close()
        self.calls = self.calls_file.read_text().splitlines()

    def fail(self, text):
        sys.exit(f"{self.folder.name}: {text}\n{(self.folder / 'output').read_text()}\n{self.calls_file.read_text()}")

    def expect(self, condition, text):
        if not condition:
            self.fail(text)

    def changes(self):
        """What was asked of the group, in the order of the calls."""
        return [call for call in self.calls if call.startswith("gcloud compute")]

    def expect_end(self, code, group):
        """The script's exit code, the machine's end, and what becomes of its group: finished, failed or again."""
        self.expect(self.code == code, f"exit code {self.code} where {code} was expected")
        self.expect(self.calls[-1] == "shutdown -h now", "the machine was not shut down at last")
        self.expect(self.calls.count("shutdown -h now") == 1, "it was shut down twice")
        prefix = "gcloud compute instance-groups managed "
        wanted = {"finished": [f"{prefix}resize {GROUP} --zone={ZONE} --quiet --size=0"],
                  "failed": [f"{prefix}abandon-instances {GROUP} --zone={ZONE} --quiet --instances={NAME}"],
                  "again": []}[group]  # fmt: skip
        self.expect(self.changes() == wanted, f"{self.changes()} where {wanted} was expected")
        sent = self.stubs / "sent-log"
        self.expect(sent.exists() and f"exit code {code}, the machine ends" in sent.read_text(), "no log in the bucket")
        self.expect("finetune TWICE" not in self.calls, "the trainer got two signals")
        left = [name for name in ("script.pid", "child.pid") if (self.work / name).exists()]
        self.expect(not left, f"{left} is left")

    def expect_saved(self):
        """The trainer got one SIGTERM, and the machine ended after it had saved."""
        self.expect(self.calls.count("finetune TERM") == 1, "the trainer did not get one SIGTERM")
        self.expect("finetune saved" in self.calls, "the trainer was not waited for")


def google(folder):
    ends = {0: "finished", 1: "failed", 2: "failed", 3: "failed", 4: "finished", 5: "failed", STOPPED: "again"}
    for code, group in ends.items():
        machine = Machine(folder / f"exit-code-{code}", CODE=str(code))
        machine.start()
        machine.end()
        machine.expect_end(code, group)
        trained = [call for call in machine.calls if call.startswith("finetune train ")]
        machine.expect(len(trained) == 1 and "--mirror_dir gs://mine/runs/a" in trained[0], f"trained: {trained}")
        (installed,) = (call for call in machine.calls if call.startswith("pip install"))
        machine.expect("input/finetune_cpp-0.1.0+torch2.13-py3-none-any.whl" in installed, installed)

    killed = Machine(folder / "trainer-killed")
    killed.start()
    killed.wait_ready()
    os.kill(int((killed.stubs / "trainer").read_text()), signal.SIGKILL)
    killed.end()
    killed.expect_end(128 + signal.SIGKILL, "failed")

    for name, number in (("script-TERM", 1), ("script-TERM-thrice", 3)):
        terminated = Machine(folder / name)
        terminated.start()
        terminated.wait_ready()
        for _ in range(number):
            terminated.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        terminated.end()
        terminated.expect_end(STOPPED, "again")
        terminated.expect_saved()

    noticed = Machine(folder / "preempted")
    noticed.start()
    noticed.wait_ready()
    (noticed.stubs / "preempted").touch()
    noticed.end()
    noticed.expect_end(STOPPED, "again")
    noticed.expect_saved()

    # The shutdown script comes with the notice, and returns when the run is saved.
    for name in ("shutdown-script", "preempted-and-shutdown-script"):
        shut = Machine(folder / name)
        shut.start()
        shut.wait_ready()
        if name.startswith("preempted"):
            (shut.stubs / "preempted").touch()
        threading.Thread(target=shut.process.wait).start()  # a process that nobody waits for would stay
        subprocess.run(["bash", BATCH / "gce_shutdown.sh"], env=shut.environment, check=True, timeout=60)
        shut.expect("finetune saved" in shut.calls_file.read_text(), "the shutdown script did not wait for the trainer")
        shut.end()
        shut.expect_end(STOPPED, "again")
        shut.expect_saved()

    # Without the start-up script, the shutdown script stops the trainer itself; without both it returns.
    alone = Machine(folder / "script-killed")
    alone.start()
    alone.wait_ready()
    alone.process.kill()
    alone.end()
    for _ in range(2):
        subprocess.run(["bash", BATCH / "gce_shutdown.sh"], env=alone.environment, check=True, timeout=60)
    alone.calls = alone.calls_file.read_text().splitlines()
    alone.expect_saved()

    for broken in ("pip", "bucket"):
        failing = Machine(folder / f"no-{broken}", BROKEN=broken)
        failing.start()
        failing.end()
        failing.expect_end(1, "failed")
        failing.expect(not any(call.startswith("finetune train") for call in failing.calls), "it trained")

    slow = Machine(folder / "TERM-while-installing", BROKEN="slow-pip")
    slow.start()
    slow.wait_ready()
    slow.process.send_signal(signal.SIGTERM)
    slow.end()
    slow.expect_end(STOPPED, "again")

    # Scopes that do not suffice: tried three times, said, and the machine ends all the same.
    denied = Machine(folder / "no-scope", CODE="0", DENIED="compute instance-groups")
    denied.start()
    denied.end()
    denied.expect(len(denied.changes()) == 3 and denied.calls[-1] == "shutdown -h now", "the machine did not end")
    denied.expect("see the scopes" in (denied.folder / "output").read_text(), "nothing was said")

    # A regional group; and an instance without a group.
    regional = Machine(folder / "regional", CODE="0", CREATED_BY=f"projects/77/regions/europe-west4/instanceGroupManagers/{GROUP}")
    regional.start()
    regional.end()
    (change,) = regional.changes()
    regional.expect("--region=europe-west4" in change and "--zone" not in change, change)
    single = Machine(folder / "single", CODE="1", CREATED_BY="")
    single.start()
    single.end()
    single.expect(single.changes() == [] and single.calls[-1] == "shutdown -h now", "a single instance did not end")

    # The comment's commands: scopes that suffice, a zone, and the scripts as they are named.
    comment = "\n".join(line[1:] for line in (BATCH / "gce_preemptible.sh").read_text().splitlines() if line.startswith("#"))
    template, group = (shlex.split(command.replace("\\\n", " "))
                       for command in re.findall(r"gcloud compute instance-[a-z]+ (?:managed )?create (?:[^\n]*\\\n)*[^\n]*|"
                                                 r"gcloud compute instance-groups managed create [^\n]*", comment))  # fmt: skip
    scopes = next(word for word in template if word.startswith("--scopes=")).removeprefix("--scopes=").split(",")
    single.expect({"storage-rw", "compute-rw"} <= set(scopes) or "cloud-platform" in scopes, f"scopes: {scopes}")
    single.expect(any(word.startswith("--zone=") for word in group) and "--size=1" in group, f"group: {group}")
    for script in re.findall(r"docs/batch/\S+?\.sh", " ".join(template)):
        single.expect((ROOT / script).exists(), f"{script} is not there")
    print("Google Compute Engine: the machine ends, its group with a finished run only")


def documents(name):
    import yaml

    return list(yaml.safe_load_all((BATCH / name).read_text()))


def skypilot(folder):
    (task,) = documents("skypilot.yaml")
    recovery = task["resources"]["job_recovery"]
    assert recovery["recover_on_exit_codes"] == [STOPPED] and recovery["max_restarts_on_errors"] == 0, recovery
    text = (BATCH / "skypilot.yaml").read_text()
    for words in ("sky jobs launch", "--down", "sky down", "--env FINETUNE_WHEEL="):
        assert words in text, f"skypilot.yaml does not say {words}"
    assert task["envs"]["FINETUNE_WHEEL"] is None  # SkyPilot refuses a launch without it
    # setup fails where a step of it fails, and the exit code of run is the trainer's.
    for name, broken, code in (("sky", "", 0), ("sky-no-pip", "pip", 1)):
        machine = Machine(folder / name, BROKEN=broken, FINETUNE_WHEEL="/wheels/finetune_cpp-0.1.0.whl", CODE="0")
        machine.put("pip")
        done = subprocess.run(["bash", "-c", task["setup"]], env=machine.environment, cwd=machine.folder)
        calls = machine.calls_file.read_text()
        assert done.returncode == code, f"{name}: setup exits with {done.returncode}"
        assert "pip install /wheels/finetune_cpp-0.1.0.whl" in calls, calls
    for code in (0, 1, 2, 4, 5, STOPPED):
        machine = Machine(folder / f"sky-{code}", CODE=str(code))
        machine.put("finetune")
        done = subprocess.run(["bash", "-c", task["run"]], env=machine.environment, cwd=machine.folder)
        assert done.returncode == code, f"run exits with {done.returncode} where the trainer does with {code}"
    print("SkyPilot: recovers from 75, and ends with every other code")


def action_on(rules, code):
    """What Kubernetes does when the container exits with this code: the first rule that matches."""
    for rule in rules:
        if "onExitCodes" in rule:
            codes = rule["onExitCodes"]
            if (code in codes["values"]) == (codes["operator"] == "In") and code != 0:
                return rule["action"]
    return "Count"


def kubernetes(_):
    for name in ("kubernetes_job.yaml", "kubernetes_bucket.yaml", "kubernetes_indexed_job.yaml"):
        (job,) = (document for document in documents(name) if document["kind"] == "Job")
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        rules = spec["podFailurePolicy"]["rules"]
        found = {code: action_on(rules, code) for code in (1, 2, 3, 4, 5, STOPPED, 137)}
        wanted = {1: "Count", 2: "FailJob", 3: "FailJob", 4: "FailJob", 5: "Count", STOPPED: "Ignore", 137: "Count"}
        assert found == wanted, f"{name}: {found}"
        assert 1 <= spec["backoffLimit"] <= 3, f"{name}: a run that fails is tried {spec['backoffLimit']} times more"
        assert any(rule["action"] == "Ignore" and rule.get("onPodConditions") == [{"type": "DisruptionTarget"}]
                   for rule in rules), f"{name}: a drained node counts"  # fmt: skip
        # A shell around the binary would get the signal in its place.
        (container,) = pod["containers"]
        assert pod["restartPolicy"] == "Never" and "command" not in container, name
        assert pod["terminationGracePeriodSeconds"] > 25, f"{name}: less than mirror_grace_seconds"
    print("Kubernetes: 75 is started again, 2, 3 and 4 fail the Job, others are tried three times more")


def others(folder):
    # Slurm: only 75 goes into the queue again, with every other code the allocation ends.
    for code in (0, 1, 2, 4, 5, STOPPED, 137):
        machine = Machine(folder / f"slurm-{code}", SLURM_JOB_ID="7")
        for name in ("srun", "scontrol"):
            machine.put(name)
        (machine.stubs / "srun.sh").write_text(f"exit {code}\n")
        done = subprocess.run(["bash", BATCH / "slurm.sh", "run.yaml"], env=machine.environment, stdout=subprocess.DEVNULL)
        requeued = "scontrol requeue 7" in machine.calls_file.read_text()
        assert (done.returncode, requeued) == (code, code == STOPPED), f"slurm.sh, {code}: {done.returncode}, {requeued}"
    submitted = (BATCH / "htcondor.sub").read_text()
    assert re.search(r"^on_exit_hold .*ExitCode == 2 \|\| ExitCode == 3", submitted, re.M)
    assert int(re.search(r"^max_retries\s*= (\d+)", submitted, re.M)[1]) <= 5
    (workflow,) = documents("github_actions.yml")
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    # Configurations: a machine is named with its zone.
    for path in (ROOT / "configs").glob("*.yaml"):
        for line in path.read_text().splitlines():
            assert "gcloud" not in line or "--zone=" in line, f"{path.name}: {line}"
    text = (ROOT / "configs/bigbird_pretraining.yaml").read_text()
    assert "on_finish_command:" in text and "on_failure_command:" in text
    print("Slurm, HTCondor, GitHub Actions and configurations: end, or are held")


def main():
    # A killed process may still end a write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for example in (google, skypilot, kubernetes, others):
                path = pathlib.Path(folder, example.__name__)
                path.mkdir()
                example(path)
        finally:
            end_groups()


if __name__ == "__main__":
    main()
