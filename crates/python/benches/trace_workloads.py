"""Programs whose calls are traced: many short calls, parsing text, NumPy, and JSON."""

from __future__ import annotations

import collections
import datetime
import html
import io
import json
import math
import os
import random
import re
import statistics
from dataclasses import dataclass, field

LAS, JSONL = "data.las", "data.jsonl"
CURVES = ["DEPT", "GR", "RHOB", "NPHI", "DT", "CALI", "SP", "ILD", "MSFL", "PEF"]


def generate(folder: str, size: int) -> None:
    """Write the input of the programs that parse, `size` bytes each, unless it is there."""
    path = os.path.join(folder, LAS)
    if not os.path.exists(path):
        random.seed(7)
        with open(path, "w") as out:
            number = written = 0
            while written < size:
                number += 1
                text = "".join(_las(number))
                written += out.write(text)
    path = os.path.join(folder, JSONL)
    if not os.path.exists(path):
        random.seed(3)
        with open(path, "w") as out:
            number = written = 0
            while written < size:
                number += 1
                written += out.write(json.dumps(_record(number)) + "\n")


def _las(number: int):
    yield "~VERSION INFORMATION\n VERS.   2.0 : CWLS LOG ASCII STANDARD - VERSION 2.0\n"
    yield " WRAP.   NO  : ONE LINE PER DEPTH STEP\n~WELL INFORMATION\n#MNEM.UNIT   DATA    DESCRIPTION\n"
    for key in range(40):
        yield f" P{key:03d}.M   {random.random() * 1000:.4f} : Parameter number {key} of well {number}\n"
    yield "~CURVE INFORMATION\n"
    for curve in CURVES:
        yield f" {curve}.UNIT  00 000 00 00 : Curve {curve} & <desc>\n"
    yield "~A DEPTH " + " ".join(CURVES[1:]) + "\n"
    depth = 1000.0
    for _ in range(1500):
        depth += 0.1524
        values = (f"{random.gauss(50, 20):.4f}" if random.random() > 0.02 else "-999.2500" for _ in CURVES[1:])
        yield f" {depth:.4f} " + " ".join(values) + "\n"


def _record(i: int) -> dict:
    message = 'GET /api/v1/items/%d?q=%s HTTP/1.1" 200 %d'
    return {
        "id": i,
        "ts": f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}T{i % 24:02d}:{i % 60:02d}:00",
        "user": {
            "name": f"user{i % 977}",
            "email": f"u{i % 977}@example{i % 13}.com",
            "tags": [random.choice("abcdefgh") * 3 for _ in range(5)],
        },
        "values": [round(random.gauss(0, 1), 6) for _ in range(20)],
        "msg": message % (i, random.choice(["x", "yy", "zzz"]), random.randint(10, 99999)),
    }


# Many short calls.

TEXT = "abc"


def leaf(x):
    return x + 1


def mid(x):
    return leaf(x) + len(TEXT)


class Counter:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 0

    def add(self, k):
        self.value = mid(self.value) - k


def run_calls(folder: str, scale: float) -> None:
    add = Counter().add
    for _ in range(int(700_000 * scale)):
        add(3)


# Text to objects to HTML.

MEMBER = re.compile(r"^\s*([^ .]+)\s*\.(\S*)\s+(.*?)\s*:\s*(.*)$")
NULL = -999.25


@dataclass
class Member:
    mnem: str
    unit: str
    data: object
    desc: str


@dataclass
class Section:
    kind: str
    members: list = field(default_factory=list)

    def add_member_line(self, line):
        match = MEMBER.match(line)
        if match is None:
            raise ValueError(line)
        groups = match.groups()
        self.members.append(Member(groups[0], groups[1], to_value(groups[2]), groups[3]))


def to_value(text):
    try:
        return float(text)
    except ValueError:
        return text.strip()


class Channel:
    def __init__(self, ident):
        self.ident = ident
        self.values = []

    def append(self, value):
        self.values.append(value)

    def summary(self):
        good = [value for value in self.values if value != NULL]
        count = len(good)
        least, most, mean = min(good), max(good), sum(good) / count
        deviation = math.sqrt(sum((value - mean) ** 2 for value in good) / count)
        missing = len(self.values) - count
        return dict(id=self.ident, n=count, null=missing, min=least, max=most, mean=mean, sd=deviation)


class LogPass:
    def __init__(self, idents):
        self.channels = [Channel(ident) for ident in idents]
        self.rows = 0

    def add_row(self, tokens):
        for channel, token in zip(self.channels, tokens, strict=False):
            channel.append(float(token))
        self.rows += 1


class LasFile:
    def __init__(self):
        self.sections = []
        self.log_pass = None

    def start(self, line):
        section = Section(line[1])
        self.sections.append(section)
        return section


class Page:
    def __init__(self):
        self.text = io.StringIO()

    def tag(self, name, text, **attributes):
        shown = "".join(f' {key}="{html.escape(str(value))}"' for key, value in attributes.items())
        self.text.write(f"<{name}{shown}>{html.escape(str(text))}</{name}>\n")


def parse(lines):
    current = file = None
    for line in lines:
        if line.startswith("#"):
            continue
        if line.startswith("~"):
            if line.startswith("~V"):
                if file is not None:
                    yield file
                file = LasFile()
            if line.startswith("~A"):
                file.log_pass = LogPass([member.mnem for member in file.sections[-1].members])
                current = None
            else:
                current = file.start(line)
        elif current is not None:
            current.add_member_line(line)
        else:
            file.log_pass.add_row(line.split())
    if file is not None:
        yield file


def to_html(file):
    page = Page()
    for section in file.sections:
        page.tag("h2", "Section " + section.kind)
        for member in section.members:
            page.tag("td", member.mnem, cls="mnem")
            page.tag("td", member.unit)
            page.tag("td", member.data)
            page.tag("td", member.desc, title=member.desc)
    for channel in file.log_pass.channels:
        for key, value in channel.summary().items():
            page.tag("td", value, key=key)
    return page.text.getvalue()


def run_parsing(folder: str, scale: float) -> None:
    recent = collections.deque(maxlen=24)
    pages = []
    with open(os.path.join(folder, LAS)) as lines:
        for file in parse(lines):
            pages.append(to_html(file))
            recent.append(file)


# Arrays.


def make(count):
    import numpy

    return numpy.empty(count, dtype=numpy.float64)


def fill(array, value):
    array[:] = value
    return array


def reduce(array):
    return float(array.sum())


def run_numpy(folder: str, scale: float) -> None:
    import numpy

    sizes = [64, 512, 4096, 16384, 65536, 262144]
    kept = []
    for i in range(int(40_000 * scale)):
        count = sizes[(i * 7919) % 6]
        if count == 262144 and i % 5:
            count = 4096
        array = fill(make(count), i & 255)
        reduce(array)
        if i % 50 == 0:
            kept.append(numpy.concatenate([array, array]))
            if len(kept) > 60:
                del kept[:40]


# JSON, regular expressions and dataclasses.

REQUEST = re.compile(r'(GET|POST) (/[^ ?]*)(?:\?q=(\w+))? HTTP/1\.1" (\d+) (\d+)')


@dataclass
class Record:
    id: int
    time: datetime.datetime
    user: str
    domain: str
    path: str
    status: int
    size: int
    mean: float
    deviation: float
    tags: tuple


def convert(item):
    match = REQUEST.search(item["msg"])
    values = item["values"]
    mean = sum(values) / len(values)
    deviation = (sum([(x - mean) * (x - mean) for x in values]) / len(values)) ** 0.5
    user = item["user"]
    _, domain = user["email"].split("@")
    return Record(
        item["id"],
        datetime.datetime.fromisoformat(item["ts"]),
        user["name"],
        domain,
        match.group(2).rsplit("/", 1)[0],
        int(match.group(4)),
        int(match.group(5)),
        mean,
        deviation,
        tuple(sorted(set(user["tags"]))),
    )


def aggregate(records):
    groups = collections.defaultdict(list)
    for record in records:
        groups[record.domain, record.path].append(record.size)
    return {key: (len(sizes), max(sizes), statistics.fmean(sizes)) for key, sizes in groups.items()}


def run_json(folder: str, scale: float) -> None:
    records = []
    with open(os.path.join(folder, JSONL)) as lines:
        for line in lines:
            records.append(convert(json.loads(line)))
    aggregate(records)
    records.sort(key=lambda record: (record.domain, record.user, record.time))
    rows = []
    for r in records:
        rows.append(f"<tr><td>{r.id}</td><td>{r.user}</td><td>{r.time:%Y-%m-%d}</td><td>{','.join(r.tags)}</td></tr>")
    "".join(rows)


WORKLOADS = {"calls": run_calls, "parsing": run_parsing, "numpy": run_numpy, "json": run_json}
