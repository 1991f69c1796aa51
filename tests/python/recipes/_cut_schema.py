"""Cut the part of Kubernetes' schema that the manifests use: ``_cut_schema.py SCHEMAS > kubernetes_1.37.json``.

SCHEMAS is the folder ``v1.37.0-local-strict`` of ``kubernetes_validate/kubernetes-json-schema`` in the package
``kubernetes-validate`` 1.37.0. Descriptions go; properties that no manifest has keep their name and lose their schema.
"""

import json
import sys
from pathlib import Path

import yaml

SCHEMAS = Path(sys.argv[1])
FOLDER = Path(__file__).parents[3] / "examples/kubernetes"
ROOTS = {"v1 Pod": "pod-v1.json", "batch/v1 Job": "job-batch-v1.json"}


def resolve(schema):
    while "$ref" in schema:
        file, _, pointer = schema["$ref"].partition("#")
        schema = json.loads((SCHEMAS / (Path(file).name or "_definitions.json")).read_text())
        for step in filter(None, pointer.split("/")):
            schema = schema[step]
    return schema


def cut(schema, values):
    """Keep what is needed to check the values."""
    schema = resolve(schema)
    kept = {key: schema[key] for key in ("type", "enum", "required") if key in schema}
    if "oneOf" in schema:
        return kept
    if "properties" in schema:
        objects = [value for value in values if isinstance(value, dict)]
        used = {name: [one[name] for one in objects if name in one] for name in schema["properties"]}
        kept["properties"] = {
            name: cut(inner, used[name]) if used[name] else {} for name, inner in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), dict):
        inner = [one for value in values if isinstance(value, dict) for one in value.values()]
        kept["additionalProperties"] = cut(schema["additionalProperties"], inner)
    if "items" in schema:
        kept["items"] = cut(schema["items"], [one for value in values if isinstance(value, list) for one in value])
    return kept


manifests = [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))]
print(
    json.dumps(
        {
            root: cut({"$ref": file}, [one for one in manifests if f"{one['apiVersion']} {one['kind']}" == root])
            for root, file in ROOTS.items()
        },
        indent=1,
        sort_keys=True,
    )
)
