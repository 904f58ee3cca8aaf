// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

// Reads a job as JSON from standard input and writes the run with the tracker's package. Its last
// line is "wrote <folder>". Metrics have the names of transformers' callbacks.
inline constexpr const char* kTrackerScript = R"python(
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import json, os, shutil
def rows_of(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break
            row = json.loads(line)
            yield row.get("step") or 0, row.get("time"), {
                key: value for key, value in row.items()
                if key not in ("step", "time", "session") and isinstance(value, (int, float))}
def shown_key(key):
    for split in ("eval_", "test_"):
        if key.startswith(split):
            return split[:-1] + "/" + key[len(split):]
    return "train/" + key
def write_wandb(job):
    import wandb
    folder = os.path.join(job["folder"], "wandb")
    os.makedirs(folder, exist_ok=True)
    # Hidden from `wandb sync` until the new folder is complete.
    for name in os.listdir(folder):
        if name.startswith("offline-run-") and name.endswith("-" + job["run_id"]):
            os.rename(os.path.join(folder, name), os.path.join(folder, "." + name))
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or job["project"], name=job["name"],
        id=job["run_id"], dir=job["folder"], config=job["config"], mode="offline",
        settings=wandb.Settings(console="off", disable_git=True, save_code=False, silent=True,
                                x_disable_stats=True, x_disable_meta=True))
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for step, time, values in rows_of(job["metrics"]):
        row = {shown_key(key): value for key, value in values.items()}
        row["train/global_step"] = step
        if time is not None:
            row["_timestamp"] = time
        run.log(row)
    written = os.path.dirname(run.dir)
    run.finish(exit_code=0)
    for name in os.listdir(folder):
        if name.startswith(".offline-run-") and name.endswith("-" + job["run_id"]):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return written
def write_mlflow(job):
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient
    from pathlib import Path
    root = os.path.join(job["folder"], "mlruns")
    client = MlflowClient(tracking_uri=Path(root).as_uri())
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or job["project"]
    experiment = client.get_experiment_by_name(name)
    number = experiment.experiment_id if experiment else client.create_experiment(name)
    found = client.search_runs([number], "tags.`finetune.run_id` = '%s'" % job["run_id"])
    if found:
        run = found[0].info.run_id
        # MLflow appends points and refuses another value of a parameter.
        for part in ("metrics", "params"):
            shutil.rmtree(os.path.join(root, number, run, part), ignore_errors=True)
            os.makedirs(os.path.join(root, number, run, part))
    else:
        run = client.create_run(number, tags={"finetune.run_id": job["run_id"]},
                                run_name=job["name"]).info.run_id
    params = [Param(key, value if isinstance(value, str) else json.dumps(value))
              for key, value in job["config"].items() if value is not None]
    for first in range(0, len(params), 100):
        client.log_batch(run, params=params[first:first + 100])
    metrics, last = [], 0.0
    for step, time, values in rows_of(job["metrics"]):
        last = time or last
        metrics += [Metric(key, float(value), int(last * 1000), step)
                    for key, value in values.items()]
        if len(metrics) > 900:
            client.log_batch(run, metrics=metrics)
            metrics = []
    client.log_batch(run, metrics=metrics)
    client.set_terminated(run, "FINISHED" if job["finished"] else "KILLED")
    return os.path.join(root, number, run)
def main():
    job = json.load(sys.stdin)
    folder = {"wandb": write_wandb, "mlflow": write_mlflow}[job["tracker"]](job)
    print("\nwrote " + folder, flush=True)
main()
)python";

}  // namespace finetune
