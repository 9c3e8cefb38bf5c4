"""The chart, rendered and linted by the real Helm engine, its manifests held against the API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from podscope.cli import COMMANDS
from podscope_agent.settings import AgentSettings

CHART = Path(__file__).resolve().parents[3] / "deploy/helm/podscope"
KUBERNETES_VERSIONS = ["1.28", "1.31", "1.34"]
LINT_SEVERITY_INFO = 1
EVERYTHING: dict[str, Any] = yaml.safe_load((CHART / "ci/everything-values.yaml").read_text())

Manifest = dict[str, Any]


def render(values: dict[str, Any] | None = None) -> list[Manifest]:
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values or {}, name="prof", namespace="ml")
    documents = [
        document
        for name, text in sorted(files.items())
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
    ]
    return [document for document in documents if document]


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "DaemonSet", "Job"}:
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_chart_lints_without_a_finding(values: dict[str, Any]) -> None:
    found = helm.lint(CHART, values, strict=True)
    assert found["errors"] == []
    assert [m for m in found["messages"] if m["severity"] > LINT_SEVERITY_INFO] == []


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_manifest_is_valid_for_the_api(values: dict[str, Any], version: str) -> None:
    for manifest in render(values):
        if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # another project's resource; its shape is checked below
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_defaults_bring_every_part() -> None:
    manifests = render()
    assert set(of_kind(manifests, "DaemonSet")) == {"prof-podscope-agent"}
    assert set(of_kind(manifests, "Deployment")) == {
        "prof-podscope-collector",
        "prof-podscope-worker",
        "prof-podscope-beat",
    }
    assert set(of_kind(manifests, "Job")) == {"prof-podscope-migration"}
    assert set(of_kind(manifests, "Service")) == {"prof-podscope", "prof-podscope-agents"}
    assert len(of_kind(manifests, "ServiceAccount")) == 4


def test_every_container_runs_a_command_that_exists() -> None:
    for name, pod in pods(render()):
        command = pod["containers"][0]["args"][0]
        assert command in COMMANDS, name


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_pod_is_unprivileged_with_a_read_only_root(values: dict[str, Any]) -> None:
    for name, pod in pods(render(values)):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_services_select_the_pods_that_they_are_for() -> None:
    manifests = render()
    labels = {
        m["metadata"]["name"]: m["spec"]["template"]["metadata"]["labels"]
        for m in manifests
        if m["kind"] in {"Deployment", "DaemonSet"}
    }
    for service, workload in [
        ("prof-podscope", "prof-podscope-collector"),
        ("prof-podscope-agents", "prof-podscope-agent"),
    ]:
        selector = of_kind(manifests, "Service")[service]["spec"]["selector"]
        selected = [name for name, have in labels.items() if selector.items() <= have.items()]
        assert selected == [workload]


def test_volume_mounts_name_volumes_of_their_pod() -> None:
    for values in ({}, EVERYTHING):
        for name, pod in pods(render(values)):
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in pod["containers"]:
                assert {m["name"] for m in container["volumeMounts"]} == volumes, name


def test_settings_reach_every_process_of_the_service() -> None:
    for name, pod in pods(render(EVERYTHING)):
        environment = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
        if not name.endswith("-agent"):
            assert environment["PODSCOPE_COLLECTOR_LOG_LEVEL"] == "debug", name
            assert environment["PODSCOPE_COLLECTOR_VISIBILITY_TIMEOUT"] == "7200", name
            memory = environment["PODSCOPE_COLLECTOR_ANALYSIS_MEMORY_BYTES"]
            assert memory == "8589934592", name


def test_no_secret_is_ever_a_value() -> None:
    for manifest in render():
        assert manifest["kind"] != "Secret"
    for _, pod in pods(render()):
        for variable in pod["containers"][0].get("env", []):
            if "URL" in variable["name"]:
                assert "secretKeyRef" in variable["valueFrom"]


def test_the_migration_runs_before_the_pods_of_a_release() -> None:
    job = of_kind(render(), "Job")["prof-podscope-migration"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["db", "upgrade"]


def test_no_pod_may_ask_the_api_server_by_default() -> None:
    manifests = render()
    assert {m["kind"] for m in manifests} & {
        "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    } == set()  # fmt: skip
    for name, pod in pods(manifests):
        assert pod["automountServiceAccountToken"] is False, name


def test_workers_and_collector_may_list_the_pods_of_the_namespaces_and_nothing_else() -> None:
    manifests = render(EVERYTHING)
    roles = [m for m in manifests if m["kind"] == "Role"]
    assert [role["metadata"]["namespace"] for role in roles] == ["train", "research"]
    bindings = [m for m in manifests if m["kind"] == "RoleBinding"]
    assert [b["metadata"]["namespace"] for b in bindings] == ["train", "research"]
    accounts = set(of_kind(manifests, "ServiceAccount"))
    for role, binding in zip(roles, bindings, strict=True):
        assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        subjects = [(s["kind"], s["name"], s["namespace"]) for s in binding["subjects"]]
        assert subjects == [
            ("ServiceAccount", "prof-podscope-worker", "ml"),
            ("ServiceAccount", "prof-podscope-collector", "ml"),
        ]
        assert {name for _, name, _ in subjects} <= accounts


def test_agents_may_list_pods_when_they_look_for_them() -> None:
    manifests = render(EVERYTHING)
    (role,) = of_kind(manifests, "ClusterRole").values()
    (binding,) = of_kind(manifests, "ClusterRoleBinding").values()
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [s["name"] for s in binding["subjects"]] == ["prof-podscope-agent"]
    agent = of_kind(manifests, "DaemonSet")["prof-podscope-agent"]["spec"]["template"]["spec"]
    assert "--kubernetes" in agent["containers"][0]["args"]


def test_only_pods_that_ask_the_api_server_carry_its_token() -> None:
    carry = {name for name, pod in pods(render(EVERYTHING)) if pod["automountServiceAccountToken"]}
    assert carry == {"prof-podscope-agent", "prof-podscope-worker", "prof-podscope-collector"}


def test_the_agent_is_told_all_its_targets() -> None:
    agent = of_kind(render(EVERYTHING), "DaemonSet")["prof-podscope-agent"]
    container = agent["spec"]["template"]["spec"]["containers"][0]
    assert "--target=localhost:9999,localhost:6009" in container["args"]


def test_agents_and_those_who_call_them_are_given_their_certificates() -> None:
    secrets = {}
    for name, pod in pods(render(EVERYTHING)):
        [container] = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in pod["volumes"]:
            if volume["name"] in {"tls", "agent-tls"}:
                secrets[name] = volume["secret"]["secretName"]
                files = [
                    text
                    for text in (
                        *container["args"],
                        *(str(v.get("value")) for v in container["env"]),
                    )
                    if mounts[volume["name"]] in text
                ]
                assert len(files) == 3, name
    assert secrets == {
        "prof-podscope-agent": "agents-tls",
        "prof-podscope-collector": "collector-tls",
        "prof-podscope-worker": "collector-tls",
    }
    with pytest.raises(helm.HelmError, match="clientSecret is required"):
        render({"agent": {"tls": {"existingSecret": "agents-tls"}}})


def test_agents_and_those_who_call_them_are_given_the_token() -> None:
    told = {}
    for name, pod in pods(render(EVERYTHING)):
        [container] = pod["containers"]
        for volume in pod["volumes"]:
            if volume["name"] == "agent-token":
                assert volume["secret"]["secretName"] == "agents-token"
                assert volume["secret"]["items"] == [{"key": "secret", "path": "token"}]
                [mount] = [m for m in container["volumeMounts"] if m["name"] == "agent-token"]
                file = f"{mount['mountPath']}/token"
                variables = {v["name"] for v in container["env"] if v.get("value") == file}
                told[name] = variables | {a for a in container["args"] if file in a}
    assert told == {
        "prof-podscope-agent": {"--token-file=/etc/podscope-agent-token/token"},
        "prof-podscope-collector": {"PODSCOPE_COLLECTOR_AGENT_TOKEN_FILE"},
        "prof-podscope-worker": {"PODSCOPE_COLLECTOR_AGENT_TOKEN_FILE"},
    }


def test_the_agents_token_crosses_the_network_in_plain_text_only_when_asked() -> None:
    auth: dict[str, Any] = {"existingSecret": "agents-token"}
    with pytest.raises(helm.HelmError, match=r"agent\.auth\.plainText: true"):
        render({"agent": {"auth": auth}})
    manifests = render({"agent": {"auth": auth | {"plainText": True}}})
    for name in ("prof-podscope-collector", "prof-podscope-worker"):
        pod = of_kind(manifests, "Deployment")[name]["spec"]["template"]["spec"]
        environment = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
        assert environment["PODSCOPE_COLLECTOR_AGENT_TOKEN_IN_PLAIN_TEXT"] == "true"


def test_agents_are_given_their_settings() -> None:
    daemon = of_kind(render(EVERYTHING), "DaemonSet")["prof-podscope-agent"]
    pod = daemon["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = {v["name"]: v.get("value") for v in container["env"]}
    assert (
        environment.items()
        >= {
            "PODSCOPE_AGENT_ALLOW_WORKERS": "worker-*:8466",
            "PODSCOPE_AGENT_METRICS_HOST": "$(POD_IP)",
            "PODSCOPE_AGENT_SPOOL_BYTES": "8589934592",
            "PODSCOPE_AGENT_MAX_TIME_RATIO": "0.05",
            "PODSCOPE_AGENT_RUNTIME_DIR": "/run/podscope",
        }.items()
    )
    # Kubernetes fills in a variable only in those that come after it.
    names = [v["name"] for v in container["env"]]
    assert names.index("POD_IP") < names.index("PODSCOPE_AGENT_METRICS_HOST")
    [runtime] = [v for v in pod["volumes"] if v["name"] == "runtime"]
    assert runtime["hostPath"] == {"path": "/var/lib/podscope/run", "type": "Directory"}


def test_every_setting_of_an_agent_can_be_given() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = schema["properties"]["agent"]["properties"]["settings"]["properties"]
    # These are values of their own, or the chart's business.
    own = {"host", "port", "metrics_port", "targets", "token_file", "kubernetes", "node_name"}
    own |= {"tls_cert_file", "tls_key_file", "tls_client_ca_file", "kubernetes_node", "runtime_dir"}
    assert {*given, *own} == set(AgentSettings.model_fields)


def test_the_service_monitors_scrape_ports_that_the_services_have() -> None:
    manifests = render(EVERYTHING)
    ports = {
        port["name"] for s in of_kind(manifests, "Service").values() for port in s["spec"]["ports"]
    }
    monitors = of_kind(manifests, "ServiceMonitor")
    assert len(monitors) == 2
    for monitor in monitors.values():
        assert {e["port"] for e in monitor["spec"]["endpoints"]} <= ports
        assert monitor["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    "values",
    [
        {"agent": {"port": 70000}},
        {"agent": {"targets": []}},
        {"agent": {"tls": {"secret": "x"}}},
        {"agent": {"auth": {"token": "x"}}},
        {"agent": {"settings": {"allow_worker": "x"}}},
        {"agent": {"hostRuntimeDir": "run"}},
        {"colector": {}},
        {"kubernetes": {"namespaces": ["Train"]}},
        {"agent": {"kubernetes": "yes"}},
        {"storage": {"root": "ftp://x"}},
        {"collector": {"replicas": "two"}},
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any]) -> None:
    with helm.Chart.load(CHART) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(values)
