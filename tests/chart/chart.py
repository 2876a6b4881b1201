"""The chart, rendered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "gpufleet"

Values = dict[str, Any]
Object = dict[str, Any]

DEFAULTS: Values = {}
EVERYTHING: Values = {
    "image": {"registry": "registry.example.org/gpu/", "tag": "1.2.3", "pullSecrets": ["registry"]},
    "blobs": {"store": "s3://gpufleet/blobs?endpoint=https://s3.example.org&region=r1", "credentials": "bucket"},
    "logs": {"format": "text", "filter": "info,gpufleet_worker=debug"},
    "metrics": {"podMonitor": True},
    "workers": {
        "default": None,
        "team-a": {
            "pools": ["team-a:weight=3,memory=50%", "team-b"],
            "gpus": 2,
            "graceSeconds": 3600,
            "args": ["--resident-inputs=8GiB"],
            "env": [{"name": "CUDA_CACHE_DISABLE", "value": "1"}],
            "autoscaling": {"enabled": True, "maxReplicas": 8},
            "resources": {"limits": {"memory": "64Gi"}},
            "runtimeClassName": "nvidia",
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "cpu": {"pools": ["emulated:sessions=2"], "cuda": "emulated", "gpus": 0, "replicas": 3},
    },
    "recorder": {"keep": {"jobs": "400d", "attempts": "90d", "actions": "400d"}, "pruneBlobs": True},
    "console": {
        "actions": True,
        "hosts": ["console.example.org"],
        "viewers": {"header": "X-Forwarded-User", "proxies": ["10.0.0.0/8"]},
        "ingress": {"enabled": True, "className": "nginx", "tls": "console-tls", "annotations": {"a/b": "c"}},
    },
}
FOLDER: Values = {"blobs": {"store": "/blobs", "claim": "shared"}, "recorder": {"pruneBlobs": True}}
WITHOUT_CONSOLE: Values = {
    "console": {"enabled": False},
    "api": {"enabled": False},
    "migrate": {"enabled": False},
    "metrics": {"enabled": False},
}
SESSIONS: Values = {
    "metrics": {"enabled": False},
    "workers": {
        "default": None,
        "inside": {"pools": ["team-a:weight=3,sessions=4", "team-b"]},
        "outside": {
            "pools": ["team-a:sessions=10,session-memory=25%"],
            "sessions": {"onNode": True, "ports": {"first": 31000, "last": 31009}},
        },
        "named": {"pools": ["team-a:sessions=1"], "sessions": {"onNode": True, "advertise": "gpu.example.org"}},
        "none": {"pools": ["batch:session-memory=50%", "sessions:sessions=0"], "sessions": {"onNode": True}},
    },
}
ALL = {
    "defaults": DEFAULTS,
    "everything": EVERYTHING,
    "folder": FOLDER,
    "without-console": WITHOUT_CONSOLE,
    "sessions": SESSIONS,
}


def objects(values: Values) -> list[Object]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="fleet", namespace="gpu")
    texts = [text for name, text in files.items() if not name.endswith("NOTES.txt")]
    return [object_ for text in texts for object_ in yaml.safe_load_all(text) if object_]


def named(values: Values, kind: str, name: str) -> Object:
    found = [o for o in objects(values) if o["kind"] == kind and o["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} objects of kind {kind} are named {name}"
    return found[0]


def container(values: Values, kind: str, name: str) -> Object:
    (only,) = named(values, kind, name)["spec"]["template"]["spec"]["containers"]
    return only
