"""The Airflow provider: a connection type, a hook, a deferrable operator and its trigger.

The names are imported when they are used, because Airflow reads `get_provider_info` in every process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufleet.airflow.hook import GpufleetHook
    from gpufleet.airflow.operator import GpufleetKernelOperator
    from gpufleet.airflow.trigger import GpufleetTrigger

__all__ = ["GpufleetHook", "GpufleetKernelOperator", "GpufleetTrigger", "get_provider_info"]

_MODULES = {"GpufleetHook": "hook", "GpufleetKernelOperator": "operator", "GpufleetTrigger": "trigger"}


def get_provider_info() -> dict[str, Any]:
    """What Airflow knows about this provider."""
    module = "gpufleet.airflow"
    return {
        "package-name": "gpufleet",
        "name": "gpufleet",
        "description": "Runs CUDA kernels on the GPUs of a gpufleet fleet.",
        "integrations": [{"integration-name": "gpufleet", "external-doc-url": "", "tags": ["software"]}],
        "hooks": [{"integration-name": "gpufleet", "python-modules": [f"{module}.hook"]}],
        "operators": [{"integration-name": "gpufleet", "python-modules": [f"{module}.operator"]}],
        "triggers": [{"integration-name": "gpufleet", "python-modules": [f"{module}.trigger"]}],
        "connection-types": [
            {
                "connection-type": "gpufleet",
                "hook-name": "gpufleet",
                "hook-class-name": f"{module}.hook.GpufleetHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["extra"],
                    "relabeling": {"schema": "Virtual host", "login": "User"},
                    "placeholders": {"host": "rabbitmq.example", "port": "5672", "schema": "/"},
                },
                "conn-fields": {
                    "blobs": _text("Blob store", "The store of the workers: a folder, or s3://bucket/prefix."),
                    "tls": {
                        "label": "TLS",
                        "description": "Connect with amqps.",
                        "schema": {"type": ["boolean", "null"], "default": False},
                    },
                    "pool": _text("Pool", "The gpufleet pool of jobs that name none."),
                    "namespace": _text("Namespace", "Tells the jobs of several Airflow installations apart."),
                },
            }
        ],
    }


def _text(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "airflow":
            raise
        raise ImportError(f"{name} needs Airflow; install it with: pip install 'gpufleet[airflow]'") from error
