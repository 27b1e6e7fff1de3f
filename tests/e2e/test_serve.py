"""Tests responses of a server that speculates, as an OpenAI client sees them."""

from importlib.metadata import version

import httpx
import pytest

from tests.dashboard import Exposed, queries
from tests.e2e.conftest import NUM_DRAFTS
from vllm_spec_plugin import __version__
from vllm_spec_tools.engines.server_metrics import ServerMetrics

pytestmark = pytest.mark.e2e

METHOD = "    def get_{0}(self):\n        return self.{0}\n\n    def set_{0}(self, {0}):\n        self.{0} = {0}\n\n"
PROMPT = (
    "class Person:\n" + "".join(METHOD.format(name) for name in ("name", "age", "city")) + "    def get_street(self"
)
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


def complete(client, model, prompt=PROMPT, **options):
    options = {"max_tokens": 48, "temperature": 0, **options}
    return client.completions.create(model=model, prompt=prompt, **options)


def test_completions_draft_and_accept(client, model, server):
    before = server.metrics()
    answer = complete(client, model)
    after = server.metrics()
    assert answer.usage.completion_tokens == 48
    drafted, accepted = after[DRAFTED] - before[DRAFTED], after[ACCEPTED] - before[ACCEPTED]
    assert 0 < accepted <= drafted
    assert after["vllm_spec_plugin:draft_tokens_total"] >= after[DRAFTED]
    assert after["vllm_spec_plugin:drafts_total"] > 0
    assert after["vllm_spec_plugin:proposer_seconds_total"] > 0
    assert after["vllm_spec_plugin:verification_seconds_total"] > 0
    assert after["vllm_spec_plugin:proposer_errors_total"] == 0


def test_the_log_and_the_metrics_say_what_is_served(model, server):
    methods = "ngram > draft_model > medusa"
    [line] = [line for line in server.log_path.read_text().splitlines() if f"vllm_spec_plugin {__version__}: " in line]
    assert f": {methods}, policy fixed, up to {NUM_DRAFTS} draft tokens, exact; memory per rank: " in line
    [line] = [line for line in server.log_path.read_text().splitlines() if f"{__version__} serves with vLLM " in line]
    assert f" {version('vllm')} (" in line
    assert "; V1 runner: " in line
    assert "V2 needs Triton" in line
    assert "; synchronous scheduling: " in line
    exposition = httpx.get(f"{server.base_url}/metrics", trust_env=False).text
    labels = [labels for name, labels, _ in ServerMetrics.parse(exposition).samples if name == "vllm_spec_plugin:info"]
    engine = {"model_name": model, "engine": "0", "version": __version__}
    policy = {"methods": methods, "policy": "fixed", "tokens": str(NUM_DRAFTS)}
    assert labels == [{**engine, **policy, "exact": "true", "lenience": "1"}]


def test_the_server_has_every_metric_and_label_that_the_dashboard_asks_for(client, model, server):
    for _ in range(3):
        complete(client, model)
    exposed = Exposed.parse(httpx.get(f"{server.base_url}/metrics", trust_env=False).text)
    assert {"vllm:generation_tokens_total", "vllm_spec_plugin:accepted_tokens_total"} <= set(exposed.series)
    assert not [complaint for query in queries() for complaint in exposed.missing(query)]


def test_a_request_is_told_how_its_drafts_fared(client, model):
    answer = complete(client, model, extra_body={"ignore_eos": True})
    own = answer.model_extra["metrics"]["speculative_decoding"]
    assert own["mean_acceptance_length"] == 1 + own["num_accepted_draft_tokens"] / own["num_spec_steps"]
    assert own["draft_acceptance_rate"] == own["num_accepted_draft_tokens"] / own["num_draft_tokens"]
    assert sum(own["per_step_accepted"]) == own["num_accepted_draft_tokens"] > 0
    assert sum(own["per_step_drafted"]) == own["num_draft_tokens"]
    assert max(own["per_step_drafted"]) == own["num_spec_tokens"] == NUM_DRAFTS
