"""What people do with an export today: SQL joins, then a merge of three tables in Python.

Takes an export and a prefix; writes PREFIX_valid.tsv, _driver.tsv and _invalid.tsv, then the blocks live at
the highest total to PREFIX_watermark.txt. The queries and the algorithm are those of the scripts that
Floodmark's 'nsys split' and 'nsys process' stand in for, in our own words; the copy of all live blocks at
every new peak is part of it.
"""

import sqlite3
import sys

COLUMNS = """e.globalPid, e.address, e.start, e.bytes, k.name, o.name, e.name"""
FROM = """CUDA_GPU_MEMORY_USAGE_EVENTS e
    JOIN ENUM_CUDA_MEM_KIND k ON k.id = e.memKind
    JOIN ENUM_CUDA_DEV_MEM_EVENT_OPER o ON o.id = e.memoryOperationType"""
MATCH = """c.correlationId = e.correlationId AND c.globalTid >> 24 = e.globalPid >> 24
    AND e.start BETWEEN c.start AND c.end"""
QUERIES = {
    "valid": f"""
        WITH chains AS (
            SELECT f.id, group_concat(s.value || '(' || m.value || ')', ' -> ') AS text
            FROM CUDA_CALLCHAINS f JOIN StringIds s ON s.id = f.symbol JOIN StringIds m ON m.id = f.module
            GROUP BY f.id)
        SELECT {COLUMNS}, chains.text FROM {FROM}
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {MATCH} AND c.eventClass = 67
        LEFT JOIN chains ON chains.id = c.callchainId ORDER BY e.start""",
    "driver": f"""
        SELECT {COLUMNS}, s.value FROM {FROM}
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {MATCH} AND c.eventClass = 1
        JOIN StringIds s ON s.id = c.nameId ORDER BY e.start""",
    "invalid": f"""
        SELECT {COLUMNS}, 'STACK_NOT_FOUND' FROM {FROM}
        LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON {MATCH} AND c.eventClass IN (1, 67)
        WHERE c.start IS NULL ORDER BY e.start""",
}


def split(database, prefix):
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    for name, query in QUERIES.items():
        with open(f"{prefix}_{name}.tsv", "w") as file:
            file.write("PID\taddress\tstart_time\tbytes\tmemkind\tmem_op_type\tvar_name\tcall_stack\n")
            for row in connection.execute(query):
                file.write("\t".join("" if value is None else str(value) for value in row) + "\n")


def rows(prefix, name):
    with open(f"{prefix}_{name}.tsv") as file:
        next(file)
        for line in file:
            yield line.rstrip("\n").split("\t")


def watermark(prefix):
    readers = [rows(prefix, name) for name in ("valid", "invalid", "driver")]
    heads = [next(reader, None) for reader in readers]
    live, peak, totals, best = {}, {}, [0, 0, 0], 0
    while any(heads):
        at = min((int(head[2]), at) for at, head in enumerate(heads) if head)[1]
        row, heads[at] = heads[at], next(readers[at], None)
        if row[4].endswith(("_PINNED", "_PAGEABLE")):
            continue
        key = f"{row[0]}_{row[1]}_{row[4]}"
        if row[5].endswith("DEALLOCATION"):
            live.pop(key, None)
            totals[at] -= int(row[3])
        else:
            live[key] = row + [at]
            totals[at] += int(row[3])
            if sum(totals) > best:
                best, peak = sum(totals), dict(live)
    with open(f"{prefix}_watermark.txt", "w") as file:
        for row in peak.values():
            file.write("\t".join([*row[1:7], str(row[8]), row[7]]) + "\n")
    print(best)


if __name__ == "__main__":
    split(sys.argv[1], sys.argv[2])
    watermark(sys.argv[2])
