"""Draws ratios as an SVG that is readable on light and dark pages: a bar for each way, a group for each quantity."""

from __future__ import annotations

from xml.sax.saxutils import escape

from report import Results

SHOWN = {
    "execute_p50": "a cell",
    "websocket_p50": "a cell through jupyter_server",
    "lines_100k": "100,000 lines",
    "display_50mb": "display of 50 MB, one letter",
    "display_50mb_image": "display of 50 MB, random bytes",
    "start_first_cell": "start to first cell",
    "start_gpu_first_cell": "start with a GPU",
    "cold_first_cell": "start without a connection",
    "restart": "restart to next cell",
}
COLOURS = {
    "bare": "#8c8c8c",
    "ssh": "#d9822b",
    "sshpyk": "#b35ca8",
    "provisioner": "#2f86d6",
    "argv": "#2fa36b",
}
_OTHER = "#a0784f"
_REFERENCES = {"bare": "the same kernel used on its node", "ssh": "plain ssh with five forwarded ports"}
_MOST = 6.0
_LABELS, _WIDTH, _BAR, _GAP, _TOP = 210, 760, 12, 14, 60
_STYLE = """<style>
text { font: 13px sans-serif; fill: #24292f }
.small { font-size: 11px }
.one { stroke: #24292f; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .one { stroke: #e6edf3 } }
</style>"""


def svg(results: Results, delay: float) -> str:
    """Times of one round trip as multiples of the reference's."""
    ways = [way for way in results.ways if way not in ("bare", results.reference(delay))]
    groups = []
    for name, title in SHOWN.items():
        if name in results.names(delay):
            ratios = {way: results.ratio(delay, name, way) for way in ways}
            groups.append((title, {way: ratio for way, ratio in ratios.items() if ratio is not None}))
    most = min(_MOST, max((ratio for _, ratios in groups for ratio in ratios.values()), default=1.0))
    scale = (_WIDTH - _LABELS - 80) / most
    parts, y = [], _TOP
    for title, ratios in groups:
        height = len(ratios) * _BAR
        parts.append(
            f'<text x="{_LABELS - 10}" y="{y + height / 2 + 4}" text-anchor="end">{escape(title)}</text>'
        )
        for way, ratio in ratios.items():
            width = min(ratio, most) * scale
            cut = " →" if ratio > most else ""
            parts.append(
                f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{_colour(way)}"/>'
                f'<text class="small" x="{_LABELS + width + 5:.1f}" y="{y + _BAR - 2}">{ratio:.2f} ×{cut}</text>'
            )
            y += _BAR
        y += _GAP
    one = _LABELS + scale
    parts.append(f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 8}" y2="{y - _GAP + 4}"/>')
    title = f"Round trip {delay:g} ms: times as multiples of those of {_REFERENCES[results.reference(delay)]} (1 ×)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img" aria-label="{title}">\n'
        f'{_STYLE}\n<text x="10" y="20">{title}</text>\n{_legend(ways)}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _legend(ways: list[str]) -> str:
    parts, x = [], 10
    for way in ways:
        parts.append(f'<rect x="{x}" y="32" width="10" height="10" fill="{_colour(way)}"/>')
        parts.append(f'<text class="small" x="{x + 15}" y="41">{escape(way)}</text>')
        x += 40 + 7 * len(way)
    return "".join(parts)


def _colour(way: str) -> str:
    return COLOURS.get(way, _OTHER)
