# SPDX-License-Identifier: MIT
"""SVG figures of scripts/bench, readable on a light and on a dark page. No package is needed."""

import math

GREY, OURS, THEIRS = "#808080", "#3c80e0", "#e0803c"


def picture(width, height, title, parts):
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{GREY}">'
    )
    return "\n".join([head, f"<title>{title}</title>", *parts, "</svg>"]) + "\n"


def text(x, y, words, more=""):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{words}</text>'


def line(x1, y1, x2, y2, colour=GREY, more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def bars(rows, about, path):
    """`rows`: [(title, multiple of the limit here, that of transformers), ...]."""
    left, width, top = 8, 720, 52
    most = max(max(mine, theirs) for _, mine, theirs in rows)
    scale = (width - left - 60) / most
    parts, y = [], top
    for title, *multiples in rows:
        parts.append(text(left, y + 10, title))
        y += 16
        for multiple, colour in zip(multiples, (OURS, THEIRS)):
            length = multiple * scale
            parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="11" fill="{colour}"/>')
            parts.append(text(left + length + 6, y + 10, f"{multiple:.2f}"))
            y += 13
        y += 10
    limit = left + scale
    parts.append(line(limit, top, limit, y - 8, more=' stroke-dasharray="3 3"'))
    head = [text(left, 16, "multiples of the limit of the same machine (dashed: the limit); less is better")]
    head.append(text(left, 36, about))
    for i, (colour, name) in enumerate([(OURS, "finetune"), (THEIRS, "transformers")]):
        x = width - 200 + 95 * i
        head.append(f'<rect x="{x}" y="26" width="12" height="11" fill="{colour}"/>')
        head.append(text(x + 17, 36, name))
    path.write_text(picture(width, y, "finetune and transformers, in multiples of the machine's limit", head + parts))


def curves(named, slopes, units, path):
    """`named`: {name: [(size, CPU seconds), ...]}, drawn with logarithmic axes and a dashed line of slope 1."""
    width, height, columns = 240, 190, 3
    parts = []
    for at, (name, points) in enumerate(named.items()):
        x0, y0 = (at % columns) * width + 44, (at // columns) * height + 30
        wide, high = width - 64, height - 66
        xs = [math.log(x) for x, _ in points]
        ys = [math.log(max(y, 1e-6)) for _, y in points]
        linear = [ys[0] + x - xs[0] for x in xs]
        low, top = min(ys + linear), max(ys + linear)

        def place(x, y):
            return (x0 + (x - xs[0]) / (xs[-1] - xs[0]) * wide, y0 + high - (y - low) / (top - low) * high)

        parts.append(text(x0, y0 - 10, f"{name}: slope {slopes[name]:.2f}", ' font-weight="bold"'))
        parts.append(line(*place(xs[0], linear[0]), *place(xs[-1], linear[-1]), more=' stroke-dasharray="3 3"'))
        joined = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(xs, ys))
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{OURS}" stroke-width="2"/>')
        for x, y in zip(xs, ys):
            cx, cy = place(x, y)
            parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3" fill="{OURS}"/>')
        parts += [line(x0, y0, x0, y0 + high), line(x0, y0 + high, x0 + wide, y0 + high)]
        unit = units.get(name, "")
        parts.append(text(x0, y0 + high + 16, f"{points[0][0]:,.4g}{unit}"))
        parts.append(text(x0 + wide, y0 + high + 16, f"{points[-1][0]:,.4g}{unit}", ' text-anchor="end"'))
        for value, y in ((points[0][1], ys[0]), (points[-1][1], ys[-1])):
            parts.append(text(x0 - 4, place(xs[0], y)[1] + 4, f"{value:.3g} s", ' text-anchor="end" font-size="10"'))
    rows = -(-len(named) // columns)
    path.write_text(picture(columns * width, rows * height, "Cost over size; dashed: linear", parts))
