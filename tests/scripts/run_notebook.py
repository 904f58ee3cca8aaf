#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Executes notebooks/finetune_colab.ipynb with a real kernel and a folder instead of Drive.

It runs once until the first checkpoint, where the machine is lost (SIGKILL), then from the top with a new
kernel.

    run_notebook.py --wheel FILE --python ENVIRONMENT/bin/python --folder DIR [--save FILE]
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import signal
import sys

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

ROOT = pathlib.Path(__file__).resolve().parents[2]


def text_of(cell):
    parts = []
    for output in cell.get("outputs", []):
        parts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "".join(parts)


def first_training(notebook):
    return next(text_of(cell) for cell in notebook.cells if "interrupt=True)" in cell.source
                and cell.source.startswith("code ="))  # fmt: skip


def environment_of(folder):
    return dict(os.environ, FINETUNE_FOLDER=str(folder), OMP_NUM_THREADS="1", PIP_NO_INDEX="1")


def client_of(python, folder):
    notebook = nbformat.read(ROOT / "notebooks/finetune_colab.ipynb", as_version=4)
    manager = AsyncKernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = python
    return notebook, NotebookClient(notebook, timeout=600, km=manager,
                                    resources={"metadata": {"path": str(folder)}})  # fmt: skip


async def lose_the_machine(python, folder):
    """Runs the notebook until its first run has a checkpoint, then kills the kernel and the training."""
    _, client = client_of(python, folder)
    session = asyncio.ensure_future(client.async_execute(env=environment_of(folder)))
    while not list((folder / "runs/questions").glob("checkpoint-*")) and not session.done():
        await asyncio.sleep(0.02)
    if session.done():
        sys.exit(f"the first session ended before it could be killed: {session.exception()}")
    os.killpg(client.km.provisioner.pgid, signal.SIGKILL)
    try:
        await session
    except DeadKernelError:
        return
    sys.exit("the first session outlived its kernel")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--wheel", "--python", "--folder"):
        parser.add_argument(name, required=True)
    parser.add_argument("--save", help="the notebook with its outputs")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(arguments.wheel, folder / "bin")
    asyncio.run(lose_the_machine(arguments.python, folder))
    notebook, client = client_of(arguments.python, folder)
    client.execute(env=environment_of(folder))
    if arguments.save:
        nbformat.write(notebook, arguments.save)

    output = "\n".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    if output.count("exit code 75") != 2:
        sys.exit("the two runs were not interrupted and resumed:\n" + output)
    if not re.search(r"resuming from .*runs/questions/checkpoint-\d+ at step \d+", first_training(notebook)):
        sys.exit("the run of the lost machine was not resumed:\n" + output)
    for run in ("questions", "esperanto"):
        state = json.loads((folder / "runs" / run / "trainer_state.json").read_text())
        log = state["log_history"]
        losses = [entry["loss"] for entry in log if "loss" in entry]
        accuracy = [entry["eval_accuracy"] for entry in log if "eval_accuracy" in entry]
        if state["global_step"] != 300 or losses[-1] > 0.7 * losses[0] or min(accuracy[-1:], default=1) < 0.9:
            sys.exit(f"{run}: step {state['global_step']}, losses {losses}, accuracy {accuracy}")
        if not re.search(rf"{run}: \d+ curves; train/loss is", output):
            sys.exit(f"no curves of {run}:\n{output}")
    images = [out for cell in notebook.cells for out in cell.get("outputs", [])
              if "image/png" in out.get("data", {})]  # fmt: skip
    tables = [out for cell in notebook.cells for out in cell.get("outputs", [])
              if "<table" in out.get("data", {}).get("text/html", "")]  # fmt: skip
    if not images or len(tables) != 2:
        sys.exit(f"{len(images)} figures and {len(tables)} tables")
    print("the notebook was executed: a machine lost, two runs interrupted and resumed, a figure, two tables")


if __name__ == "__main__":
    main()
