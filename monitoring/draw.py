#!/usr/bin/env python3
"""Draws the panels of dashboard.json as SVG, from the data of a Prometheus server.

    draw.py http://127.0.0.1:9090 START END > dashboard.svg      (seconds since 1970)

The expressions are those of the dashboard, so the picture shows what they give. It is no picture of
Grafana: axes and colours are simpler.
"""
import json
import math
import os
import sys
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN_LEFT, MARGIN_TOP, MARGIN_BOTTOM = 400, 240, 62, 30, 58
COLOURS = ["#1f6fb4", "#d9730d", "#2f8f4e", "#b23a48", "#7a5ab5", "#6b6b6b"]
POINTS = 150
VARIABLES = {"$__rate_interval": "30s", "$instance": ".*", "$database": ".*"}


def query(url, expression, start, end):
    """The series of an expression: (labels, [(time, value)])."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    step = max(1, math.ceil((end - start) / POINTS))
    arguments = urllib.parse.urlencode(
        {"query": expression, "start": start, "end": end, "step": step})
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{arguments}") as answer:
        result = json.load(answer)["data"]["result"]
    return [(series["metric"],
             [(float(t), float(v)) for t, v in series["values"] if v not in ("NaN", "+Inf")])
            for series in result]


def readable(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit in ("bytes", "Bps"):
        suffix = "/s" if unit == "Bps" else ""
        for name in ("B", "kB", "MB", "GB", "TB"):
            if value < 1000 or name == "TB":
                return f"{value:.3g} {name}{suffix}"
            value /= 1000
    return f"{value:.3g}" + ("/s" if unit == "ops" else "")


def legend(template, labels):
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def draw_panel(panel, url, start, end):
    """One panel as SVG elements, its corner at 0, 0; and how many series it has."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    series = [(legend(target["legendFormat"], labels), points) for target in panel["targets"]
              for labels, points in query(url, target["expr"], start, end)]
    top = max((value for _, points in series for _, value in points), default=0) * 1.05 or 1
    if unit == "percentunit":
        top = 1
    width, height = WIDTH - MARGIN_LEFT - 12, HEIGHT - MARGIN_TOP - MARGIN_BOTTOM
    parts = [f'<text x="10" y="19" class="title">{escape(panel["title"])}</text>']
    for i in range(3):
        y = MARGIN_TOP + height * i / 2
        parts.append(f'<line x1="{MARGIN_LEFT}" y1="{y}" x2="{MARGIN_LEFT + width}" y2="{y}" '
                     f'class="grid"/>'
                     f'<text x="{MARGIN_LEFT - 5}" y="{y + 4}" class="axis" text-anchor="end">'
                     f'{escape(readable(top * (1 - i / 2), unit))}</text>')
    for i, anchor in ((0, "start"), (1, "end")):
        parts.append(f'<text x="{MARGIN_LEFT + width * i}" y="{MARGIN_TOP + height + 14}" '
                     f'class="axis" text-anchor="{anchor}">{(end - start) * i:.0f} s</text>')
    x, y = MARGIN_LEFT, MARGIN_TOP + height + 28
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{MARGIN_LEFT + width * (t - start) / (end - start):.1f},"
                        f"{MARGIN_TOP + height * (1 - min(v, top) / top):.1f}" for t, v in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" '
                     'stroke-width="1.6"/>')
        if x + 5.6 * len(name) > WIDTH:
            x, y = MARGIN_LEFT, y + 12
        parts.append(f'<text x="{x:.0f}" y="{y}" class="axis" style="fill: {colour}">'
                     f'{escape(name)}</text>')
        x += 5.6 * len(name) + 12
    return "\n".join(parts), len(series)


def main():
    url, start, end = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "dashboard.json"), encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    rows = math.ceil(len(panels) / 3)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * WIDTH} {rows * HEIGHT}" '
          'font-family="sans-serif"><style>.title { font-size: 13px; font-weight: bold } '
          '.axis { font-size: 10px; fill: #555 } .grid { stroke: #ddd }</style>'
          f'<rect width="{3 * WIDTH}" height="{rows * HEIGHT}" fill="white"/>')
    empty = []
    for number, panel in enumerate(panels):
        body, count = draw_panel(panel, url, start, end)
        if count == 0:
            empty.append(panel["title"])
        print(f'<g transform="translate({number % 3 * WIDTH} {number // 3 * HEIGHT})">{body}</g>')
    print("</svg>")
    if empty:
        sys.exit("no data: " + ", ".join(empty))


if __name__ == "__main__":
    main()
