#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""BigBird's attention forwards and backwards, beside transformers' and dense flash attention.

ninja bigbird_benchmark builds what measures ours. The peers are transformers' block-sparse function
between the projections, the same for its whole attention module, and torch's scaled dot product
attention. All get the same shapes; runs are interleaved, each in a separate process, and report
seconds, processor seconds and the most memory beyond the inputs. One JSON line each is appended to
results/bigbird.jsonl; --report prints a Markdown table of the newest session and draws
docs/bigbird.svg of its lengths, where there are several. Needs torch and transformers for the peers.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from memory import machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results" / "bigbird.jsonl"
PICTURE = ROOT / "docs" / "bigbird.svg"
NAMES = {
    "ours": "block-sparse, here",
    "ours_dropout": "the same with dropout 0.1",
    "flash": "dense flash attention of torch",
    "transformers": "block-sparse of transformers",
    "module": "its attention module (with projections)",
}


def peak(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def sparse_peer(args, whole_module):
    import torch
    from transformers import BigBirdConfig
    from transformers.models.big_bird import modeling_big_bird as big_bird

    config = BigBirdConfig(
        hidden_size=args.hidden,
        num_attention_heads=args.heads,
        max_position_embeddings=args.tokens,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    mask = torch.ones(args.batch, args.tokens)
    make = big_bird.BigBirdModel.create_masks_for_block_sparse_attn
    blocked, band, rows, columns = make(mask, config.block_size)
    attention = big_bird.BigBirdBlockSparseAttention(config, seed=1).train()
    if whole_module:
        return lambda x, *_: attention(x, band, rows, columns, blocked, blocked)[0]

    def between_the_projections(query, key, value):
        by_head = [
            x.view(args.batch, args.tokens, args.heads, -1).transpose(1, 2)
            for x in (query, key, value)
        ]
        shape = (args.heads, config.num_random_blocks, args.hidden // args.heads, 64, 64)
        sizes = (args.batch, args.tokens, args.tokens)
        masks = (band, rows, columns, blocked, blocked)
        context, _ = attention.bigbird_block_sparse_attention(
            *by_head, *masks, *shape, *sizes, 1, None, None
        )
        return context.contiguous().view(args.batch, args.tokens, -1)

    return between_the_projections


def run_peer(args):
    import torch

    def flash(query, key, value):
        by_head = [
            x.view(args.batch, args.tokens, args.heads, -1).transpose(1, 2)
            for x in (query, key, value)
        ]
        context = torch.nn.functional.scaled_dot_product_attention(*by_head)
        return context.transpose(1, 2).reshape(args.batch, args.tokens, -1)

    attend = flash if args.peer == "flash" else sparse_peer(args, args.peer == "module")
    seconds, processor, most = [], [], 0
    for _ in range(args.runs + 1):
        shape = (args.batch, args.tokens, args.hidden)
        inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        gradient = torch.randn(shape)
        Path("/proc/self/clear_refs").write_text("5")
        before = peak("VmRSS:")
        cpu, start = time.process_time(), time.perf_counter()
        attend(*inputs).backward(gradient)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - cpu)
        most = max(most, peak("VmHWM:") - before)
    record = {"seconds": seconds[1:], "processor": processor[1:], "extra_bytes": most}
    print(json.dumps({**record, "threads": torch.get_num_threads()}))


def measure(args, name, tokens):
    shape = [str(x) for x in (tokens, args.hidden, args.heads, args.batch, args.runs)]
    if name.startswith("ours"):
        command = [str(args.binary), *shape, "0.1" if name == "ours_dropout" else "0"]
    else:
        command = [args.peer_python, __file__, "--peer", name]
        for key, value in zip(("tokens", "hidden", "heads", "batch", "runs"), shape):
            command += [f"--{key}", value]
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{name} at {tokens} tokens: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_all(args):
    session = datetime.datetime.now().isoformat(timespec="seconds")
    jobs = [(name, args.tokens) for name in NAMES]
    jobs += [(name, n) for n in args.lengths for name in ("ours", "flash", "transformers")]
    for _ in range(args.repeats):
        for name, tokens in jobs:
            if name == "transformers" and tokens > 8192:
                continue  # its dense tensor takes 4 GiB a layer and more
            record = {
                "session": session,
                "name": name,
                "tokens": tokens,
                "hidden": args.hidden,
                "heads": args.heads,
                "batch": args.batch,
                "load": os.getloadavg()[0],
                **machine(),
                **measure(args, name, tokens),
            }
            with args.results.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(name, tokens, record["processor"], record["extra_bytes"] >> 20, file=sys.stderr)


def newest(results):
    records = [json.loads(line) for line in results.read_text().splitlines()]
    records = [r for r in records if r["session"] == records[-1]["session"]]
    found = {}
    for r in records:
        entry = found.setdefault((r["name"], r["tokens"]), {"s": [], "cpu": [], "mib": []})
        entry["s"] += r["seconds"]
        entry["cpu"] += r["processor"]
        entry["mib"].append(r["extra_bytes"] / 2**20)
    summary = {
        key: {"s": min(e["s"]), "cpu": statistics.median(e["cpu"]), "mib": max(e["mib"])}
        for key, e in found.items()
    }
    return records[0], summary


def report(results):
    first, summary = newest(results)
    tokens = first["tokens"]
    ours = summary["ours", tokens]
    print(f"{tokens} tokens, hidden {first['hidden']}, {first['heads']} heads, {first['cpu']}:\n")
    print("| forward and backward | seconds | CPU seconds | times ours | extra memory, MiB |")
    print("|---|---|---|---|---|")
    for name, title in NAMES.items():
        e = summary[name, tokens]
        ratio = e["cpu"] / ours["cpu"]
        print(f"| {title} | {e['s']:.3f} | {e['cpu']:.3f} | {ratio:.1f} | {e['mib']:.0f} |")
    lengths = sorted(n for name, n in summary if name == "ours")
    if len(lengths) == 1:
        return
    print("\n| tokens | " + " | ".join(f"{n:,}" for n in lengths) + " |")
    print("|---" * (len(lengths) + 1) + "|")
    for name in ("ours", "flash", "transformers"):
        cells = [
            (
                f"{summary[name, n]['cpu']:.2f} s, {summary[name, n]['mib']:.0f} MiB"
                if (name, n) in summary
                else "-"
            )
            for n in lengths
        ]
        print(f"| {NAMES[name]} | " + " | ".join(cells) + " |")
    draw(summary, lengths)


def draw(summary, lengths):
    """Two panels on logarithmic scales, as an SVG without any library."""
    colours = {"ours": "#1769aa", "flash": "#c25e00", "transformers": "#777777"}
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="860" height="340" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="860" height="340" fill="white"/>',
    ]
    panels = (("cpu", "CPU seconds, forward and backward"), ("mib", "extra memory, MiB"))
    for number, (field, title) in enumerate(panels):
        left, top, width, height = 60 + 430 * number, 40, 340, 230
        low = min(e[field] for (name, n), e in summary.items() if name in colours) / 1.5
        high = max(e[field] for (name, n), e in summary.items() if name in colours) * 1.5

        def at(n, value):
            import math

            x = math.log(n / lengths[0]) / math.log(lengths[-1] / lengths[0])
            y = math.log(value / low) / math.log(high / low)
            return left + 20 + (width - 40) * x, top + height * (1 - y)

        parts.append(f'<text x="{left}" y="24" font-size="14">{title}</text>')
        parts.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
            'stroke="#bbb"/>'
        )
        for n in lengths:
            x, _ = at(n, low)
            parts.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle">{n:,}</text>')
        tick = 10.0**-2
        while tick < high:
            for value in (tick, 3 * tick):
                if low < value < high:
                    _, y = at(lengths[0], value)
                    parts.append(
                        f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>'
                        f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#eee"/>'
                    )
            tick *= 10
        for name, colour in colours.items():
            points = [at(n, summary[name, n][field]) for n in lengths if (name, n) in summary]
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(
                f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points
            ]
        first = at(lengths[0], summary["ours", lengths[0]][field])
        last_n = lengths[-1]
        linear = at(last_n, summary["ours", lengths[0]][field] * last_n / lengths[0])
        parts.append(
            f'<line x1="{first[0]:.1f}" y1="{first[1]:.1f}" x2="{linear[0]:.1f}" '
            f'y2="{linear[1]:.1f}" stroke="#1769aa" stroke-dasharray="4 4"/>'
        )
    for number, (name, colour) in enumerate(colours.items()):
        parts.append(
            f'<rect x="{60 + 270 * number}" y="312" width="14" height="4" fill="{colour}"/>'
        )
        parts.append(f'<text x="{80 + 270 * number}" y="318">{NAMES[name]}</text>')
    parts.append(
        '<text x="60" y="336" fill="#1769aa">dashed: linear in the number of tokens</text>'
    )
    PICTURE.write_text("\n".join([*parts, "</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "bigbird_benchmark")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--lengths", type=int, nargs="*", default=[8192, 16384])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--peer", choices=["flash", "transformers", "module"], help="for itself")
    args = parser.parse_args()
    if args.peer:
        run_peer(args)
        return
    if not args.report:
        measure_all(args)
    report(args.results)


if __name__ == "__main__":
    main()
