# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the page looks, the few lines of script for its search, and the policy that allows these two and nothing else (pure)."""

from __future__ import annotations

import base64
import hashlib

LIGHT = {
    "page": "#f5f5f2",
    "card": "#ffffff",
    "line": "#dcdcd6",
    "text": "#1c2024",
    "muted": "#5b636c",
    "soft": "#e6eaf0",
    "held": "#2f5f9e",
    "edge": "#56779f",
    "link": "#1d5798",
    "ok": "#1b6a3d",
    "ok-back": "#e2f1e6",
    "warn": "#834700",
    "warn-back": "#fbefd8",
    "bad": "#a02428",
    "bad-back": "#fbe7e5",
}
DARK = {
    "page": "#101316",
    "card": "#181c20",
    "line": "#2e343b",
    "text": "#e6e9ec",
    "muted": "#a2abb5",
    "soft": "#272d35",
    "held": "#76b1f2",
    "edge": "#7396be",
    "link": "#8dbef5",
    "ok": "#84d39f",
    "ok-back": "#16301f",
    "warn": "#efbf70",
    "warn-back": "#352a13",
    "bad": "#ff9f97",
    "bad-back": "#3d1d1c",
}

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
header,main,footer{max-width:1480px;margin:0 auto;padding:0 clamp(16px,3vw,40px)}
h1,h2,h3,p,dl,dd,ul,table{margin:0;padding:0}
h1{font-size:30px;line-height:1.2;font-weight:650;letter-spacing:-.01em}
h2{font-size:19px;line-height:1.3;font-weight:650}
h3{font-size:15px;line-height:1.35;font-weight:650}
h1,h2,h3,.name,.long,dd,td,li{overflow-wrap:anywhere}
a{color:var(--link)}
bdi{unicode-bidi:isolate}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.defs{position:absolute}
.muted,.eyebrow,dt,th,.facts{color:var(--muted)}
.eyebrow{font-size:13px;margin-bottom:2px}
header{padding-top:36px}
.lede{font-size:18px;margin-top:6px;max-width:72ch}
nav{margin-top:10px;display:flex;flex-wrap:wrap;gap:4px 18px;font-size:14px}
main>section{margin-top:36px}
section>h2{margin-bottom:12px}
.overview h2{font-size:15px;margin-bottom:8px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px}
.overview{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));align-items:start;
margin-top:24px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:5px 12px 5px 0;text-align:left;vertical-align:baseline;border-top:1px solid var(--line)}
thead th{border-top:0;font-weight:500;font-size:13px;padding-top:0}
tbody th{color:var(--text);font-weight:500}
.n{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
.scroll{overflow-x:auto}
.pools{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr))}
.pool{display:flex;flex-direction:column;gap:10px}
.pool header{all:unset;display:flex;flex-wrap:wrap;gap:2px 10px;justify-content:space-between;align-items:baseline}
.pool h3{font-size:17px}
.pool h3 a{color:inherit;text-decoration:none}
.pool h3 a:hover{text-decoration:underline}
.facts{font-size:14px}
.numbers{display:flex;flex-wrap:wrap;gap:4px 22px}
.numbers div{display:flex;flex-direction:column-reverse}
.numbers dt{font-size:13px}
.numbers dd{font-size:20px;line-height:1.25;font-weight:600;white-space:nowrap}
small{font-weight:400;color:var(--muted);font-size:13px}
.end{margin-top:auto}
.resource{display:grid;gap:4px}
.meter{display:block;width:100%;height:12px}
.slices{display:grid;gap:2px}
.slices svg{display:block;width:100%;height:auto}
.slices text{font-size:9px;fill:var(--text)}
.device{fill:var(--soft);stroke:var(--edge);stroke-width:1}
.verdict{display:inline-flex;align-items:baseline;gap:5px;border-radius:5px;padding:1px 8px;font-size:13px;font-weight:600;
white-space:nowrap}
.verdict.ok{color:var(--ok);background:var(--ok-back)}
.verdict.warn{color:var(--warn);background:var(--warn-back)}
.verdict.bad{color:var(--bad);background:var(--bad-back)}
.verdict.note{color:var(--muted);background:var(--soft)}
.attention{border-left:4px solid var(--warn)}
.attention ul{list-style:none;display:grid;gap:5px;font-size:14px}
.stories ul{padding-left:18px}
.stories li::marker{color:var(--muted)}
.controls{position:sticky;top:0;z-index:1;display:flex;flex-wrap:wrap;gap:8px 20px;align-items:center;padding:10px 0;
background:var(--page);border-bottom:1px solid var(--line);font-size:14px}
.controls fieldset{all:unset;display:flex;flex-wrap:wrap;gap:4px 16px}
.controls legend{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
.controls input{accent-color:var(--link)}
.controls input[type=search]{font:inherit;color:inherit;background:var(--card);border:1px solid var(--edge);
border-radius:7px;padding:5px 10px;width:min(340px,70vw)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:10px;font-size:14px;color:var(--muted);list-style:none}
.legend li{display:flex;gap:6px;align-items:center}
.knows{max-width:110ch;margin-top:6px;font-size:14px;color:var(--muted)}
.group{margin-top:26px;scroll-margin-top:64px}
.group>h3{font-size:17px;display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline;margin-bottom:10px}
.group>h3 span{font-size:14px;font-weight:400}
.common{margin-bottom:10px}
.group>h3:has(+.common){margin-bottom:2px}
.tiles{display:grid;gap:10px;grid-template-columns:repeat(auto-fill,minmax(min(100%,310px),1fr))}
.node{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;scroll-margin-top:64px}
.node.marked{border-left:4px solid var(--edge)}
.node.warn{border-left-color:var(--warn)}
.node.bad{border-left-color:var(--bad)}
.node summary{display:grid;grid-template-columns:1fr auto;gap:6px 10px;align-items:baseline;list-style:none;cursor:pointer}
.node summary::-webkit-details-marker{display:none}
.picture{grid-column:1/-1;display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center}
.node summary svg{height:38px;width:auto;max-width:100%;flex:none}
.who{flex:1 1 90px;font-size:13px;line-height:1.3;color:var(--muted);overflow-wrap:anywhere}
.node[open] .who{display:none}
.node .name{font-weight:600;min-width:0}
.node .marks{grid-column:1/-1;display:flex;flex-wrap:wrap;gap:4px}
span.free{white-space:nowrap;font-size:14px}
span.free::after{content:"\\25B8";color:var(--muted);margin-left:6px;font-size:11px}
.node[open] span.free::after{content:"\\25BE"}
.more{margin-top:8px;font-size:14px}
.more p+p,.more p+dl,.more dl+p{margin-top:6px}
.holders{margin-top:6px;font-size:13px}
.holders dt{margin-top:4px;font-weight:600}
.holders dd i{font-style:normal;color:var(--muted)}
.holders dd span,.holders dd bdi,.who span{display:inline-block;max-width:100%}
.who span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;vertical-align:bottom}
.dense>header,.dense>main,.dense>footer{max-width:2000px}
.dense .tiles{gap:6px;grid-template-columns:repeat(auto-fill,minmax(176px,1fr));grid-auto-flow:dense}
.dense .node{padding:7px 10px 8px}
.dense .node summary{gap:3px 6px}
.dense .node summary svg{height:28px}
.dense .node .name{font-size:13px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.dense .free{font-size:13px}
.dense .who{font-size:12px;flex-basis:76px;display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
.dense .node[open] .who{display:none}
.dense .node[open] .holders{display:grid;grid-template-columns:minmax(80px,auto) 1fr;gap:3px 14px}
.dense .node[open] dt{margin:0}
.dense .node[open]{grid-column:1/-1}
.dense .node[open] .name{white-space:normal}
.dense .node .verdict{font-size:12px;padding:0 6px}
.stories{display:grid;gap:14px}
.stories h3{display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline;margin-bottom:6px}
.stories ul{font-size:14px}
footer{margin-top:44px;padding-top:14px;padding-bottom:40px;font-size:13px;color:var(--muted)}
footer p{max-width:110ch}
.gpu{fill:var(--soft)}
.bare{fill:none;stroke:var(--edge);stroke-width:1}
.held,.beyond{fill:var(--held)}
rect.free{fill:var(--card);stroke:var(--edge);stroke-width:1}
rect.missing{fill:none;stroke:var(--bad);stroke-width:1;stroke-dasharray:2 1.5}
rect.unknown{fill:var(--card);stroke:var(--muted);stroke-width:1;stroke-dasharray:1 1.5}
.stroke{fill:none;stroke-width:1.2}
.stroke.missing{stroke:var(--bad)}
.stroke.beyond{stroke:var(--card)}
.meter rect,.meter path{vector-effect:non-scaling-stroke}
body:has(#show-room:checked) .node:not(.room),body:has(#show-marked:checked) .node:not(.marked),
body:has(#show-room:checked) .group:not(:has(.room)),body:has(#show-marked:checked) .group:not(:has(.marked)),
[hidden]{display:none}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
@media (forced-colors:active){.gpu{fill:Canvas;stroke:CanvasText}
.held,.beyond{fill:CanvasText}
rect.free,.bare,rect.missing,rect.unknown,.stroke{stroke:CanvasText;fill:Canvas}
.verdict{border:1px solid CanvasText}
}
@media print{body{background:#fff;font-size:11px}
.controls,nav{display:none}
.card,.node{break-inside:avoid;background:#fff}
body:not(.dense) .node::details-content{content-visibility:visible;height:auto}
h2,h3{break-after:avoid}
section{margin-top:18px}
}
"""

SCRIPT = """
(function () {
  var box = document.getElementById('search'), field = document.getElementById('words');
  var told = document.getElementById('found');
  var groups = Array.from(document.querySelectorAll('.group'), function (group) {
    var tiles = Array.from(group.querySelectorAll('.node'), function (tile) {
      return [tile, (tile.textContent + ' ' + group.dataset.words).toLowerCase()];
    });
    return [group, tiles];
  });
  function search() {
    var words = field.value.toLowerCase().split(/\\s+/), found = 0;
    groups.forEach(function (entry) {
      var here = 0;
      entry[1].forEach(function (tile) {
        var fits = words.every(function (word) { return tile[1].includes(word); });
        tile[0].hidden = !fits;
        here += fits;
      });
      entry[0].hidden = !here && !!field.value.trim();
      found += here;
    });
    told.textContent = field.value.trim() ? found + ' found' : '';
  }
  box.hidden = false;
  field.addEventListener('input', search);
  search();
})();
"""


def _colours(theme: dict[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in theme.items()) + "}"


# Paper is white: whoever prints in the dark gets the light page.
STYLE = (
    f"{_colours(LIGHT)}\n:root{{color-scheme:light dark}}\n"
    f"@media screen and (prefers-color-scheme:dark){{{_colours(DARK)}\n}}{_RULES}"
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


# The empty icon keeps a browser from asking the page's server for one.
ICON = "data:,"
POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
