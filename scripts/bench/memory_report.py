# SPDX-License-Identifier: MIT
"""From the records of memory.py to a Markdown table, an SVG, and what misses its target."""

import json
import math
import statistics

from memory_rungs import RUNGS, SEQUENCE, model_of


def newest(records):
    """{(rung, program): what its newest session measured}."""
    groups = {}
    for record in records:
        groups.setdefault((record["rung"], record["program"]), []).append(record)
    result = {}
    for key, group in groups.items():
        last = max(r["session"] for r in group)
        group = [r for r in group if r["session"] == last]
        good = [r for r in group if r["exit_code"] == 0 and r["update_seconds"]]
        if not good:
            result[key] = {"error": (group[0].get("error") or ["?"])[0]}
            continue
        seconds = statistics.median(s for r in good for s in r["update_seconds"])
        result[key] = {
            "mib": max(r["peak_rss_mib"] for r in good),
            "seconds": seconds,
            "cpu_seconds": statistics.median(s for r in good for s in r["update_cpu_seconds"]),
            "tokens_per_second": good[0]["batch"] * SEQUENCE / seconds,
        }
    return result


def multiple(result, base):
    return result["cpu_seconds"] / base["cpu_seconds"]


def table(rungs, measured, base):
    """In brackets: seconds and CPU seconds as multiples of transformers' plain update."""

    def cells(result):
        if result is None:
            return ["", "", ""]
        if "error" in result:
            return ["failed", "", ""]
        times = f"{result['seconds']:.1f} s, {result['cpu_seconds']:.1f} CPU s"
        if base and result["model"] == base["model"]:
            times += f" ({result['seconds'] / base['seconds']:.2f}x, {multiple(result, base):.2f}x)"
        return [f"{result['mib']:,.0f}", times, f"{result['tokens_per_second']:.0f}"]

    lines = [
        "| | finetune, MiB | an update | tokens/s | transformers, MiB | an update | tokens/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for rung in rungs:
        ours = cells(measured.get((rung, "ours")))
        peer = cells(measured.get((rung, "peer")))
        lines.append(f"| {RUNGS[rung]['title']} | {' | '.join(ours + peer)} |")
    return "\n".join(lines)


def draw(rungs, measured, base, path):
    """An SVG with two bars a rung, readable on a light and on a dark page."""
    left, top, width, bar, gap = 8, 34, 720, 13, 34
    most = max(r["mib"] for r in measured.values() if "mib" in r)
    scale = (width - left - 190) / most
    rows, y = [], top
    for rung in rungs:
        rows.append(f'<text x="{left}" y="{y + 10}">{RUNGS[rung]["title"]}</text>')
        y += 15
        for program, colour in (("peer", "#e0803c"), ("ours", "#3c80e0")):
            result = measured.get((rung, program))
            if result is None:
                continue
            if "error" in result:
                rows.append(f'<text x="{left}" y="{y + 10}" fill="{colour}">failed</text>')
            else:
                label = f"{result['mib']:,.0f} MiB"
                if base and result["model"] == base["model"]:
                    label += f", {multiple(result, base):.2f}x"
                length = result["mib"] * scale
                rows.append(
                    f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{bar - 2}" '
                    f'fill="{colour}"/>'
                    f'<text x="{left + length + 6:.1f}" y="{y + 10}">{label}</text>'
                )
            y += bar
        y += gap - 2 * bar
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" '
        'font-family="sans-serif" font-size="12" fill="#808080">',
        "<title>Peak resident memory of one update: finetune and transformers</title>",
        f'<text x="{left}" y="16">peak memory, and CPU time of an update as a multiple of '
        "transformers' plain one</text>",
    ]
    for i, (colour, name) in enumerate([("#e0803c", "transformers"), ("#3c80e0", "finetune")]):
        x = width - 210 + 110 * i
        head.append(
            f'<rect x="{x}" y="6" width="12" height="11" fill="{colour}"/>'
            f'<text x="{x + 17}" y="16">{name}</text>'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *rows, "</svg>"]) + "\n")


def report(results, svg, model):
    """Prints the table, draws the SVG; 1 where a target is missed or a run of ours failed."""
    records = [json.loads(line) for line in results.read_text().splitlines()]
    tiny = model == "tiny"
    records = [r for r in records if (r["model"] == "tiny") == tiny]
    if not records:
        raise SystemExit(f"{results} holds no runs of this model")
    measured = newest(records)
    for (rung, _), result in measured.items():
        result["model"] = model_of(rung, model)
    rungs = [r for r in RUNGS if (r, "ours") in measured or (r, "peer") in measured]
    base = measured.get(("plain", "peer"))
    base = base if base and "mib" in base else None
    draw(rungs, measured, base, svg)
    print(table(rungs, measured, base))
    problems = [] if tiny else missed_targets(rungs, measured, base)
    print("".join(f"\n{p}" for p in problems))
    return 1 if problems else 0


def missed_targets(rungs, measured, base):
    problems = []
    for rung in rungs:
        about, result = RUNGS[rung], measured.get((rung, "ours"))
        if result is None:
            continue
        if "error" in result:
            problems.append(f"{rung}: {result['error']}")
            continue
        if result["mib"] > about.get("target", math.inf):
            problems.append(f"{rung}: {result['mib']:.0f} MiB, more than {about['target']}")
        if base and multiple(result, base) > about.get("times_plain", math.inf):
            problems.append(
                f"{rung}: {multiple(result, base):.2f} times the CPU time of transformers' plain "
                f"update, more than {about['times_plain']}"
            )
        other = measured.get((about.get("peak_of"), "ours"))
        if other and result["mib"] > 1.02 * other.get("mib", math.inf):
            problems.append(f"{rung}: {result['mib'] - other['mib']:.0f} MiB more than without")
    return problems
