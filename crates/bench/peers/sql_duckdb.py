"""One query on the views that `floodmark sql --views` prints, which read the parts of the trace: FILE QUERY."""

import sys

import duckdb

connection = duckdb.connect()
with open(sys.argv[1]) as views:
    connection.execute(views.read())
print(connection.execute(sys.argv[2]).fetchall()[:20])
