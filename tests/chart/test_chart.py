"""What the chart makes of values, by Helm's own engine and Kubernetes' schemas."""

from __future__ import annotations

import re
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
from chart import (
    ALL,
    CHART,
    DEFAULTS,
    EVERYTHING,
    FOLDER,
    SESSIONS,
    WITHOUT_CONSOLE,
    Object,
    Values,
    container,
    named,
    objects,
)

# The oldest release that the chart admits, and the newest whose schemas there are.
KUBERNETES = ["1.27", "1.37"]
FOREIGN = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}
"""Kinds of operators. Their schemas are in no package, so tests below name what these operators read."""
WARNING = 2
WORKERS = ["inside", "outside", "named", "none"]
"""Those of the values with sessions."""


@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_helm_finds_nothing_to_complain_about(values: Values) -> None:
    messages = helm.lint(CHART, values)["messages"]
    assert [message for message in messages if message["severity"] >= WARNING] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_every_object_fits_the_schema_of_its_kind(values: Values, version: str) -> None:
    own = [object_ for object_ in objects(values) if object_["apiVersion"] not in FOREIGN]
    assert own
    for object_ in own:
        kubernetes_validate.validate(object_, version, strict=True)


@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_names_are_unique_and_selectors_find_their_own_pods_alone(values: Values) -> None:
    all_objects = objects(values)
    names = [(object_["kind"], object_["metadata"]["name"]) for object_ in all_objects]
    assert len(set(names)) == len(names)
    deployments = [object_ for object_ in all_objects if object_["kind"] == "Deployment"]
    for deployment in deployments:
        selector = deployment["spec"]["selector"]["matchLabels"]
        found = [other for other in deployments if selector.items() <= labels_of(other).items()]
        assert found == [deployment]


@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_no_pod_is_root_or_may_write_to_its_image_or_has_a_token_of_the_cluster(values: Values) -> None:
    pods = [o["spec"]["template"]["spec"] for o in objects(values) if o["kind"] in ("Deployment", "Job")]
    assert pods
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
        for only in pod["containers"]:
            assert only["securityContext"]["readOnlyRootFilesystem"] is True
            assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_passwords_come_from_secrets_alone() -> None:
    for object_ in objects(EVERYTHING):
        for only in containers_of(object_):
            secret = [v for v in only["env"] if v["name"].endswith(("_URL", "_TOKEN", "_KEY", "_KEY_ID"))]
            assert all("secretKeyRef" in variable["valueFrom"] for variable in secret)


def test_a_worker_has_its_own_settings_and_the_defaults_for_the_rest() -> None:
    worker = container(EVERYTHING, "Deployment", "fleet-worker-team-a")
    assert worker["image"] == "registry.example.org/gpu/gpufleet-worker:1.2.3"
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": 2, "memory": "64Gi"}
    assert worker["resources"]["requests"]["memory"] == "4Gi"
    assert {"--grace=3600s", "--resident-inputs=8GiB", "--cuda=system"} <= set(worker["args"])
    assert value_of(worker, "GPUFLEET_POOL") == "team-a:weight=3,memory=50% team-b"
    deployment = named(EVERYTHING, "Deployment", "fleet-worker-team-a")
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 3615
    assert "replicas" not in deployment["spec"], "KEDA decides"
    emulated = container(EVERYTHING, "Deployment", "fleet-worker-cpu")
    assert emulated["resources"]["limits"] == {"memory": "16Gi"}
    assert named(EVERYTHING, "Deployment", "fleet-worker-cpu")["spec"]["replicas"] == 3
    workers = [o for o in objects(EVERYTHING) if o["metadata"]["name"].startswith("fleet-worker-default")]
    assert workers == []


@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_every_container_has_a_limit_of_memory(values: Values) -> None:
    for object_ in objects(values):
        for only in containers_of(object_):
            assert "memory" in only["resources"]["limits"], only["name"]


@pytest.mark.parametrize("values", ALL.values(), ids=ALL)
def test_a_policy_admits_to_each_pod_its_own_callers_alone(values: Values) -> None:
    all_objects = objects(values)
    policies = [object_["spec"] for object_ in all_objects if object_["kind"] == "NetworkPolicy"]
    for deployment in (object_ for object_ in all_objects if object_["kind"] == "Deployment"):
        labels = labels_of(deployment)
        (policy,) = [p for p in policies if p["podSelector"]["matchLabels"].items() <= labels.items()]
        (only,) = containers_of(deployment)
        opened = [port["port"] for rule in policy["ingress"] for port in rule["ports"] if "endPort" not in port]
        assert opened == [port["name"] for port in only.get("ports", []) if "name" in port]
        blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule["to"] if "ipBlock" in to]
        assert blocks == [{"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}], "the node's credentials"
    assert len(policies) == sum(object_["kind"] == "Deployment" for object_ in all_objects)


def test_keda_scales_a_worker_by_the_queues_of_its_pools() -> None:
    scaled = named(EVERYTHING, "ScaledObject", "fleet-worker-team-a")["spec"]
    assert scaled["scaleTargetRef"] == {"name": "fleet-worker-team-a"}
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (1, 8)
    # KEDA reads all metadata as text. Only over HTTP does it count messages that are not acknowledged, those of running jobs.
    [trigger] = scaled["triggers"]
    assert trigger == {
        "type": "rabbitmq",
        "metadata": {
            "protocol": "http",
            "queueName": r"^gpufleet\.v1\.(tasks|forwarded)\.(team-a|team-b)\..+$",
            "useRegex": "true",
            "pageSize": "500",
            "operation": "sum",
            "excludeUnacknowledged": "false",
            "mode": "QueueLength",
            "value": "20",
        },
        "authenticationRef": {"name": "fleet-scaler"},
    }
    queues = [
        "gpufleet.v1.tasks.team-a.high",
        "gpufleet.v1.tasks.team-b.3.low",
        "gpufleet.v1.forwarded.team-a.0123456789abcdef.normal",
        "gpufleet.v1.tasks.team-a.session",
        "gpufleet.v1.tasks.team-abc.high",
        "gpufleet.v1.retry.5",
    ]
    pattern = re.compile(trigger["metadata"]["queueName"])
    assert [queue for queue in queues if pattern.match(queue)] == queues[:4]
    secret = named(EVERYTHING, "TriggerAuthentication", "fleet-scaler")["spec"]["secretTargetRef"]
    assert secret == [{"parameter": "host", "name": "gpufleet-broker", "key": "scaler"}]
    assert not [o for o in objects(DEFAULTS) if o["apiVersion"] in FOREIGN]


def test_prometheus_finds_the_ports_that_programs_listen_on() -> None:
    monitor = named(EVERYTHING, "PodMonitor", "fleet")["spec"]
    labels = monitor["selector"]["matchLabels"]
    for name in ("fleet-worker-team-a", "fleet-worker-cpu", "fleet-recorder"):
        assert labels.items() <= labels_of(named(EVERYTHING, "Deployment", name)).items()
        only = container(EVERYTHING, "Deployment", name)
        (port,) = only["ports"]
        assert [{"port": port["name"]}] == monitor["podMetricsEndpoints"]
        assert f"--metrics=0.0.0.0:{port['containerPort']}" in only["args"]


def test_a_worker_whose_pool_takes_sessions_is_reached_at_their_ports() -> None:
    address = {name: source_of(container(SESSIONS, "Deployment", f"fleet-worker-{name}")) for name in WORKERS}
    assert address == {
        "inside": {"fieldRef": {"fieldPath": "status.podIP"}},
        "outside": {"fieldRef": {"fieldPath": "status.hostIP"}},
        "named": "gpu.example.org",
        "none": None,
    }
    listens = {"inside": (9480, 9499), "outside": (31000, 31009), "named": (9480, 9499)}
    for name in WORKERS:
        only = container(SESSIONS, "Deployment", f"fleet-worker-{name}")
        rules = named(SESSIONS, "NetworkPolicy", f"fleet-worker-{name}")["spec"]["ingress"]
        listening = [argument for argument in only["args"] if argument.startswith("--session-listen")]
        if name not in listens:
            assert (rules, listening, "ports" in only) == ([], [], False)
            continue
        first, last = listens[name]
        assert listening == [f"--session-listen=0.0.0.0:{first}-{last}"]
        assert [rule["ports"] for rule in rules] == [[{"port": first, "endPort": last}]]
        assert rules[0]["from"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]
        on_node = [(port["containerPort"], port["hostPort"]) for port in only.get("ports", [])]
        assert on_node == ([] if name == "inside" else [(port, port) for port in range(first, last + 1)])


def test_a_folder_of_blobs_is_mounted_wherever_blobs_are_used() -> None:
    for name in ("fleet-worker-default", "fleet-recorder", "fleet-console"):
        pod = named(FOLDER, "Deployment", name)["spec"]["template"]["spec"]
        assert {"name": "blobs", "persistentVolumeClaim": {"claimName": "shared"}} in pod["volumes"]
        (only,) = pod["containers"]
        assert {"name": "blobs", "mountPath": "/blobs"} in only["volumeMounts"]
        assert "/blobs" in (value_of(only, "GPUFLEET_BLOBS"), value_of(only, "GPUFLEET_PRUNE_BLOBS"))


def test_the_tables_are_migrated_before_anything_else() -> None:
    job = named(DEFAULTS, "Job", "fleet-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert not [o for o in objects(WITHOUT_CONSOLE) if o["kind"] in ("Job", "Service", "Ingress")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"worker": {}}, "additional properties 'worker' not allowed"),
        ({"workers": {"x": {"gpus": 1}}}, "missing property 'pools'"),
        ({"workers": {"x": {"pools": []}}}, "minItems"),
        ({"workers": {"x": {"pools": ["a"], "gpu": 1}}}, "additional properties 'gpu' not allowed"),
        ({"workerDefaults": {"graceSeconds": "30s"}}, "workerDefaults/graceSeconds"),
        ({"recorder": {"keep": {"jobs": "a year"}}}, "does not match pattern"),
        ({"api": {"enabled": False}}, "set api.enabled, or disable console.enabled"),
        ({"console": {"viewers": {"header": "X-User"}}}, "name its networks in console.viewers.proxies"),
        ({"console": {"ingress": {"enabled": True}}}, "console.ingress needs console.hosts"),
        ({"workerDefaults": {"sessions": {"ports": {"first": 80}}}}, "sessions/ports/first"),
        ({"workerDefaults": {"sessions": {"ports": {"first": 9500}}}}, "ports from 9500 to 9499; give the lower one"),
    ],
)
def test_a_mistake_in_the_values_is_named(values: Values, message: str) -> None:
    with pytest.raises(helm.HelmError, match=message):
        objects(values)


def labels_of(object_: Object) -> dict[str, str]:
    return object_["spec"]["template"]["metadata"]["labels"]


def containers_of(object_: Object) -> list[Object]:
    return object_["spec"]["template"]["spec"]["containers"] if object_["kind"] in ("Deployment", "Job") else []


def source_of(only: Object) -> Any:
    """Where the host comes from that the worker's sessions advertise."""
    found = [variable for variable in only["env"] if variable["name"] == "GPUFLEET_SESSION_ADVERTISE"]
    return (found[0].get("value") or found[0]["valueFrom"]) if found else None


def value_of(only: Object, name: str) -> Any:
    values = [variable.get("value") for variable in only["env"] if variable["name"] == name]
    return values[0] if values else None
