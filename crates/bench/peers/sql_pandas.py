"""The questions of the SQL benchmark in pandas, on the event parts of a trace: count, group or join, then FILES."""

import sys

import pandas

columns = {
    "count": ["action"],
    "group": ["thread", "stream", "bytes"],
    "join": ["time", "action", "process", "address", "bytes"],
}[sys.argv[1]]
events = pandas.concat([pandas.read_parquet(part, columns=columns) for part in sys.argv[2:]], ignore_index=True)
if sys.argv[1] == "count":
    print(len(events))
elif sys.argv[1] == "group":
    print(events.groupby(["thread", "stream"])["bytes"].agg(["count", "sum"]).head(20))
else:
    # The next event at an address ends the block there: what `blocks` does, without matching row by row.
    events = events[events["action"] != "failure"]
    events = events.sort_values(["process", "address"], kind="stable")
    ends = events.groupby(["process", "address"], sort=False).shift(-1)
    allocs = events["action"] == "alloc"
    lifetime = (ends["time"] - events["time"])[allocs]
    print(allocs.sum(), lifetime.mean())
