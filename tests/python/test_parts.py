"""Parts are ordinary Parquet: DuckDB, pandas and Polars read them without Floodmark.

Run by ./test, which says where the program is in FLOODMARK.
"""

import json
import os
import pathlib
import subprocess

import duckdb
import pandas
import polars
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOODMARK = os.environ["FLOODMARK"]
LOG = ROOT / "fixtures/rmm/rmm_26.10_h200_head.csv"
GOLDEN = ROOT / "fixtures/rmm/golden.csv"
# 10:00:00.000003 of the first day, when the golden log reaches its peak.
PEAK_NS = 36_000_000_003_000


def floodmark(*arguments):
    run = subprocess.run([FLOODMARK, *map(str, arguments)], capture_output=True, text=True, check=True)
    return run.stdout


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    trace = tmp_path_factory.mktemp("traces") / "golden.flood"
    floodmark("import", GOLDEN, "-o", trace)
    return trace


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    trace = tmp_path_factory.mktemp("traces") / "real.flood"
    floodmark("import", LOG, "-o", trace)
    return trace


def test_duckdb_answers_in_sql(golden):
    # Python's datetime stops at microseconds, so times are compared inside DuckDB.
    query = f"select action, count(*), sum(bytes)::bigint from '{golden}/event/*.parquet' group by action order by action"
    assert duckdb.sql(query).fetchall() == [
        ("alloc", 5, 3756),
        ("failure", 1, 1099511627776),
        ("free", 4, 3064),
    ]
    types = dict(duckdb.sql(f"select column_name, column_type from (describe from '{golden}/event/*.parquet')").fetchall())
    assert types["time"].startswith("TIMESTAMP") and ("TZ" in types["time"] or "TIME ZONE" in types["time"])
    assert (types["action"], types["address"]) == ("VARCHAR", "UBIGINT")
    peak = f"""
        with deltas as (
            select epoch_ns(time) as ns,
                sum(case action when 'alloc' then bytes::bigint when 'free' then -bytes::bigint else 0 end)
                    over (order by time) as live
            from '{golden}/event/*.parquet')
        select ns, live from deltas order by live desc, ns limit 1"""
    assert duckdb.sql(peak).fetchall() == [(PEAK_NS, 3500)]


def test_stacks_join_in_sql():
    trace = ROOT / "crates/store/tests/it/fixtures/v1/sealed"
    query = f"""
        select function, file, line, count(*) from '{trace}/event/*.parquet'
        join '{trace}/stack/*.parquet' using (stack) join '{trace}/frame/*.parquet' using (frame)
        group by all order by function"""
    assert duckdb.sql(query).fetchall() == [("load", "app.py", 9, 166), ("main", "app.py", 3, 167)]


def test_samples_join_their_subjects_in_sql():
    trace = ROOT / "crates/store/tests/it/fixtures/v2/sealed"
    query = f"""
        select s.name, s.kind, metric, max(value)::bigint as most, epoch_ns(s.end_time) - epoch_ns(s.start_time)
        from '{trace}/sample/*.parquet' join '{trace}/subject/*.parquet' s using (subject)
        where metric in ('rss', 'rss_anon') group by all order by most"""
    assert duckdb.sql(query).fetchall() == [
        ("shell", "process", "rss", 288**2 * 4096, None),
        ("worker", "process", "rss_anon", 289**2 * 4096, 1),
    ]
    dead = f"select name, wait_status, peak_rss_bytes from '{trace}/subject/*.parquet' where end_time is not null"
    assert duckdb.sql(dead).fetchall() == [("worker", 9, 1 << 30)]
    seen = f"""
        select reason, function from '{trace}/stack_sample/*.parquet'
        join '{trace}/stack/*.parquet' using (stack) join '{trace}/frame/*.parquet' using (frame) order by reason"""
    assert duckdb.sql(seen).fetchall() == [
        (reason, "main") for reason in ["growth", "interval", "limit", "peak", "request"]
    ]


def test_pandas_and_polars_see_output_as_bytes():
    trace = ROOT / "crates/store/tests/it/fixtures/v2/sealed"
    output = pandas.read_parquet(trace / "output")
    assert output["stream"].tolist() == ["stdout", "stderr", "terminal"]
    assert output["bytes"].tolist() == [b"\xff\x00 output"] * 3
    samples = pandas.read_parquet(trace / "sample")
    assert str(samples["time"].dtype) == "datetime64[ns, UTC]"
    assert isinstance(samples["metric"].dtype, pandas.CategoricalDtype)
    output = polars.read_parquet(trace / "output/*.parquet")
    assert (output.schema["bytes"], output["bytes"][0]) == (polars.Binary, b"\xff\x00 output")


def test_pandas_sees_utc_times_and_categories(golden):
    events = pandas.read_parquet(golden / "event")
    assert str(events["time"].dtype) == "datetime64[ns, UTC]"
    assert events["time"].astype("int64").iloc[2] == PEAK_NS
    assert isinstance(events["action"].dtype, pandas.CategoricalDtype)
    assert events["action"].tolist()[:5] == ["alloc", "alloc", "alloc", "free", "failure"]
    assert events["kind"].unique().tolist() == ["device"]
    assert events["thread"].unique().tolist() == [101, 202]
    assert events["resource"].isna().all()


def test_polars_sees_the_same(golden):
    events = polars.read_parquet(golden / "event/*.parquet")
    assert events.schema["time"] == polars.Datetime("ns", "UTC")
    assert events["action"].cast(polars.String).to_list()[:5] == ["alloc", "alloc", "alloc", "free", "failure"]
    assert events["bytes"].filter(events["action"].cast(polars.String) == "alloc").sum() == 3756


def test_floodmark_and_pandas_agree_on_a_real_log(real):
    events = pandas.read_parquet(real / "event")
    stats = json.loads(floodmark("stats", "--json", real))
    allocs = events[events["action"] == "alloc"]["bytes"]
    assert stats["allocations"] == len(allocs)
    assert stats["total_bytes"] == allocs.sum()
    described = allocs.astype("float64").describe()
    for ours, theirs in [("mean", "mean"), ("std", "std"), ("p25", "25%"), ("p50", "50%"), ("p75", "75%"), ("max", "max")]:
        assert stats["size"][ours] == pytest.approx(described[theirs]), ours


def test_every_table_of_the_manifest_is_there(real):
    manifest = json.loads((real / "manifest.json").read_text())
    for part in manifest["parts"]:
        rows = duckdb.sql(f"select count(*) from '{real}/{part['table']}/{part['file']}'").fetchall()[0][0]
        assert rows == part["rows"] > 0
    assert {part["table"] for part in manifest["parts"]} >= {"event", "process"}
