"""Hand-made recordings."""

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.tools.bench.curves import StepCurve
from vllm_spec_plugin.tools.bench.replay.costs import Costs
from vllm_spec_plugin.tools.bench.replay.recording import Recording
from vllm_spec_plugin.tools.bench.replay.traces import Trace, Verified

NGRAM = {"method": "ngram"}
DRAFT_MODEL = {"method": "draft_model", "model": "draft"}


def chain(drafted: str, accepted: str) -> tuple[Verified, ...]:
    """Outcomes of chains, a digit per position."""
    return tuple(Verified(int(d), tuple(range(int(a)))) for d, a in zip(drafted, accepted, strict=True))


def trace(kind: str = "easy", length: int = 40) -> Trace:
    """n-grams match every third position; the draft model always drafts 4 tokens, of which 3 are accepted."""
    ngram = chain(("400" * length)[:length], ("400" * length)[:length])
    return Trace(kind, 10, (ngram, chain("4" * length, "3" * length)))


def costs(noise: tuple[float, ...] = (1.0,)) -> Costs:
    """A step takes 10 ms and 1 ms per token; the plugin adds 1 ms, a step that verifies drafts 2 ms more."""
    return Costs(
        plain={1: 0.011, 4: 0.014},
        idle={1: 0.012, 4: 0.015},
        drafted={1: StepCurve((1, 5), (0.014, 0.018)), 4: StepCurve((4, 20), (0.017, 0.033))},
        hidden={1: 0.0005, 4: 0.0005},
        drafting=({1: {1: 0.0, 4: 0.0}, 4: {1: 0.0, 4: 0.0}}, {1: {1: 0.001, 4: 0.004}, 4: {1: 0.002, 4: 0.008}}),
        catch_up=(0.0, 0.0001),
        noise=noise,
        drafting_noise=(1.0,),
        probe=((1, 0.011), (4, 0.014)),
    )


def recording() -> Recording:
    """A cascade of n-grams and a draft model."""
    section = {"method": "cascade", "proposers": [NGRAM, DRAFT_MODEL]}
    config = parse_config({"proposer": section, "draft_length": {"policy": "fixed", "tokens": 4}}, "a test")
    return Recording(config, tuple(trace(kind) for kind in ("easy", "hard", "edit")), costs(), {"seed": 0})
