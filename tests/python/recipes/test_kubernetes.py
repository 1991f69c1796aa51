"""The manifests for Kubernetes, checked against the part of its schema that they use.

``kubernetes_1.37.json`` is cut from the strict schemas of Kubernetes 1.37 (``_cut_schema.py`` says how): of every object
that the manifests contain it has all properties with their types, so a misspelled or misplaced one fails.
"""

import json
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "examples/kubernetes"
SCHEMAS = json.loads((Path(__file__).parent / "kubernetes_1.37.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def problems(value, schema, path="$"):
    """Yield what is wrong with a value."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    known = tuple(TYPES[kind] for kind in kinds if kind in TYPES)
    if known and (not isinstance(value, known) or (isinstance(value, bool) and bool not in known)):
        yield f"{path} is no {' or '.join(kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is none of {schema['enum']}"
    if isinstance(value, dict):
        properties = schema.get("properties")
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}.{name} is missing"
        for name, inner in value.items():
            if properties is not None and name in properties:
                yield from problems(inner, properties[name], f"{path}.{name}")
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from problems(inner, schema["additionalProperties"], f"{path}.{name}")
            elif properties is not None:
                yield f"{path}.{name} is not known"
    if isinstance(value, list) and "items" in schema:
        for number, inner in enumerate(value):
            yield from problems(inner, schema["items"], f"{path}[{number}]")


def load(name):
    manifest = yaml.safe_load((FOLDER / name).read_text())
    return manifest, SCHEMAS[f"{manifest['apiVersion']} {manifest['kind']}"]


@pytest.mark.parametrize("name", ["sidecar.yaml", "wrapped.yaml"])
def test_manifests_fit_the_schema(name):
    manifest, schema = load(name)
    assert list(problems(manifest, schema)) == []
    spec = manifest["spec"].get("template", manifest)["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"] + spec["initContainers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes


def test_the_check_finds_what_is_wrong():
    manifest, schema = load("sidecar.yaml")
    manifest["spec"]["shareProcessNamespaces"] = True
    manifest["spec"]["containers"][0]["command"] = "sleep"
    del manifest["spec"]["initContainers"][0]["name"]
    assert sorted(problems(manifest, schema)) == [
        "$.spec.containers[0].command is no array or null",
        "$.spec.initContainers[0].name is missing",
        "$.spec.shareProcessNamespaces is not known",
    ]


def test_a_sidecar_starts_before_the_program_and_sees_it():
    spec = load("sidecar.yaml")[0]["spec"]
    sidecar, program = spec["initContainers"][0], spec["containers"][0]
    assert spec["shareProcessNamespace"] is True and sidecar["restartPolicy"] == "Always"
    assert sidecar["securityContext"]["runAsUser"] == program["securityContext"]["runAsUser"]
