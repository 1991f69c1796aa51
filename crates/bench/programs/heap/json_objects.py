"""Parses JSON and groups what it has: many small objects. json_objects.py [RECORDS]"""

import json
import random
import sys


def record(number):
    return {
        "id": number,
        "name": f"user {number}",
        "tags": [f"t{random.randrange(50)}" for _ in range(6)],
        "position": {"x": random.random(), "y": random.random()},
        "text": "lorem ipsum dolor " * random.randrange(1, 8),
    }


random.seed(1)
count = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
text = json.dumps([record(number) for number in range(count)])
total = 0
for _ in range(4):
    groups = {}
    for entry in json.loads(text):
        for tag in entry["tags"]:
            groups.setdefault(tag, []).append((entry["name"].upper(), entry["position"]["x"]))
    total += sum(len(sorted(group)) for group in groups.values())
print(len(text), total, file=sys.stderr)
