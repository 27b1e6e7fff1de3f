"""The start-up gate on vLLM's own configuration: what it reads of models and servers, before an engine starts.

tests/unit/docs/test_support.py has all kinds of models.
"""

import pytest

import vllm_spec_plugin
from tests.engine.tiny import tiny_model
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.gate import gate
from vllm_spec_plugin.register.frontend import served_by
from vllm_spec_plugin.schema.errors import ConfigError

KVTransferConfig = pytest.importorskip("vllm.config").KVTransferConfig
EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
NGRAM = "{method: ngram}"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Makes tiny models by name."""
    folder = tmp_path_factory.mktemp("models")
    return lambda name: tiny_model(name, folder)


@pytest.fixture
def arguments(models, tmp_path):
    """vLLM's arguments for a tiny model and a proposer in YAML."""

    def of(model: str, proposer: str = NGRAM, **options: object):
        plugin = tmp_path / "plugin.yaml"
        plugin.write_text(f"proposer: {proposer}\n")
        return EngineArgs(
            model=str(models(model)),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=512,
            speculative_config=vllm_spec_plugin.speculative_config(plugin),
            **options,
        )

    return of


def plain(arguments):
    """vLLM's configuration and the plugin's, without a look at them."""
    given = arguments.speculative_config
    arguments.speculative_config = None
    return arguments.create_engine_config(), config_in(given)


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("deepseek_v2", {}, "--model: got .*DeepseekV2ForCausalLM.*MLA"),
        ("llama", {"pipeline_parallel_size": 2}, "--pipeline-parallel-size: got 2"),
        ("llama", {"logits_processors": ["mine:Own"]}, "--logits-processors: got mine:Own"),
    ],
)
def test_what_is_not_served_is_refused_before_an_engine_starts(arguments, model, options, said):
    with pytest.raises(ConfigError, match=f"plugin.yaml cannot be served here: {said}"):
        arguments(model, **options).create_engine_config()


def test_stages_need_asynchronous_scheduling_where_a_drafter_drafts(arguments):
    given = arguments("llama", "{method: vllm, config: {method: ngram}}", pipeline_parallel_size=2)
    with pytest.raises(ConfigError, match=r"here: --pipeline-parallel-size: got 2; .* allowed: 1, or asynchronous"):
        given.create_engine_config()
    config, plugin = plain(given)
    config.scheduler_config.async_scheduling = True
    gate.check_served(config, plugin, "plugin.yaml")


def test_the_config_can_be_made_twice(arguments):
    """vLLM asks for it again in some programs; requests need what is noted on it each time."""
    given = arguments("gemma3", data_parallel_size=2)
    before = dict(vars(given))
    configs = [given.create_engine_config() for _ in range(2)]
    assert [served_by(config.speculative_config).methods for config in configs] == [("ngram",)] * 2
    assert [config.scheduler_config.scheduler_cls for config in configs] == [
        configs[0].scheduler_config.scheduler_cls
    ] * 2
    assert given.speculative_config == before["speculative_config"]
    assert given.worker_cls == "auto"
