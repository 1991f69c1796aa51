"""The same recipe as with_pandas.py, as Polars would have it: lazy, streaming and on all cores."""

import sys

import polars

log = polars.scan_csv(sys.argv[1]).select("Action", "Size")
is_alloc = polars.col("Action") == "allocate"
sizes = log.filter(is_alloc).select("Size")
delta = polars.when(is_alloc).then(polars.col("Size")).otherwise(-polars.col("Size"))
peak = log.select(delta.cum_sum().max())
frames = polars.collect_all([sizes, peak], engine="streaming")
print("total", frames[0].sum())
print(frames[0].describe())
print("peak", frames[1])
