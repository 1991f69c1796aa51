"""Groups, joins and sorts a table with pandas."""

import sys

import numpy as np
import pandas as pd

random = np.random.default_rng(1)
rows = 400_000
table = pd.DataFrame(
    {
        "a": random.integers(0, 1000, rows),
        "b": random.random(rows),
        "c": random.integers(0, 20, rows).astype(str),
    }
)
for _ in range(6):
    grouped = table.groupby(["a", "c"]).agg(mean=("b", "mean"), most=("b", "max"), count=("b", "count"))
    joined = table.merge(grouped.reset_index()[["a", "c"]], on=["a", "c"])
    counted = joined.sort_values("b")["c"].str.upper().value_counts()
print(len(joined), counted.iloc[0], file=sys.stderr)
